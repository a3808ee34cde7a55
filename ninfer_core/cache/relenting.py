"""Relenting: what a target gives up without need is taken back (context-cache PLAN-6, TGT-5)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from ninfer_core.cache.budget import LEAST_GAIN_NS, Budget, Stop
from ninfer_core.cache.domain import Option
from ninfer_core.cache.graph import Vertex
from ninfer_core.cache.guide import Guide
from ninfer_core.cache.lack import Lack
from ninfer_core.cache.move import by_rate
from ninfer_core.cache.node import Chosen, Node
from ninfer_core.cache.search import Search
from ninfer_core.cache.steps import Steps
from ninfer_core.contract.ids import OwnerId

MOST_NEARBY = 64
"""End states of one owner, about, that are looked at for one that covers what is missing."""

MOST_COVERING = 20
"""Of these, about, that are priced: they are not looked for any longer."""

MOST_TOGETHER = 12
"""Owners of a target of which each is weighed beside all others."""

SLIGHT_NS = 4 * LEAST_GAIN_NS
"""A loss for which no other way is looked for: one looks at several targets."""


class Relenting:
    """Of one planning session. It begins with a target that fits and ends with one that does, none of them worse than
    the one before: Program's exact word on each drives the next."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._done: set[tuple[Node, bool]] = set()

    def of(self, node: Node, budget: Budget, *, all_of_it: bool = False) -> Steps[Stop | None]:
        """The largest sacrifice first: it is taken back, or made smaller, if need be beside the eviction of another.

        Args:
            node: an adoptable target.
            all_of_it: also what costs nothing: a wary course begins with that. Otherwise the slightest are not worth a
                look.

        Returns:
            Why it stopped early; None when it came to its end. What was found takes part in the search's comparison.
        """
        while not {(node, True), (node, all_of_it)} & self._done:  # from there it would come to the same
            better = yield from self._once(node, budget, all_of_it)
            if isinstance(better, Stop):
                return better
            self._done.add((node, all_of_it))
            node = better
        return None

    def _once(self, node: Node, budget: Budget, all_of_it: bool) -> Steps[Node | Stop]:
        """Each sacrifice once, the largest first: taken back whole where that fits. The first of which only a part can
        be kept ends it: that may leave room for the others too.

        Returns:
            The target that it led to; or why it stopped early.
        """
        search, option = self._search, node.option
        losses = yield from search.losses(node, most=MOST_TOGETHER)
        left = sorted(node.chosen.values(), key=lambda v: (-losses[v.owner], v.number))
        for number, vertex in enumerate(left, 1):
            # All of them together lose no more than this: of two that stand in for each other one may be back by now.
            loss = min(losses[vertex.owner], node.value - search.identity(option).value)
            if loss <= LEAST_GAIN_NS and not (search.wide or all_of_it):
                break
            found = yield from search.tried(option, _without(node, vertex.owner), budget, loss)
            if isinstance(found, Stop):
                return found
            if found.adoptable and found.value <= node.value:
                node = found
            elif loss > SLIGHT_NS and not found.adoptable:
                better = yield from self._otherwise(node, found, vertex.owner, loss, budget)
                if isinstance(better, Stop):
                    return better
                if better is not node:
                    behind = [(losses[other.owner], other) for other in left[number:]]
                    return (yield from self._instead(node, better, behind, budget))
        self._done.add((node, all_of_it))  # whatever else it gives up was tried
        return node

    def _instead(
        self, node: Node, part: Node, others: Sequence[tuple[float, Vertex]], budget: Budget
    ) -> Steps[Node | Stop]:
        """A part of one can be kept. Rather another whole, where that gains more.

        Args:
            node: the target from which that was found.
            part: the better one that keeps it in part.
            others: what else the target gives up, with what each loses, the most first.
        """
        gained = node.value - part.value
        for loss, vertex in others:
            if loss - gained <= LEAST_GAIN_NS and not self._search.wide:
                break  # nor does any of those behind it gain more
            found = yield from self._search.tried(node.option, _without(node, vertex.owner), budget, loss - gained)
            if isinstance(found, Stop):
                return found
            if found.adoptable and found.value < part.value:
                return found
        return part

    def _otherwise(self, node: Node, without: Node, owner: OwnerId, loss: float, budget: Budget) -> Steps[Node | Stop]:
        """Where an owner cannot be kept whole: as much of it as there is room for, or as another makes.

        Args:
            node: an adoptable target that degrades it.
            without: the same, with the owner as it is.
            loss: of what becomes of it, in nanoseconds, beside all others that the target changes.

        Returns:
            The best that was found, the node itself at least; or why it stopped early.
        """
        search, option, floor = self._search, node.option, node.value - loss
        guide, lack, top = search.guide_at(without), search.lack(without), search.graph.identity(owner)
        ways = [self._others(guide, lack, top, without, loss)]
        if guide.may_cover(top, lack):
            ways = [self._stepped_down(guide, lack, top), *ways, self._nearby(guide, lack, top)]
        best = node
        for way in ways:
            if stop := budget.stop(loss):
                return stop  # to list and to price them takes time, too
            promising = yield from self._by_loss(option, (yield from way))
            for more, changed in promising:
                gain, chosen = search.incumbent - (floor + more), {**without.chosen, **changed}
                if gain <= budget.least_gain:
                    break  # the others promise no more
                if chosen == node.chosen:
                    continue
                found = yield from search.tried(option, chosen, budget, gain)
                if isinstance(found, Stop):
                    return found
                if found.adoptable and found.value < best.value:
                    best = found
                    if found.value - (floor + more) <= LEAST_GAIN_NS:
                        return best  # as good as it was predicted
        return best

    def _by_loss(self, option: Option, ways: Sequence[Chosen]) -> Steps[list[tuple[float, Chosen]]]:
        """Each with what it loses, the least first. Predicted one by one: together that may take longer than a
        piece."""
        found = []
        for number, changed in enumerate(ways):
            yield
            found.append((sum([self._search.loss(option, vertex) for vertex in changed.values()]), number, changed))
        return [(loss, changed) for loss, _, changed in sorted(found)]

    def _stepped_down(self, guide: Guide, lack: Lack, top: Vertex) -> Steps[Sequence[Chosen]]:
        """The end state of one owner to which the cheapest steps lead, if it seems to cover what is missing."""
        at = top
        while lack:
            yield
            moves = guide.moves_of(at, lack, None)
            helping = [move for move in moves if move.share > 0 and not move.vertex.evicted]
            if not helping:
                return ()
            best = min(helping, key=by_rate)
            at, lack = best.vertex, lack.without(best.relief)
        return ({top.owner: at},)

    def _others(self, guide: Guide, lack: Lack, top: Vertex, without: Node, most: float) -> Steps[Sequence[Chosen]]:
        """This owner's eviction, where only a part of it was given up; and a part of it with the eviction of another.

        Another's alone only where few share the cache: what just covers this lack leaves the next request short. In a
        replay of many branching conversations it made 15 % more be computed again.
        """
        owner, licensed = top.owner, self._search.licensed
        found: list[Chosen] = []
        if licensed is None or owner in licensed:
            found.append({owner: self._search.graph.evicted(owner)})
        for vertex, rest in guide.instead({**without.chosen, owner: top}, lack, licensed, most):
            yield
            if not rest and guide.everyone:
                found.append({vertex.owner: vertex})
            elif rest and guide.may_cover(top, rest):
                found += [{vertex.owner: vertex, **part} for part in (yield from self._stepped_down(guide, rest, top))]
        return found

    def _nearby(self, guide: Guide, lack: Lack, top: Vertex) -> Steps[Sequence[Chosen]]:
        """One owner's end states that seem to cover what is missing. Those that cover most of it lead to the next; what
        lies below one that covers it loses more, as a rule, and waits."""
        known, waiting, found = {top}, [(0.0, top.number, top)], list[Chosen]()
        while waiting and len(known) < MOST_NEARBY and len(found) < MOST_COVERING:
            yield
            _, _, vertex = heapq.heappop(waiting)
            for further in self._search.graph.steps(vertex):
                if further.evicted or further in known:
                    continue
                known.add(further)
                given = guide.relief(top, further)
                left = lack.without(given)
                if not left:
                    found.append({top.owner: further})
                elif not guide.may_cover(further, left):
                    continue
                heapq.heappush(waiting, (-lack.share(given) if left else 0.0, further.number, further))
        return found


def _without(node: Node, owner: OwnerId) -> Chosen:
    """The target with this owner as it is."""
    return {other: vertex for other, vertex in node.chosen.items() if other != owner}
