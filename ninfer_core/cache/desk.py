"""Desk: sets up one planning session from the books and Program, and lets the planner run (context-cache PLAN-7)."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from ninfer_core.cache.books import Books
from ninfer_core.cache.budget import Budget, Clock
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.domain import Domain, Option
from ninfer_core.cache.objective import Objective
from ninfer_core.cache.planner import Choice, Planner
from ninfer_core.cache.value import Contents, Portfolio
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.program import Program


class Desk:
    """Everything that it lays out belongs to one call and one revision."""

    def __init__(self, program: Program, books: Books, cost: CostModel, clock: Clock = time.perf_counter_ns) -> None:
        self._program = program
        self._books = books
        self.cost = cost
        self.clock = clock

    def materialize(self, options: Sequence[Option], budget: Budget, ranking: Sequence[OwnerId] | None) -> Choice:
        """Choose a target for a waiting request."""
        cell_owners = frozenset(entry.owner for entry in self._books.private)
        free = self._books.private.free_cells > 0
        return self._planner(self.portfolio(), cell_owners, free_cell=free).materialize(options, budget, ranking)

    def capture(self, option: Option, budget: Budget, portfolio: Portfolio, spared: Collection[OwnerId]) -> Choice:
        """Choose room for an optional capture.

        Args:
            portfolio: the one that the option's gain was worked out with.
            spared: owners that must not give way for it: those that the request itself extends (EVI-4).
        """
        cell_owners = frozenset(entry.owner for entry in self._books.shared)
        free = self._books.shared.free_cells > 0
        return self._planner(portfolio, cell_owners, free_cell=free, spared=spared).capture(option, budget)

    def portfolio(self) -> Portfolio:
        """What the catalogued owners are worth at this revision."""
        books, program = self._books, self._program

        def contents() -> Contents:
            owners = [
                (entry, program.checkpoints(entry.owner), shared)
                for catalog, shared in ((books.private, False), (books.shared, True))
                for entry in catalog
            ]
            return Contents(owners, tuple(books.demand), books.keys, program.world.replicas)

        return Portfolio(program.geometry, self.cost, books.paths, contents)

    def _planner(
        self,
        portfolio: Portfolio,
        cell_owners: frozenset[OwnerId],
        *,
        free_cell: bool,
        spared: Collection[OwnerId] = (),
    ) -> Planner:
        program = self._program
        eligible = self._books.eligible()
        owners = [owner for owner in eligible if owner not in spared]
        domain = Domain(lambda: program.domain(owners), cell_owners.intersection(owners), free_cell=free_cell)
        objective = Objective(program.immediate, self.cost, portfolio, eligible, domain)
        return Planner(program, objective, domain)
