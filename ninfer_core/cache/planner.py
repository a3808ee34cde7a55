"""Planner: from candidates to one complete target (context-cache PLAN). What fits never depends on cost or budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ninfer_core.cache.budget import Budget, Stop
from ninfer_core.cache.domain import Domain, Option
from ninfer_core.cache.ladder import climb
from ninfer_core.cache.objective import Objective
from ninfer_core.cache.search import Node, Search
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.plans import Readiness
from ninfer_core.program.program import Program


@dataclass(frozen=True, slots=True)
class Choice:
    """
    Attributes:
        node: the chosen target, or None when none is adoptable now.
        readiness: of the chosen target, or why there is none (PLAN-11).
        reason: for people, when there is none.
        passed_over: options deeper than the chosen one.
    """

    node: Node | None
    readiness: Readiness
    reason: str
    stop: Stop
    targets: int
    passed_over: tuple[Option, ...] = ()


class Planner:
    """One planning session per call: nothing is kept between them (PLAN-7)."""

    def __init__(self, program: Program, objective: Objective, domain: Domain, *, wide: bool = False) -> None:
        """
        Args:
            wide: search exhaustively, for a proof on small problems.
        """
        self._domain = domain
        self._search = Search(program, objective, domain, wide=wide)
        self._wide = wide

    def materialize(
        self, options: Sequence[Option], budget: Budget, ranking: Sequence[OwnerId] | None = None
    ) -> Choice:
        """Choose where a request starts from.

        Args:
            options: deepest first, root last.
            ranking: owners by recency, oldest first, when only the least recent may be evicted (PLAN-5).
        """
        search = self._search
        identities = [search.identity(option) for option in options]
        root = identities[-1]
        short = [node for node in identities if not node.adoptable]
        if root.readiness is Readiness.PERMANENTLY_INFEASIBLE:
            return Choice(None, root.readiness, root.reason, Stop.NO_PRESSURE, search.assessed)
        if not (short or self._wide) or not self._domain.outcomes:
            return self._chosen(identities, Stop.NO_PRESSURE)
        sourced = any(node.adoptable for node in identities[:-1])
        licensed: frozenset[OwnerId] | None = None
        if ranking is not None:
            licensed = frozenset() if search.best is not None else climb(search, options, ranking)
            if licensed is not None:
                search.restrict(licensed)
        budget.resume()
        stop = self._optional(identities if self._wide else short, budget)
        if licensed is None:  # otherwise something fits already, and PLAN-5 permits no more than its rung
            self._mandatory(identities, sourced=sourced)
        return self._chosen(identities, stop)

    def capture(self, option: Option, budget: Budget) -> Choice:
        """Room for an optional capture: a target with a strictly positive net gain, else none (VAL-7, PLAN-4)."""
        search = self._search
        identity = search.identity(option)
        stop = Stop.NO_PRESSURE
        if (self._wide or not identity.adoptable) and self._domain.outcomes:
            stop = self._optional([identity], budget)
        best = search.best
        if best is None or best.value >= 0:
            why = identity.reason if best is None else "it would cost more than it may save"
            return Choice(None, identity.readiness, why, stop, search.assessed)
        return Choice(best, best.readiness, "", stop, search.assessed)

    def _mandatory(self, identities: Sequence[Node], *, sourced: bool) -> None:
        """Outside every budget: root maximal, and the deepest candidate that fits with everything else released, so
        that neither a runnable request nor a verified source is ever lost to a budget (PLAN-3, PLAN-13).

        Args:
            sourced: a candidate other than root fits as it is.
        """
        search, root = self._search, identities[-1]
        for node in identities[:-1] if not sourced else ():
            if search.maximal(node.option):
                break
        # Whatever is released, root takes at least what its identity takes: above the incumbent it cannot win.
        if not root.adoptable and (search.best is None or root.value < search.best.value):
            search.maximal(root.option)

    def _optional(self, short: Sequence[Node], budget: Budget) -> Stop:
        """Dive for every candidate that could still win, then look around from what they lack."""
        search = self._search
        for gentle in (False, True):
            for node in sorted(short, key=lambda node: (node.value, node.option.ordinal)):
                best = search.best
                # What it does at least, with all losses forgotten, cannot get below the incumbent: no gain to dive for.
                if node.adoptable or (best is not None and node.value >= best.value and not self._wide):
                    continue
                stop = search.dive(node, budget, gentle=gentle)
                if stop is not None:
                    return stop
        return search.explore(short, budget)

    def _chosen(self, identities: Sequence[Node], stop: Stop) -> Choice:
        search = self._search
        if search.best is None:
            root = identities[-1]
            return Choice(None, root.readiness, root.reason, stop, search.assessed)
        best = search.best
        deeper = tuple(node.option for node in identities if node.option.ordinal < best.option.ordinal)
        return Choice(best, best.readiness, "", stop, search.assessed, deeper)
