"""Constructions: targets that fit, made step by step from what Program says is missing (PLAN-3, PLAN-6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from enum import Enum

from ninfer_core.cache.budget import LEAST_GAIN_NS, Budget, Stop
from ninfer_core.cache.domain import Option
from ninfer_core.cache.node import Chosen, Node
from ninfer_core.cache.search import Search
from ninfer_core.contract.ids import OwnerId

MOST_REPAIRS = 16
"""Targets that one mandatory construction may assess."""

SLIGHT_NS = 4 * LEAST_GAIN_NS
"""A loss for which no other construction is tried: one looks at several targets."""


class Course(Enum):
    """How a construction goes about it."""

    EXCHANGE = "exchange"
    """What leaves Device goes to Host, where what is worth least makes room for it."""
    STEEP = "steep"
    """The steps that cost least for what they relieve."""
    GENTLE = "gentle"
    """The same, but nobody is evicted whole while another step helps."""


class Constructions:
    """Of one planning session, each course once for each option. What comes of them takes part in the comparison of the
    search."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._dived: set[tuple[int, Course]] = set()

    @property
    def courses(self) -> tuple[Course, ...]:
        """Those of use here, the most promising first."""
        return tuple(Course) if self._search.has_host else (Course.STEEP, Course.GENTLE)

    # --- whatever the budget ----------------------------------------------------------------------------------------
    def construct(self, identity: Node) -> bool:
        """Find a target of the option that fits, if there is one: with as little lost as a few exact answers allow, so
        that a spent budget does not empty the cache; else by releasing everything (PLAN-3, PLAN-13)."""
        option = identity.option
        for course in self.courses[:-1]:
            if self._search.incumbent - identity.value <= SLIGHT_NS:
                break
            self.dive(identity, Budget(MOST_REPAIRS, None), course)
        return bool(self._search.fits(option)) or self.maximal(option)

    def maximal(self, option: Option) -> bool:
        """Whether the option fits with every eligible owner released; that target then takes part (PLAN-3).

        Where nothing better is known, what is worth most is taken back at once, so that a spent budget does not empty
        the cache: by halves, in a number of steps that grows with the logarithm of the number of owners.
        """
        if self._search.is_hopeless(option):
            return False
        node = self._released(option, list(self._search.victims(option)))
        if not node.adoptable:
            self._search.give_up(option)
            return False
        if self._search.best is node:
            self._take_back(option)
        return True

    def _take_back(self, option: Option) -> None:
        order = self._search.guide(option).cheapest_first(self._search.lack(self._search.identity(option)))
        few, enough = 1, len(order)
        while few < enough:
            middle = (few + enough) // 2
            if self._released(option, order[:middle]).adoptable:
                enough = middle
            else:
                few = middle + 1
        if self._search.has_host:
            self._demote_instead(option, order[:enough])

    def _demote_instead(self, option: Option, released: Sequence[OwnerId]) -> None:
        """Of the owners that are released as many as the Host tier can carry are moved there, by halves too: those
        that are worth most."""
        limit = math.inf if self._search.best is None else self._search.best.value
        carried, most = 0, len(released)
        while carried < most:
            middle = (carried + most + 1) // 2
            kept = len(released) - middle
            chosen = {owner: self._search.graph.evicted(owner) for owner in released[:kept]}
            chosen |= {owner: self._search.graph.on_host(owner) for owner in released[kept:]}
            if self._search.assess(option, chosen, limit=limit).adoptable:
                carried = middle
            else:
                most = middle - 1

    def _released(self, option: Option, owners: Sequence[OwnerId]) -> Node:
        """The option with these owners released and nobody else degraded."""
        limit = math.inf if self._search.best is None else self._search.best.value
        return self._search.assess(option, {owner: self._search.graph.evicted(owner) for owner in owners}, limit=limit)

    # --- within a budget --------------------------------------------------------------------------------------------
    def dive(self, start: Node, budget: Budget, course: Course = Course.STEEP, *, patient: bool = False) -> Stop | None:
        """From an infeasible target, steps until one is adoptable; then every sacrifice that turns out not to be needed
        is taken back. Program's exact word on each complete target drives the next (PLAN-6).

        Args:
            patient: no clock until something fits: half a construction is worth nothing.

        Returns:
            Why it stopped early; None when it came to its end.
        """
        node = start
        if (start.option.ordinal, course) in self._dived:
            return None
        self._dived.add((start.option.ordinal, course))
        exchange = self._search.guide(start.option).exchange() if course is Course.EXCHANGE else None
        with budget.unhurried() if patient else nullcontext():
            while not node.adoptable:
                if stop := budget.stop(math.inf):
                    return stop
                if exchange is not None:
                    chosen: Chosen | None = exchange.further(self._search.lack(node), self._search.licensed)
                else:
                    chosen = self._constructed(node, gentle=course is Course.GENTLE)
                if chosen is None:
                    self._note_hopeless(node)
                    return None
                if course is Course.GENTLE and self._search.has_seen(node.option, chosen):
                    return None
                node = self._search.assess(node.option, chosen)
                budget.spent(len(chosen))
        return self._relented(node, budget)

    def _note_hopeless(self, node: Node) -> None:
        """An option that does not even fit with every eligible owner released is not looked at any more."""
        released = sum(vertex.evicted for vertex in node.chosen.values())
        if not node.adoptable and released == len(list(self._search.victims(node.option))):
            self._search.give_up(node.option)

    def _constructed(self, node: Node, *, gentle: bool) -> Chosen | None:
        """Steps from a target until what is missing seems to be covered; None when there is none left."""
        guide, chosen = self._search.guide_at(node), dict(node.chosen)
        lack = self._search.lack(node)
        moves = guide.moves(chosen, lack, self._search.licensed, wide=self._search.wide)
        moved = False
        while moves and (lack or not moved):
            # What frees nothing by itself comes last (TGT-5).
            helping = [move for move in moves if move.share > 0]
            milder = [move for move in helping if not move.vertex.evicted] if gentle else []
            if moved and not helping:
                break  # nothing more is known to help: what is short of now, Program says
            best = min(milder or helping or moves, key=lambda move: (move.ratio, move.change, move.vertex.number))
            owner = best.vertex.owner
            chosen[owner] = best.vertex
            lack, moved = lack.without(best.relief), True
            moves = [move for move in moves if move.vertex.owner != owner]
            for move in moves:
                move.share = lack.share(move.relief)
            moves += guide.moves_of(best.vertex, lack, self._search.licensed)
        return chosen if moved else None

    def _relented(self, node: Node, budget: Budget) -> Stop | None:
        """Take back what is not needed, the largest sacrifice first; the slightest are not worth a look."""
        dearest = sorted(node.chosen.values(), key=lambda v: (-self._search.loss(node.option, v), v.number))
        for vertex in dearest if len(dearest) > 1 else ():
            fewer = {owner: other for owner, other in node.chosen.items() if owner != vertex.owner}
            if self._search.has_seen(node.option, fewer):
                continue
            loss = self._search.loss(node.option, vertex)
            if loss <= LEAST_GAIN_NS and not self._search.wide:
                break
            if stop := budget.stop(loss):
                return stop
            tried = self._search.assess(node.option, fewer)
            budget.spent(len(fewer))
            if tried.adoptable and tried.value <= node.value:
                node = tried
        return None
