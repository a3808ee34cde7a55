"""Worths: quick measures of what the eviction of single owners would lose. They order exploration only (PLAN-1)."""

from __future__ import annotations

from collections.abc import Mapping

from ninfer_core.cache.catalog import Entry
from ninfer_core.cache.contents import Contents, Standing
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.paths import PathIndex
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.contract.results import CheckpointSummary
from ninfer_core.program.ledger.geometry import Geometry
from ninfer_core.program.planning.work import recipe_from


class Worths:
    """For one planning session. Every owner is looked at, so that hardly anything may be worked out anew."""

    def __init__(self, geometry: Geometry, cost: CostModel, paths: PathIndex, contents: Contents) -> None:
        self._geometry = geometry
        self._cost = cost
        self._paths = paths
        self._contents = contents
        self._known: dict[OwnerId, float] = {}
        self._wanted: Mapping[OwnerId, list[tuple[CheckpointRef, int]]] | None = None

    def of(self, owner: OwnerId) -> float:
        """Nanoseconds; 0 for an owner that is not catalogued."""
        known = self._known.get(owner)
        if known is None:
            entry = self._contents.entry(owner)
            known = self._known[owner] = 0.0 if entry is None else self._worth(entry)
        return known

    def _worth(self, entry: Entry) -> float:
        weight, credit = self._contents.retained(entry)
        standing = self._standing(entry)
        public = standing.deepest if credit else 0.0
        for ref, users in self._demanded.get(entry.owner, ()):
            saving = standing.others.get(ref)
            if saving is None:
                summary = next((summary for summary in entry.checkpoints if summary.ref == ref), None)
                saving = 0.0 if summary is None else self._saving(entry.owner, summary)
                standing.others[ref] = saving
            public = max(public, (users + credit) * saving)
        return weight * standing.deepest + public

    def _standing(self, entry: Entry) -> Standing:
        known, stamp = self._contents.standing.get(entry.owner), self._contents.shelf.stamp(entry.owner)
        if known is None or known.stamp != stamp:
            counts = (summary for summary in reversed(entry.checkpoints) if summary.ref not in entry.unreachable)
            deepest = next(counts, None)
            saving = 0.0 if deepest is None else self._saving(entry.owner, deepest)
            known = self._contents.standing[entry.owner] = Standing(stamp, saving, {})
        return known

    @property
    def _demanded(self) -> Mapping[OwnerId, list[tuple[CheckpointRef, int]]]:
        """By owner, its checkpoints that demands in the window match, each with how many do."""
        if self._wanted is None:
            wanted: dict[OwnerId, list[tuple[CheckpointRef, int]]] = {}
            owners, holders = self._contents.shelf.owners, self._contents.shelf.holders
            for key, demands in self._contents.demands.showing.items():
                for ref in holders.get(key, ()):
                    wanted.setdefault(owners[ref], []).append((ref, len(demands)))
            self._wanted = wanted
        return self._wanted

    def _saving(self, owner: OwnerId, checkpoint: CheckpointSummary) -> float:
        """What a checkpoint saves beside the other owners' on its path."""
        contents, saving = self._contents, self._cost.rebuild(checkpoint.frontier)
        for ref in self._paths.ancestors(checkpoint.ref):
            holder = contents.shelf.owners.get(ref, owner)
            if holder != owner:
                for other in contents.checkpoints(holder):
                    if other.ref == ref:
                        recipe = recipe_from(self._geometry, checkpoint.frontier, other, contents.now)
                        saving = min(saving, self._cost.recipe(recipe))
        return saving
