"""Planner: from candidates to one complete target (context-cache PLAN). What fits never depends on cost or budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from ninfer_core.cache.budget import Budget, Stop
from ninfer_core.cache.constructions import Constructions
from ninfer_core.cache.domain import Domain, Option
from ninfer_core.cache.inheriting import Inheriting
from ninfer_core.cache.ladder import climb
from ninfer_core.cache.node import Node
from ninfer_core.cache.objective import Objective
from ninfer_core.cache.search import Search
from ninfer_core.cache.steps import Steps
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.plans import Readiness
from ninfer_core.program.program import Program


class Choice(Struct, frozen=True):
    """
    Attributes:
        node: the chosen target, or None when none is adoptable now.
        readiness: of the chosen target, or why there is none (PLAN-11).
        reason: for people, when there is none.
        passed_over: options deeper than the chosen one, the deepest first, with whether they fit somehow; None when
            planning ended before that came out.
    """

    node: Node | None
    readiness: Readiness
    reason: str
    stop: Stop
    targets: int
    passed_over: tuple[tuple[Option, bool | None], ...] = ()


class Planner:
    """One planning session per call: no target, cursor or price is kept between them (PLAN-7). It goes in steps, all at
    one resource revision."""

    def __init__(self, program: Program, objective: Objective, domain: Domain) -> None:
        self._domain = domain
        self._search = Search(program, objective, domain)
        self._constructions = Constructions(self._search)
        self._inheriting = Inheriting(self._search)

    def materialize(
        self, options: Sequence[Option], budget: Budget, ranking: Sequence[OwnerId] | None = None
    ) -> Steps[Choice]:
        """Choose where a request starts from.

        Args:
            options: deepest first, root last.
            ranking: owners by recency, oldest first, when only the least recent may be evicted (PLAN-5).
        """
        search = self._search
        search.wide = budget.is_unlimited
        identities: list[Node] = []
        with budget.mandatory():
            for number, option in enumerate(options):
                if number:  # one identity is a piece; none of them is left out (PLAN-2)
                    yield
                identities += search.identities(option)
        root = identities[-1]
        short = [node for node in identities if not node.adoptable]
        if root.readiness is Readiness.PERMANENTLY_INFEASIBLE:
            return Choice(None, root.readiness, root.reason, Stop.NO_PRESSURE, search.assessed)
        # What fits may still use pressure (PLAN-2). Asked before the domain is read: most admissions never read it.
        copying = [node for node in identities if self._inheriting.may_help(node)]
        if not (short or copying or search.wide) or not self._domain.outcomes:
            return self._chosen(options, root, Stop.NO_PRESSURE)
        yield
        with budget.mandatory():
            licensed: frozenset[OwnerId] | None = None
            if ranking is not None:
                licensed = frozenset()
                if search.best is None:
                    licensed = yield from climb(search, [node.option for node in identities], ranking)
                if licensed is not None:
                    search.restrict(licensed)
            if licensed is None:  # otherwise something fits already, and PLAN-5 permits no more than its rung
                yield from self._mandatory(identities[:-1], root)
        stop = yield from self._optional(identities if search.wide else short, budget, copying)
        return self._chosen(options, root, stop)

    def capture(self, option: Option, budget: Budget) -> Steps[Choice]:
        """Room for an optional capture: a target with a strictly positive net gain, else none (VAL-7, PLAN-4)."""
        search = self._search
        search.wide = budget.is_unlimited
        (identity,) = search.identities(option)
        search.beat(0.0)
        stop = Stop.NO_PRESSURE
        if (search.wide or not identity.adoptable) and self._domain.outcomes:
            stop = yield from self._optional([identity], budget)
        best = search.best
        if best is None or best.value >= 0:
            why = "it would cost more than it may save"
            if best is None:
                why = identity.reason or "no place of the catalog was found for it"
            return Choice(None, identity.readiness, why, stop, search.assessed)
        return Choice(best, best.readiness, "", stop, search.assessed)

    def _mandatory(self, sources: Sequence[Node], root: Node) -> Steps[None]:
        """Outside every budget, where no identity is adoptable: the deepest source that can be made to fit, and root
        with everything else released, so that neither a verified source nor a runnable request is ever lost to a budget
        (PLAN-3, PLAN-13).
        """
        search = self._search
        if any(node.adoptable for node in sources):
            return
        for node in sources:
            if (yield from self._constructions.construct(node)):
                break
        if not root.adoptable and (search.best is not None or not (yield from self._constructions.construct(root))):
            yield from self._constructions.maximal(root.option)

    def _optional(self, short: Sequence[Node], budget: Budget, copying: Sequence[Node] = ()) -> Steps[Stop]:
        """Dive for every candidate that could still win, then look around from what they lack. The first, for
        the one that promises most, is not left half done.

        Args:
            short: what does not fit as it is.
            copying: what would be better without the copies that others' checkpoints make it take.
        """
        search, first = self._search, True
        for course in self._constructions.courses:
            for node in sorted(short, key=lambda node: (node.value, node.option.ordinal)):
                # With all losses forgotten it is no better than what is known, or than another one that is served with
                # the same room: nothing to dive for. `explore` still looks at all of them.
                hopeless = search.incumbent - node.value <= budget.least_gain
                if node.adoptable or (not search.wide and (hopeless or search.is_dominated(node, short))):
                    continue
                if self._constructions.has_dived(node, course):
                    continue  # and is not what patience is for
                stop = yield from self._constructions.dive(node, budget, course, patient=first)
                first = False
                if stop is not None and budget.stop(math.inf) is not None:
                    return stop  # otherwise only the last promise was too small for the time that is left
        seeds = list(short)
        for node in copying:
            found = yield from self._inheriting.of(node, budget)
            if isinstance(found, Node):
                seeds.append(found)
            elif found is not None and budget.stop(math.inf) is not None:
                return found
        return (yield from search.explore(seeds, budget))

    def _chosen(self, options: Sequence[Option], root: Node, stop: Stop) -> Choice:
        search = self._search
        if search.best is None:
            return Choice(None, root.readiness, root.reason, stop, search.assessed)
        best = search.best
        deeper = [option for option in options if option.reused > best.option.reused]
        passed_over = tuple((option, search.fits(option)) for option in deeper)
        return Choice(best, best.readiness, "", stop, search.assessed, passed_over)
