"""Exchange: what is worth least gives its place on Host to what has to leave Device (context-cache TGT-5, PLAN-6).

With a full Host tier neither step looks like one alone: the eviction of what lies on Host frees nothing on Device, and
what leaves Device finds no room. Whoever looks at single steps evicts what was just used, because that is on Device.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

from ninfer_core.cache.graph import OutcomeGraph, Vertex
from ninfer_core.cache.lack import HOST_AXES, Amounts, Lack, relief
from ninfer_core.cache.objective import Objective
from ninfer_core.cache.steps import Steps
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.ledger.geometry import Geometry
from ninfer_core.program.ledger.objects import NOTHING, Replicas
from ninfer_core.program.planning.outcome import EVICTED


class Exchange:
    """One construction for one option, in few repairs: Program's exact word on what is missing goes in, the next
    complete target comes out. Orders exploration, proves nothing (PLAN-1).

    Relief is taken as if nobody else held the same objects: a target changes too few owners rather than too many.
    """

    def __init__(
        self,
        geometry: Geometry,
        objective: Objective,
        graph: OutcomeGraph,
        owners: Iterable[OwnerId],
        worths: Mapping[OwnerId, float],
        cell_owners: frozenset[OwnerId],
        held: Replicas,
    ) -> None:
        """
        Args:
            worths: quick measures of what the eviction of each alone loses.
            cell_owners: those whose eviction frees a publication cell.
            held: every object there may be.
        """
        self._geometry = geometry
        self._objective = objective
        self._graph = graph
        self._cell_owners = cell_owners
        self._held = held
        self._room = {owner: self._share(graph.identity(owner)) for owner in owners}
        self._waiting = sorted(
            (worths[owner] / room, number, owner, 0) for number, (owner, room) in enumerate(self._room.items())
        )
        self._on_device = [owner for _, _, owner, _ in self._waiting if graph.identity(owner).outcome.on_device]
        self._evicted: list[OwnerId] = []
        self._moved: dict[OwnerId, Vertex] = {}
        self._lost = 0.0
        self._ahead = NOTHING
        self._demotions: dict[OwnerId, tuple[Vertex, Amounts]] = {}
        self._evictions: dict[int, Amounts] = {}

    def further(self, lack: Lack, licensed: frozenset[OwnerId] | None) -> Steps[dict[OwnerId, Vertex] | None]:
        """The whole target after the steps that seem to cover what is missing; None when there is none left."""
        stepped = False
        while lack or not stepped:
            yield
            given = None if any(lack.need[axis] > 0 for axis in HOST_AXES) else self._demote(lack)
            if given is None:
                given = self._evict(lack, licensed)
            if given is None:
                break
            lack, stepped = lack.without(given), True
        gone = {owner: self._graph.evicted(owner) for owner in self._evicted}
        return gone | self._moved if stepped else None

    def _demote(self, lack: Lack) -> Amounts | None:
        """Whoever is worth least for its room, of those that have something to give on Device, goes to Host."""
        for owner in self._on_device:
            if owner in self._moved or owner in self._evicted:
                continue
            after, given = self._demotion(owner)
            if _helps(given, lack):
                self._moved[owner] = after
                self._ahead |= after.outcome.wants
                return given
        return None

    def _demotion(self, owner: OwnerId) -> tuple[Vertex, Amounts]:
        """An owner on Host, and what that gives back."""
        found = self._demotions.get(owner)
        if found is None:
            after = self._graph.on_host(owner)
            found = self._demotions[owner] = (after, self._relief(self._graph.identity(owner), after))
        after, wants, ahead = found[0], found[0].outcome.wants, self._ahead
        if wants.host_images & ahead.host_images or wants.host_pages & ahead.host_pages:
            return after, self._relief(self._graph.identity(owner), after)
        return found

    def _evict(self, lack: Lack, licensed: frozenset[OwnerId] | None) -> Amounts | None:
        """Whoever is worth least for its room beside those that are evicted already: two that stand in for each other
        look worthless one by one."""
        aside, found = [], None
        while self._waiting and found is None:
            density, number, owner, at = heapq.heappop(self._waiting)
            given = self._eviction(self._moved.get(owner) or self._graph.identity(owner))
            if not _helps(given, lack) or (licensed is not None and owner not in licensed):
                aside.append((density, number, owner, at))
            elif at < len(self._evicted):
                more = self._together((*self._evicted, owner)) - self._lost
                heapq.heappush(self._waiting, (more / self._room[owner], number, owner, len(self._evicted)))
            else:
                found = given
                self._evicted.append(owner)
                if self._moved.pop(owner, None) is not None:
                    self._ahead = reduce(or_, [vertex.outcome.wants for vertex in self._moved.values()], NOTHING)
                self._lost = self._together(self._evicted)
        for item in aside:
            heapq.heappush(self._waiting, item)
        return found

    def _together(self, owners: Iterable[OwnerId]) -> float:
        """What the eviction of all of them loses."""
        return self._objective.together(dict.fromkeys(owners, EVICTED), self._held)

    def _eviction(self, before: Vertex) -> Amounts:
        """What the eviction of an owner from an end state gives back."""
        given = self._evictions.get(before.number)
        if given is None:
            given = self._evictions[before.number] = self._relief(before, self._graph.evicted(before.owner))
        return given

    def _relief(self, before: Vertex, after: Vertex) -> Amounts:
        cell = after.evicted and after.owner in self._cell_owners
        return relief(before.outcome, after.outcome, self._held, self._geometry, cell=cell, ahead=self._ahead)

    def _share(self, vertex: Vertex) -> float:
        """What an owner needs, as a share of what both tiers hold together."""
        images, pages = vertex.outcome.needs
        geometry, capacity = self._geometry, self._geometry.capacity
        places = capacity.device_images + capacity.host_images
        held = sum(count * pool.page_bytes for count, pool in zip(capacity.pages, geometry.pools, strict=True))
        return images.bit_count() / places + geometry.bytes_of(pages) / (held + capacity.host_bytes)


def _helps(given: Amounts, lack: Lack) -> bool:
    return any(amount > 0 and need > 0 for amount, need in zip(given, lack.need, strict=True))
