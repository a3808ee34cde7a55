"""Worths: quick measures of what the eviction of single owners would lose. They order exploration only (PLAN-1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
        self._wanted: Mapping[OwnerId, list[tuple[CheckpointRef, int]]] | None = None

    def of(self, entries: Iterable[Entry]) -> dict[OwnerId, float]:
        """Nanoseconds that each owner's eviction alone may lose, by owner. What an owner's checkpoints save is kept in
        `Contents.standing` for the next session."""
        contents, demanded, found = self._contents, self._demanded, {}
        known, stamp = contents.standing, contents.shelf.stamp
        for entry in entries:
            owner = entry.owner
            weight, credit = contents.retained(entry)
            standing = known.get(owner)
            if standing is None or standing.stamp != stamp(owner):
                standing = known[owner] = self._standing(entry, stamp(owner))
            public = standing.deepest if credit else 0.0
            if owner in demanded:
                public = max(public, self._demanded_saving(entry, standing, demanded[owner], credit))
            found[owner] = weight * standing.deepest + public
        return found

    def _demanded_saving(
        self, entry: Entry, standing: Standing, demanded: Iterable[tuple[CheckpointRef, int]], credit: bool
    ) -> float:
        """The most that one of the owner's checkpoints saves, times the demands that match it. Kept in standing."""
        most = 0.0
        for ref, users in demanded:
            saving = standing.others.get(ref)
            if saving is None:
                summary = next((summary for summary in entry.checkpoints if summary.ref == ref), None)
                saving = 0.0 if summary is None else self._saving(entry.owner, summary)
                standing.others[ref] = saving
            most = max(most, (users + credit) * saving)
        return most

    def _standing(self, entry: Entry, stamp: int) -> Standing:
        counts = (summary for summary in reversed(entry.checkpoints) if summary.ref not in entry.unreachable)
        deepest = next(counts, None)
        return Standing(stamp, 0.0 if deepest is None else self._saving(entry.owner, deepest), {})

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
