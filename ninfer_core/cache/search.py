"""Search: the bounded exploration of complete targets, from identity downwards (context-cache PLAN, TGT).

Estimates order what is looked at; only targets that Program found feasible, and that can be published logically, take
part in the comparison. Stopping at any point leaves the best of those.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from ninfer_core.cache.budget import Budget, Stop
from ninfer_core.cache.domain import Domain, Option
from ninfer_core.cache.graph import OutcomeGraph, Vertex
from ninfer_core.cache.guide import Guide, Move
from ninfer_core.cache.lack import Lack
from ninfer_core.cache.objective import Objective
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.plans import Readiness
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.planning.target import Capture, Target
from ninfer_core.program.program import Program

MOST_REPAIRS = 16
"""Targets that one mandatory construction may assess."""

MOST_NODES = 4096
"""Targets that may wait for assessment in one session."""

Chosen = Mapping[OwnerId, Vertex]
"""The end state of every owner that a target changes."""


@dataclass(slots=True, eq=False)
class Node:
    """An assessed target.

    Attributes:
        gap: the publication cell is missing.
        value: J, nanoseconds. A prediction unless the node is adoptable.
        rank: tie-break of PLAN-9; worked out when a tie asks for it.
    """

    option: Option
    chosen: Chosen
    target: Target
    projection: Projection
    readiness: Readiness
    reason: str
    gap: bool
    value: float
    rank: tuple[float, ...] | None = None

    @property
    def fits(self) -> bool:
        """Physically; the rest is logic."""
        return self.readiness in (Readiness.READY, Readiness.NEEDS_TRANSFER)

    @property
    def adoptable(self) -> bool:
        return self.fits and not self.gap


@dataclass(order=True, slots=True)
class _Waiting:
    priority: float
    ordinal: int
    parent: Node = field(compare=False)
    vertex: Vertex = field(compare=False)


class Search:
    """One planning session: bound to a revision, never resumed (PLAN-7)."""

    def __init__(self, program: Program, objective: Objective, domain: Domain, *, wide: bool = False) -> None:
        """
        Args:
            wide: look at every owner in every expansion and stop for no estimate, for a search without budget.
        """
        self._session = program.session()
        self._program = program
        self._objective = objective
        self._domain = domain
        self._wide = wide
        self._graph: OutcomeGraph | None = None
        self._guides: dict[int, Guide] = {}
        self._identities: dict[int, Node] = {}
        self._heap: list[_Waiting] = []
        self._seen: set[tuple[int, ...]] = set()
        self._ordinal = 0
        self._overflowed = False
        self._licensed: frozenset[OwnerId] | None = None
        self._hopeless: set[int] = set()
        self._fitted: set[int] = set()
        self._dived: set[tuple[int, bool]] = set()
        self.assessed = 0
        self.best: Node | None = None

    def restrict(self, licensed: frozenset[OwnerId]) -> None:
        """From now on only these owners may be fully evicted (PLAN-5)."""
        self._licensed = licensed

    @property
    def graph(self) -> OutcomeGraph:
        """Of the eligible owners; made when pressure is first looked at."""
        if self._graph is None:
            capacity = self._program.geometry.capacity
            self._graph = OutcomeGraph(
                self._domain.outcomes, host_images=capacity.host_images > 0, host_pages=capacity.host_bytes > 0
            )
        return self._graph

    @property
    def has_host(self) -> bool:
        """Whether anything can be demoted at all."""
        capacity = self._program.geometry.capacity
        return capacity.host_images > 0 or capacity.host_bytes > 0

    def victims(self, option: Option) -> Iterable[OwnerId]:
        """What a target of the option may change."""
        return self._domain.of(option)

    # --- assessment -----------------------------------------------------------------------------------------------
    def identities(self, option: Option) -> list[Node]:
        """The option as it is, with nobody degraded (TGT-4); where it does not hold so, its fallback in its place or
        beside it."""
        node, fallback = self._as_it_is(option), option.fallback
        if fallback is None or self._holds_beside(node):
            nodes = [node]
        elif fallback.ordinal == option.ordinal:
            nodes = [self._as_it_is(fallback)]
        else:
            nodes = [node, self._as_it_is(fallback)]
        for node in nodes:
            self._identities[node.option.ordinal] = node
            self._seen.add((node.option.ordinal,))
            self._compare(node)
        return nodes

    def _as_it_is(self, option: Option) -> Node:
        target = Target(option.demand)
        found = self._session.assess(target)
        self.assessed += 1
        value = self._objective.identity(option, found.projection)
        gap = self._gap(option, {})
        return Node(option, {}, target, found.projection, found.readiness, found.reason, gap, value)

    def _holds_beside(self, node: Node) -> bool:
        """Whether the cache can hold the branch beside the conversation: its state, and a continuation to come."""
        return node.fits and (self._domain.free_cell or not node.option.needs_cell)

    def assess(self, option: Option, chosen: Chosen, *, limit: float = math.inf) -> Node:
        """Program's and the logical side's exact word on one target; the best adoptable one is remembered.

        Args:
            limit: J above it need not be exact.
        """
        self._seen.add(_key(option, chosen))
        self.assessed += 1
        target = Target(option.demand, {owner: vertex.outcome for owner, vertex in chosen.items()})
        found = self._session.assess(target)
        identity = self._identities[option.ordinal]
        gap = self._gap(option, chosen)
        node = Node(option, chosen, target, found.projection, found.readiness, found.reason, gap, 0.0)
        if node.adoptable:
            node.value = self._objective.judge(option, target, found.projection, identity.projection, limit)
            self._compare(node)
        else:
            node.value = identity.value + sum(self._loss(option, vertex) for vertex in chosen.values())
        return node

    def fits(self, option: Option) -> bool | None:
        """Whether any target of the option fits; None when that has not come out."""
        if option.ordinal in self._fitted:
            return True
        return False if option.ordinal in self._hopeless else None

    def _compare(self, node: Node) -> None:
        if not node.adoptable:
            return
        self._fitted.add(node.option.ordinal)
        best = self.best
        if (
            best is None
            or node.value < best.value
            or (node.value == best.value and self._rank(node) < self._rank(best))
        ):
            self.best = node

    def _rank(self, node: Node) -> tuple[float, ...]:
        if node.rank is None:
            node.rank = self._objective.rank(node.option, node.target, node.projection)
        return node.rank

    def _gap(self, option: Option, chosen: Chosen) -> bool:
        """A physical gap of zero does not replace the check of the publication cell (PLAN-14)."""
        if not option.needs_cell or self._domain.free_cell:
            return False
        holders = self._domain.cell_owners - {option.source_owner}
        # Where no cell can become free at all, the request runs without one: its end is discarded (RET-4).
        if not holders and not isinstance(option.demand, Capture):
            return False
        return not any(owner in holders and vertex.evicted for owner, vertex in chosen.items())

    def _loss(self, option: Option, vertex: Vertex) -> float:
        return self._objective.predict(vertex, self._guide(option).sole)

    def _guide(self, option: Option) -> Guide:
        guide = self._guides.get(option.ordinal)
        if guide is None:
            guide = Guide(self._program.geometry, self._objective, self._domain, self.graph, option, self._session)
            self._guides[option.ordinal] = guide
        return guide

    def _looking(self, node: Node) -> Guide:
        """The option's guide, with this target before its eyes."""
        guide = self._guide(node.option)
        guide.look(self._session.sole(node.target) if node.chosen else guide.untouched)
        return guide

    # --- construction, whatever the budget ----------------------------------------------------------------------
    def construct(self, identity: Node) -> bool:
        """Find a target of the option that fits, if there is one: with as little lost as a few exact answers allow, so
        that a spent budget does not empty the cache; else by releasing everything (PLAN-3, PLAN-13)."""
        option = identity.option
        for gentle in (True, False) if self.has_host else (False,):
            self.dive(identity, Budget(MOST_REPAIRS, None), gentle=gentle)
        return option.ordinal in self._fitted or self.maximal(option)

    def maximal(self, option: Option) -> bool:
        """Whether the option fits with every eligible owner released; that target then takes part (PLAN-3).

        Where nothing better is known, what is worth most is taken back at once, so that a spent budget does not empty
        the cache: by halves, in a number of steps that grows with the logarithm of the number of owners.
        """
        if option.ordinal in self._hopeless:
            return False
        node = self._released(option, list(self._domain.of(option)))
        if not node.adoptable:
            self._hopeless.add(option.ordinal)
            return False
        if self.best is node:
            self._take_back(option)
        return True

    def _take_back(self, option: Option) -> None:
        order = self._guide(option).cheapest_first(self._lack(self._identities[option.ordinal]))
        few, enough = 1, len(order)
        while few < enough:
            middle = (few + enough) // 2
            if self._released(option, order[:middle]).adoptable:
                enough = middle
            else:
                few = middle + 1
        if self.has_host:
            self._demote_instead(option, order[:enough])

    def _demote_instead(self, option: Option, released: Sequence[OwnerId]) -> None:
        """Of the owners that are released as many as the Host tier can carry are moved there, by halves too: those
        that are worth most."""
        limit = math.inf if self.best is None else self.best.value
        carried, most = 0, len(released)
        while carried < most:
            middle = (carried + most + 1) // 2
            kept = len(released) - middle
            chosen = {owner: self.graph.evicted(owner) for owner in released[:kept]}
            chosen |= {owner: self.graph.on_host(owner) for owner in released[kept:]}
            if self.assess(option, chosen, limit=limit).adoptable:
                carried = middle
            else:
                most = middle - 1

    def _released(self, option: Option, owners: Sequence[OwnerId]) -> Node:
        """The option with these owners released and nobody else degraded."""
        limit = math.inf if self.best is None else self.best.value
        return self.assess(option, {owner: self.graph.evicted(owner) for owner in owners}, limit=limit)

    # --- construction ---------------------------------------------------------------------------------------------
    def dive(self, start: Node, budget: Budget, *, gentle: bool = False, patient: bool = False) -> Stop | None:
        """From an infeasible target, the steps that cost least for what they relieve, until one is adoptable; then
        every sacrifice that turns out not to be needed is taken back. Program's exact word on each complete target
        drives the next (PLAN-6).

        Args:
            gentle: nobody is evicted whole while another step helps.
            patient: no clock until something fits: half a construction is worth nothing.

        Returns:
            Why it stopped early; None when it came to its end.
        """
        node = start
        if (start.option.ordinal, gentle) in self._dived:
            return None
        self._dived.add((start.option.ordinal, gentle))
        with budget.unhurried() if patient else nullcontext():
            while not node.adoptable:
                if stop := budget.stop(math.inf):
                    return stop
                chosen = self._constructed(node, gentle=gentle)
                if chosen is None:
                    self._note_hopeless(node)
                    return None
                if gentle and _key(node.option, chosen) in self._seen:
                    return None
                node = self.assess(node.option, chosen)
                budget.spent(len(chosen))
        return self._relented(node, budget)

    def _note_hopeless(self, node: Node) -> None:
        """An option that does not even fit with every eligible owner released is not looked at any more."""
        released = sum(vertex.evicted for vertex in node.chosen.values())
        if not node.adoptable and released == len(list(self._domain.of(node.option))):
            self._hopeless.add(node.option.ordinal)

    def _constructed(self, node: Node, *, gentle: bool) -> Chosen | None:
        """Steps from a target until what is missing seems to be covered; None when there is none left."""
        guide, chosen = self._looking(node), dict(node.chosen)
        lack = self._lack(node)
        moves = guide.moves(chosen, lack, self._licensed, wide=self._wide)
        moved = False
        while moves and (lack or not moved):
            milder = [m for m in moves if m.share > 0 and not m.vertex.evicted] if gentle else []
            best = min(milder or moves, key=lambda move: (move.ratio, move.change, move.vertex.number))
            if moved and best.share <= 0:
                break  # nothing more is known to help: what is short of now, Program says
            owner = best.vertex.owner
            chosen[owner] = best.vertex
            lack, moved = lack.without(best.relief), True
            moves = [move for move in moves if move.vertex.owner != owner]
            for move in moves:
                move.share = lack.share(move.relief)
            moves += guide.moves_of(best.vertex, lack, self._licensed)
        return chosen if moved else None

    def _relented(self, node: Node, budget: Budget) -> Stop | None:
        """Take back what is not needed, the largest sacrifice first."""
        dearest = sorted(node.chosen.values(), key=lambda v: (-self._loss(node.option, v), v.number))
        for vertex in dearest if len(dearest) > 1 else ():
            fewer = {owner: other for owner, other in node.chosen.items() if owner != vertex.owner}
            if _key(node.option, fewer) in self._seen:
                continue
            if stop := budget.stop(self._loss(node.option, vertex)):
                return stop
            tried = self.assess(node.option, fewer)
            budget.spent(len(fewer))
            if tried.adoptable and tried.value <= node.value:
                node = tried
        return None

    def _lack(self, node: Node) -> Lack:
        return Lack.of(node.projection, self._program.geometry, cell=node.gap)

    # --- exploration ----------------------------------------------------------------------------------------------
    def explore(self, seeds: Iterable[Node], budget: Budget) -> Stop:
        """Best first, until nothing waits, the budget ends, or no gain is in sight."""
        for node in seeds:
            if node.option.ordinal not in self._hopeless:
                self._expand(node)
        while self._heap:
            waiting = heapq.heappop(self._heap)
            gain = math.inf if self.best is None else self.best.value - waiting.priority
            if gain <= 0 and not self._wide:
                return Stop.INSUFFICIENT_EXPECTED_GAIN
            parent, vertex = waiting.parent, waiting.vertex
            if parent.option.ordinal in self._hopeless:
                continue
            chosen = {**parent.chosen, vertex.owner: vertex}
            if _key(parent.option, chosen) in self._seen:
                continue
            if stop := budget.stop(gain):
                return stop
            node = self.assess(parent.option, chosen)
            budget.spent(len(chosen))
            if self._wide or not node.adoptable:
                self._expand(node)
        return Stop.EXPANSION_CAPACITY if self._overflowed else Stop.QUEUE_EXHAUSTED

    def _expand(self, node: Node) -> None:
        guide = self._looking(node)
        moves = guide.moves(node.chosen, self._lack(node), self._licensed, wide=self._wide)
        for move, rest in guide.priced(moves, self._lack(node)):
            self._push(node, move, rest)

    def _push(self, node: Node, move: Move, rest: float) -> None:
        if len(self._heap) >= MOST_NODES and not self._wide:
            self._overflowed = True
            return
        self._ordinal += 1
        priority = node.value + move.change + rest
        heapq.heappush(self._heap, _Waiting(priority, self._ordinal, node, move.vertex))


def _key(option: Option, chosen: Chosen) -> tuple[int, ...]:
    """Of a target in this session: numbers of vertices say which owner they belong to."""
    return (option.ordinal, *sorted(vertex.number for vertex in chosen.values()))
