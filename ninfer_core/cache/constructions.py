"""Constructions: targets that fit, made step by step from what Program says is missing (PLAN-3, PLAN-6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from enum import Enum

from ninfer_core.cache.budget import Budget, Stop
from ninfer_core.cache.domain import Option
from ninfer_core.cache.lack import Lack
from ninfer_core.cache.move import Move, by_rate
from ninfer_core.cache.node import Chosen, Node
from ninfer_core.cache.relenting import SLIGHT_NS, Relenting
from ninfer_core.cache.search import Search
from ninfer_core.cache.steps import Steps
from ninfer_core.contract.ids import OwnerId

MOST_REPAIRS = 16
"""Targets that one mandatory construction may assess on each course."""


class Course(Enum):
    """How a construction goes about it."""

    EXCHANGE = "exchange"
    """What leaves Device goes to Host, where what is worth least makes room for it."""
    STEEP = "steep"
    """The steps that cost least for what they relieve."""
    GENTLE = "gentle"
    """The same, but nobody is evicted whole while another step helps."""
    WARY = "wary"
    """As steep, but after each step all others are looked at anew: it may have left what they hold to them alone. So
    what costs nothing goes first, where others hold the same."""


class Constructions:
    """Of one planning session, each course once for each option. What comes of them takes part in the comparison of the
    search."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._relenting = Relenting(search)
        self._dived: set[tuple[int, Course]] = set()
        self._entangled: set[int] = set()

    @property
    def courses(self) -> tuple[Course, ...]:
        """Those of use here, the most promising first."""
        return tuple(Course) if self._search.has_host else (Course.STEEP, Course.GENTLE, Course.WARY)

    # --- whatever the budget ----------------------------------------------------------------------------------------
    def construct(self, identity: Node) -> Steps[bool]:
        """Find a target of the option that fits, if there is one: with as little lost as a few exact answers allow, so
        that a spent budget does not empty the cache; else by releasing everything (PLAN-3, PLAN-13)."""
        option = identity.option
        for course in self.courses:
            if course is Course.GENTLE:
                continue  # it takes most targets: that is for the budget
            if self._search.incumbent - identity.value <= SLIGHT_NS:
                break
            yield from self.dive(identity, Budget(MOST_REPAIRS, None), course)
        return bool(self._search.fits(option)) or (yield from self.maximal(option))

    def maximal(self, option: Option) -> Steps[bool]:
        """Whether the option fits with every eligible owner released; that target then takes part (PLAN-3).

        Where nothing better is known, what is worth most is taken back at once, so that a spent budget does not empty
        the cache: by halves, in a number of steps that grows with the logarithm of the number of owners.
        """
        if self._search.is_hopeless(option):
            return False
        yield
        node = self._released(option, list(self._search.victims(option)))
        if not node.adoptable:
            self._search.give_up(option)
            return False
        if self._search.best is node:
            yield from self._take_back(option)
            yield from self._relenting.of(self._search.best, Budget(MOST_REPAIRS, None))
        return True

    def _take_back(self, option: Option) -> Steps[None]:
        order = list(self._search.guide(option).cheapest_first(self._search.lack(self._search.identity(option))))
        few, enough = 1, len(order)
        while few < enough:
            yield
            middle = (few + enough) // 2
            if self._released(option, order[:middle]).adoptable:
                enough = middle
            else:
                few = middle + 1
        if self._search.has_host:
            yield from self._demote_instead(option, order[:enough])

    def _demote_instead(self, option: Option, released: Sequence[OwnerId]) -> Steps[None]:
        """Of the owners that are released as many as the Host tier can carry are moved there, by halves too: those
        that are worth most."""
        limit = math.inf if self._search.best is None else self._search.best.value
        carried, most = 0, len(released)
        while carried < most:
            yield
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
    def dive(
        self, start: Node, budget: Budget, course: Course = Course.STEEP, *, patient: bool = False
    ) -> Steps[Stop | None]:
        """From an infeasible target, steps until one is adoptable; then what it gives up without need is taken back
        (Relenting). Program's exact word on each complete target drives the next (PLAN-6).

        Args:
            patient: no clock until something fits: half a construction is worth nothing.

        Returns:
            Why it stopped early; None when it came to its end.
        """
        option, node = start.option, start
        if self.has_dived(start, course):
            return None
        self._dived.add((option.ordinal, course))
        if course is Course.WARY and option.ordinal not in self._entangled:
            return None  # nobody that was looked at holds anything together with others
        yield
        guide, exchange = self._search.guide(option), None
        if course is Course.EXCHANGE:
            yield
            exchange = guide.exchange()
        with budget.unhurried() if patient else nullcontext():
            while not node.adoptable:
                yield
                if exchange is not None:
                    lack, licensed = self._search.lack(node), self._search.licensed
                    chosen: Chosen | None = yield from exchange.further(lack, licensed)
                else:
                    chosen = yield from self._constructed(node, course)
                if chosen is None:
                    self._note_hopeless(node)
                    return None
                found = yield from self._search.tried(option, chosen, budget, math.inf)
                if isinstance(found, Stop):
                    return found
                node = found
        return (yield from self._relenting.of(node, budget, all_of_it=course is Course.WARY))

    def has_dived(self, start: Node, course: Course) -> bool:
        """Whether this course was taken for its option: it would come to the same."""
        return (start.option.ordinal, course) in self._dived

    def _note_hopeless(self, node: Node) -> None:
        """An option that does not even fit with every eligible owner released is not looked at any more."""
        released = sum(vertex.evicted for vertex in node.chosen.values())
        if not node.adoptable and released == len(list(self._search.victims(node.option))):
            self._search.give_up(node.option)

    def _constructed(self, node: Node, course: Course) -> Steps[Chosen | None]:
        """Steps from a target until what is missing seems to be covered; None when there is none left."""
        search, option, chosen = self._search, node.option, dict(node.chosen)
        guide, lack = search.guide_at(node), search.lack(node)
        moves = guide.moves(chosen, lack, search.licensed, wide=search.wide, joint=course is Course.WARY)
        if any(guide.is_entangled(move.before) for move in moves):
            self._entangled.add(option.ordinal)
        moved = False
        while moves and (lack or not moved):
            yield
            yield from _priced(moves)
            best = _best(moves, lack, course)
            if best is None:
                if moved:
                    break  # nothing more is known to help: what is short of now, Program says
                best = min(moves, key=by_rate)
            owner = best.vertex.owner
            chosen[owner] = best.vertex
            lack, moved = lack.without(best.relief), True
            if course is Course.WARY:
                yield
                guide.look(search.sole(option, chosen), chosen)
                yield
                moves = guide.moves(chosen, lack, search.licensed, wide=search.wide, joint=True)
                continue
            moves = [move for move in moves if move.vertex.owner != owner]
            for move in moves:
                move.share = lack.share(move.relief)
            moves += guide.moves_of(best.vertex, lack, search.licensed)
        return chosen if moved else None


def _priced(moves: Sequence[Move]) -> Steps[None]:
    """Their losses are predicted one by one: together that may take longer than a piece."""
    for move in moves:
        if move.share > 0 and not move.is_priced:
            yield
            _ = move.change


def _best(moves: Sequence[Move], lack: Lack, course: Course) -> Move | None:
    """The step to take, or None: what frees nothing by itself comes last (TGT-5). For a wary course it comes first
    where it costs nothing: it may leave to others what they hold together."""
    helping = [move for move in moves if move.share > 0]
    if course is Course.WARY:
        free = [move for move in moves if move.share <= 0 < lack.share(move.most) and move.change <= 0]
        helping = free or helping
    milder = [move for move in helping if not move.vertex.evicted] if course is Course.GENTLE else []
    return min(milder or helping, key=by_rate, default=None)
