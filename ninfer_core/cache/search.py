"""Search: the bounded exploration of complete targets, from identity downwards (context-cache PLAN, TGT).

Estimates order what is looked at; only targets that Program found feasible, and that can be published logically, take
part in the comparison. Stopping at any point leaves the best of those.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from ninfer_core.cache.budget import LEAST_GAIN_NS, Budget, Stop
from ninfer_core.cache.domain import Domain, Option
from ninfer_core.cache.evictions import Evictions
from ninfer_core.cache.graph import OutcomeGraph, Vertex
from ninfer_core.cache.guide import Guide
from ninfer_core.cache.lack import Lack
from ninfer_core.cache.move import Move
from ninfer_core.cache.node import Chosen, Node, key_of, outcomes_of
from ninfer_core.cache.objective import Objective
from ninfer_core.cache.offers import priced
from ninfer_core.cache.steps import Steps
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.ledger.objects import Replicas
from ninfer_core.program.planning.target import Capture, Target
from ninfer_core.program.program import Program

MOST_NODES = 4096
"""Targets that may wait for assessment in one session."""


@dataclass(order=True, slots=True)
class _Waiting:
    priority: float
    ordinal: int
    parent: Node = field(compare=False)
    vertex: Vertex = field(compare=False)


class Search:
    """One planning session, bound to a revision: once ended it is never resumed (PLAN-7). It may be left between steps
    while rows decode inside their promise (CAP-10): that adds pages which no checkpoint names, and changes no J.

    Attributes:
        licensed: the only owners that may be fully evicted (PLAN-5); None where all may.
        wide: look at every owner in every expansion and stop for no estimate: for a search without any bound.
        assessed: how many targets were.
        best: the best adoptable node so far.
    """

    def __init__(self, program: Program, objective: Objective, domain: Domain) -> None:
        self._session = program.session()
        self._program = program
        self._objective = objective
        self._domain = domain
        self.wide = False
        self._graph: OutcomeGraph | None = None
        self._evictions: Evictions | None = None
        self._guides: dict[int, Guide] = {}
        self._identities: dict[int, Node] = {}
        self._heap: list[_Waiting] = []
        self._known: dict[tuple[int, ...], Node] = {}
        self._expanded: set[Node] = set()
        self._ordinal = 0
        self._overflowed = False
        self.licensed: frozenset[OwnerId] | None = None
        self._hopeless: set[int] = set()
        self._fitted: set[int] = set()
        self._skip = math.inf
        self.assessed = 0
        self.best: Node | None = None

    def beat(self, skip: float) -> None:
        """Only what is below this value is of use: doing nothing has it (PLAN-4)."""
        self._skip = skip

    @property
    def incumbent(self) -> float:
        """J of the best that is known, doing nothing included where that is possible."""
        return self._skip if self.best is None else min(self._skip, self.best.value)

    def restrict(self, licensed: frozenset[OwnerId]) -> None:
        """From now on only these owners may be fully evicted (PLAN-5)."""
        self.licensed = licensed

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

    def guide(self, option: Option) -> Guide:
        guide = self._guides.get(option.ordinal)
        if guide is None:
            if self._evictions is None:
                self._evictions = Evictions(self._domain, self._objective, self._session)
            geometry, objective, domain = self._program.geometry, self._objective, self._domain
            guide = Guide(geometry, objective, domain, self.graph, self._evictions, option, self._session)
            self._guides[option.ordinal] = guide
        return guide

    def guide_at(self, node: Node) -> Guide:
        """The option's guide, with this target before its eyes."""
        guide = self.guide(node.option)
        guide.look(self._session.sole(node.target) if node.chosen else guide.untouched, node.chosen)
        return guide

    def sole(self, option: Option, chosen: Chosen) -> Replicas:
        """What single owners hold in a target that need not be assessed."""
        return self._session.sole(Target(option.demand, outcomes_of(chosen)))

    def loss(self, option: Option, vertex: Vertex) -> float:
        """What this end state alone would add to J. An estimate."""
        return self._objective.predict(vertex, self.guide(option).leaving)

    def losses(self, node: Node, *, most: int) -> Steps[dict[OwnerId, float]]:
        """What the end state of each owner in an adoptable target adds to J: beside all others where the target loses
        more than they do one by one, since two that stand in for each other look worthless so. An estimate.

        Args:
            most: owners; of more each is taken alone.
        """
        losses = {}
        for owner, vertex in node.chosen.items():
            yield
            losses[owner] = self.loss(node.option, vertex)
        surprise = node.value - self.identity(node.option).value - sum(losses.values())
        if surprise <= LEAST_GAIN_NS or len(losses) > most:
            return losses
        yield
        leaving, gone = self.guide(node.option).leaving, node.option.base_dead | node.option.lost
        outcomes = node.target.outcomes
        whole = self._objective.together(outcomes, leaving, gone)
        for owner in losses:
            yield
            others = {other: outcome for other, outcome in outcomes.items() if other != owner}
            losses[owner] = max(losses[owner], whole - self._objective.together(others, leaving, gone))
        return losses

    def tail_copies(self, node: Node) -> float:
        """Nanoseconds of the copies that give the sequence tails of its own; they are part of J."""
        return self._objective.tail_copies(node.option, node.target, node.projection)

    def lack(self, node: Node) -> Lack:
        """What Program says is missing."""
        return Lack.of(node.projection, self._program.geometry, cell=node.gap)

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
            self._known[key_of(node.option, {})] = node
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
        key = key_of(option, chosen)
        node = self._known.get(key)
        if node is None:
            self.assessed += 1
            target = Target(option.demand, outcomes_of(chosen))
            found = self._session.assess(target)
            gap = self._gap(option, chosen)
            node = Node(option, chosen, target, found.projection, found.readiness, found.reason, gap, math.inf)
            self._known[key] = node
        if node.adoptable and node.value > node.limit < limit:  # not judged, or not as far as is asked now
            node.value, node.limit = self._judged(node, limit), limit
            self._compare(node)
        return node

    def _judged(self, node: Node, limit: float = math.inf) -> float:
        """J, of what does not fit, too: the better prediction for what it leads to."""
        before = self.identity(node.option).projection
        return self._objective.judge(node.option, node.target, node.projection, before, limit)

    def identity(self, option: Option) -> Node:
        """The option as it is. Raises KeyError before `identities`."""
        return self._identities[option.ordinal]

    def fits(self, option: Option) -> bool | None:
        """Whether any target of the option fits; None when that has not come out."""
        if option.ordinal in self._fitted:
            return True
        return False if self.is_hopeless(option) else None

    def is_hopeless(self, option: Option) -> bool:
        return option.ordinal in self._hopeless

    def is_dominated(self, node: Node, others: Iterable[Node]) -> bool:
        """Whether another identity that can be made to fit, from the same owner, takes no longer by itself and lacks no
        more: the same victims give it the same room. An estimate: what the two disposals leave may differ."""
        rivals = [
            other
            for other in others
            if other.option.source_owner == node.option.source_owner
            and (other.value, other.option.ordinal) < (node.value, node.option.ordinal)
            and other.option.ordinal in self._fitted
        ]
        if not rivals:  # as for most: what they lack need not be worked out
            return False
        mine = self.lack(node).need
        return any(
            all(need <= most for need, most in zip(self.lack(rival).need, mine, strict=True)) for rival in rivals
        )

    def give_up(self, option: Option) -> None:
        """It does not even fit with every eligible owner released: no target of it is looked at any more."""
        self._hopeless.add(option.ordinal)

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

    # --- exploration ----------------------------------------------------------------------------------------------
    def tried(self, option: Option, chosen: Chosen, budget: Budget, gain: float) -> Steps[Node | Stop]:
        """One optional target: for nothing where it was assessed before; else within the budget, or why not.

        Args:
            gain: what it promises over the incumbent.
        """
        if key_of(option, chosen) in self._known:
            return self.assess(option, chosen)
        yield
        if stop := budget.stop(gain):
            return stop
        node = self.assess(option, chosen)
        budget.spent(len(chosen))
        return node

    def explore(self, seeds: Iterable[Node], budget: Budget) -> Steps[Stop]:
        """Best first, until nothing waits, the budget ends, or no gain is in sight."""
        for node in seeds:
            if self.is_hopeless(node.option) or (node.chosen and node.adoptable and not self.wide):
                continue
            if stop := budget.stop(self.incumbent - node.value):
                return stop
            yield
            self._expand(node)
        while self._heap:
            waiting = heapq.heappop(self._heap)
            gain = self.incumbent - waiting.priority
            if gain <= budget.least_gain and not self.wide:
                return Stop.INSUFFICIENT_EXPECTED_GAIN
            parent, vertex = waiting.parent, waiting.vertex
            if self.is_hopeless(parent.option):
                continue
            found = yield from self.tried(parent.option, {**parent.chosen, vertex.owner: vertex}, budget, gain)
            if isinstance(found, Stop):
                return found
            if self.wide or not found.adoptable:
                self._expand(found)
        return Stop.EXPANSION_CAPACITY if self._overflowed else Stop.QUEUE_EXHAUSTED

    def _expand(self, node: Node) -> None:
        if node in self._expanded:
            return
        self._expanded.add(node)
        if node.chosen and not node.adoptable:
            node.value = self._judged(node)
        guide = self.guide_at(node)
        lack = self.lack(node)
        moves = guide.moves(node.chosen, lack, self.licensed, wide=self.wide)
        for move, rest in priced(moves, lack):
            self._push(node, move, rest)

    def _push(self, node: Node, move: Move, rest: float) -> None:
        if len(self._heap) >= MOST_NODES and not self.wide:
            self._overflowed = True
            return
        self._ordinal += 1
        priority = node.value + move.change + rest
        heapq.heappush(self._heap, _Waiting(priority, self._ordinal, node, move.vertex))
