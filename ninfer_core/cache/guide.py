"""Guide: which steps from a target look best for what is missing. Orders exploration, proves nothing (PLAN-1)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from ninfer_core.cache.domain import Domain, Option
from ninfer_core.cache.evictions import Evictions
from ninfer_core.cache.exchange import Exchange
from ninfer_core.cache.graph import OutcomeGraph, Vertex
from ninfer_core.cache.lack import DEVICE_IMAGES, Amounts, Lack, relief
from ninfer_core.cache.move import Move
from ninfer_core.cache.objective import Objective
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.ledger.geometry import Geometry
from ninfer_core.program.ledger.objects import NOTHING, Checkpoint, Replicas
from ninfer_core.program.planning.assessment import AssessmentSession
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.target import Source, Target, source_of

SHORTLIST = 5
"""Owners whose steps are looked at in one expansion, or that may make room for another, cheapest first; the others
stay reachable by later expansions."""

FREE_ENDS = 2
"""Besides, where Device images are missing, owners that have a checkpoint whose loss costs nothing: to evict the whole
owner may look dear though giving up that one is free."""


_Step = tuple[Vertex, Amounts, Amounts]
"""A step down, what it gives back, and what at most."""


class Guide:
    """For one option.

    Attributes:
        untouched: what single owners hold while nobody is degraded.
        sole: the same in the target that is looked at.
        leaving: what of untouched leaves Device where its owner lets go: not what becomes the sequence's own.
        ahead: the Host replicas that the degraded owners of the target that is looked at wish.
    """

    def __init__(
        self,
        geometry: Geometry,
        objective: Objective,
        domain: Domain,
        graph: OutcomeGraph,
        evictions: Evictions,
        option: Option,
        session: AssessmentSession,
    ) -> None:
        self._evictions = evictions
        self._geometry = geometry
        self._objective = objective
        self._graph = graph
        self._owners = list(domain.of(option))
        self._cell_owners = domain.cell_owners
        target = Target(option.demand)
        self.untouched = self.sole = session.sole(target)
        self._kept = _objects_of(source_of(target))
        self.leaving = self.sole.without(self._kept)
        self.ahead = NOTHING
        # Objects that the target looked at makes somebody's own, or no longer.
        self._images = self._pages = 0
        self._source = option.source_owner
        self._entries = domain.entries
        self._with_free_ends = {owner for owner in self._owners if domain.entries[owner].unreachable}
        self._steps: dict[int, list[_Step]] = {}
        images, pages = geometry.image_ids, (1 << geometry.pools[-1].mask.bit_length()) - 1
        self._any = Replicas(images, images, pages, pages)
        # What could come back at all, were all victims to let go together (TGT-5): the bound of Move.most.
        self._releasable = self._any.without(session.staying(target, self._owners))

    @property
    def everyone(self) -> bool:
        """Whether every owner is looked at in one expansion."""
        return len(self._owners) <= SHORTLIST

    def exchange(self) -> Exchange:
        """A construction that swaps places on Host, from the option as it is."""
        worths, cells = self._evictions.worths, self._cell_owners
        return Exchange(self._geometry, self._objective, self._graph, self._owners, worths, cells, self._any)

    def look(self, sole: Replicas, chosen: Mapping[OwnerId, Vertex]) -> None:
        """Another target is looked at."""
        was, images, pages = self.untouched, 0, 0
        for vertex in chosen.values():
            images |= vertex.outcome.wants.host_images
            pages |= vertex.outcome.wants.host_pages
        self.sole, self.ahead = sole, Replicas(host_images=images, host_pages=pages) if images or pages else NOTHING
        self._images = images | sole.device_images ^ was.device_images | sole.host_images ^ was.host_images
        self._pages = pages | sole.device_pages ^ was.device_pages | sole.host_pages ^ was.host_pages

    def is_entangled(self, vertex: Vertex) -> bool:
        """Whether others, whoever they are, hold some of what an owner wishes: its steps free less than they say."""
        return bool(vertex.outcome.wants.without(self.sole))

    def moves(
        self,
        chosen: Mapping[OwnerId, Vertex],
        lack: Lack,
        licensed: frozenset[OwnerId] | None,
        *,
        wide: bool,
        joint: bool = False,
    ) -> list[Move]:
        """Steps of the owners that look cheapest for what is missing: those that give some of it back, alone or with
        others; every step where none does, or where wide.

        Args:
            joint: Move.most counts what others share for every step that frees nothing alone, not for evictions only:
                a step that frees something needs nobody. Dearer, so that only a wary course asks.
        """
        found: list[Move] = []
        for owner in self._shortlist(chosen, lack, wide=wide):
            found += self.moves_of(chosen.get(owner) or self._graph.identity(owner), lack, licensed)
        for move in found if joint else ():
            if move.share <= 0 and not move.vertex.evicted:
                move.most = self.relief(move.before, move.vertex, self._releasable)
        helping = [] if wide else [move for move in found if move.share > 0 or lack.share(move.most) > 0]
        return helping or found

    def moves_of(self, before: Vertex, lack: Lack, licensed: frozenset[OwnerId] | None) -> list[Move]:
        """Every step of one owner from one end state."""
        return [
            Move(vertex, before, self._predict, given, lack.share(given), most)
            for vertex, given, most in self._down(before)
            if licensed is None or not vertex.evicted or vertex.owner in licensed
        ]

    def _down(self, before: Vertex) -> list[_Step]:
        """The steps of an owner's end state; they stay what they are while nobody who shares with it is degraded."""
        images, pages = before.outcome.needs
        as_ever = not images & self._images and not pages & self._pages
        found = self._steps.get(before.number) if as_ever else None
        if found is not None:
            return found
        found = []
        for vertex in self._graph.steps(before):
            given = self.relief(before, vertex)
            most = self.relief(before, vertex, self._releasable) if vertex.evicted else given
            found.append((vertex, given, most))
        if as_ever:
            self._steps[before.number] = found
        return found

    def _predict(self, vertex: Vertex) -> float:
        return self._objective.predict(vertex, self.leaving)

    def relief(self, before: Vertex, after: Vertex, held: Replicas | None = None) -> Amounts:
        """What going from one end state of an owner to another gives back."""
        cell = after.evicted and after.owner in self._cell_owners
        sole = self.sole if held is None else held
        return relief(before.outcome, after.outcome, sole, self._geometry, cell=cell, ahead=self.ahead)

    def instead(
        self, chosen: Mapping[OwnerId, Vertex], lack: Lack, licensed: frozenset[OwnerId] | None, most: float
    ) -> Iterator[tuple[Vertex, Lack]]:
        """Evictions of owners that a target leaves alone, each with what is missing after it: of those that look
        cheapest the ones that give something back and look as if they lost less than most."""
        worths = self._evictions.worths
        others = (
            owner
            for owner in self.cheapest_first(lack)
            if owner not in chosen and worths[owner] < most and (licensed is None or owner in licensed)
        )
        for owner in itertools.islice(others, SHORTLIST):
            vertex = self._graph.evicted(owner)
            given = self.relief(self._graph.identity(owner), vertex)
            if lack.share(given) > 0:
                yield vertex, lack.without(given)

    def may_cover(self, vertex: Vertex, lack: Lack) -> bool:
        """Whether some end state of the owner below this one, its eviction aside, may give back what is missing, as
        `relief` tells it with everybody else as in the target looked at. An upper bound: a no spares the search for one
        and judges no target (PLAN-1, PLAN-6)."""
        return any(self._may_keep(vertex, checkpoint, lack) for checkpoint in vertex.outcome.kept)

    def _may_keep(self, vertex: Vertex, checkpoint: Checkpoint, lack: Lack) -> bool:
        """Whether that may be so with one checkpoint kept: whatever else is kept frees less. It stays where it lies, or
        as much of it goes to Host as has to."""
        had, sole, ahead, geometry = vertex.outcome.wants, self.sole, self.ahead, self._geometry
        alone = Outcome.in_place((checkpoint,), had)
        held = alone.wants
        if held.device_images & held.host_images or held.device_pages & held.host_pages:
            return True  # one of two copies goes for nothing
        if held.device_images & ahead.host_images or held.device_pages & ahead.host_pages:
            return True  # and what is on its way to Host anyway
        images, host_images, host_bytes, cell, *pages = lack.without(
            relief(vertex.outcome, alone, sole, geometry, cell=False)
        ).need
        if cell > 0 or images > (held.device_images & sole.device_images).bit_count():
            return False
        movable = geometry.per_pool(held.device_pages & sole.device_pages)
        moved = [max(0, count) for count in pages]
        if any(count > most for count, most in zip(moved, movable, strict=True)):
            return False
        made = sum([count * pool.page_bytes for count, pool in zip(moved, geometry.pools, strict=True)])
        return host_images + max(0, images) <= 0 and host_bytes + made <= 0

    def _shortlist(self, chosen: Mapping[OwnerId, Vertex], lack: Lack, *, wide: bool) -> list[OwnerId]:
        everyone = wide or self.everyone
        # Where all of them are looked at, the oldest comes first: it gives way where nothing else tells.
        order = self._owners if everyone else self.cheapest_first(lack)
        left = (owner for owner in order if owner not in chosen or not chosen[owner].evicted)
        if everyone:
            return list(left)
        found = list(itertools.islice(left, SHORTLIST))
        if lack.need[DEVICE_IMAGES] > 0 and self._with_free_ends:
            others = (owner for owner in left if self._has_free_end(owner, chosen))
            found += itertools.islice(others, FREE_ENDS)
        return found

    def _has_free_end(self, owner: OwnerId, chosen: Mapping[OwnerId, Vertex]) -> bool:
        """Whether an owner has a checkpoint whose loss costs nothing (VAL-9) and gives its image back."""
        if owner not in self._with_free_ends:
            return False
        unreachable = self._entries[owner].unreachable
        kept = (chosen.get(owner) or self._graph.identity(owner)).outcome.kept
        images = self.sole.device_images
        return any(c.ref in unreachable and c.image_mask & images for c in kept)

    def cheapest_first(self, lack: Lack) -> Iterator[OwnerId]:
        """All owners, by what the eviction of each alone loses for what it relieves."""
        return (owner for owner in self._evictions.cheapest_first(lack) if owner != self._source)


def _objects_of(source: Source | None) -> Replicas:
    """What a source holds, on every tier."""
    if source is None:
        return NOTHING
    images, pages = source.checkpoint.image_mask, source.checkpoint.page_mask
    return Replicas(images, images, pages, pages)
