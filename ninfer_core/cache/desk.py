"""Desk: sets up one planning session from the books and Program, and lets the planner run (context-cache PLAN-7)."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from ninfer_core.cache.books import Books
from ninfer_core.cache.budget import Budget, Clock
from ninfer_core.cache.catalog import Catalog
from ninfer_core.cache.contents import Contents, Standing
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.domain import Domain, Eligible, Option
from ninfer_core.cache.objective import Objective
from ninfer_core.cache.planner import Choice, Planner
from ninfer_core.cache.steps import Steps
from ninfer_core.cache.value import Portfolio
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.program import Program


class Desk:
    """Everything that it lays out belongs to one call and one revision, but for quick measures, which order exploration
    only."""

    def __init__(self, program: Program, books: Books, cost: CostModel, clock: Clock = time.perf_counter_ns) -> None:
        self._program = program
        self._books = books
        self.cost = cost
        self.clock = clock
        self._standing: dict[OwnerId, Standing] = {}

    def materialize(
        self, options: Sequence[Option], budget: Budget, ranking: Sequence[OwnerId] | None
    ) -> Steps[Choice]:
        """Choose a target for a waiting request."""
        return self._planner(self.portfolio(), self._books.private).materialize(options, budget, ranking)

    def capture(
        self, option: Option, budget: Budget, portfolio: Portfolio, spared: Collection[OwnerId]
    ) -> Steps[Choice]:
        """Choose room for an optional capture.

        Args:
            portfolio: of the present revision.
            spared: owners that must not give way for it: those that the request itself extends (EVI-4).
        """
        return self._planner(portfolio, self._books.shared, spared).capture(option, budget)

    def portfolio(self) -> Portfolio:
        """What the catalogued owners are worth at this revision."""
        books, program = self._books, self._program
        if len(self._standing) > 2 * (books.private.cells + books.shared.cells):
            self._standing.clear()  # most are of owners that are gone
        held, demands, now = program.checkpoints, books.demand, program.world.replicas
        contents = Contents(books.get, held, books.shelf, demands, demands.epoch, now, self._standing)
        return Portfolio(program.geometry, self.cost, books.paths, contents)

    def _planner(self, portfolio: Portfolio, catalog: Catalog, spared: Collection[OwnerId] = ()) -> Planner:
        """For a publication to come into the catalog."""
        program = self._program

        def eligible() -> Eligible:
            entries = self._books.eligible(spared)
            cell_owners = frozenset([entry.owner for entry in catalog if entry.owner in entries])
            return Eligible(entries, program.domain(entries), cell_owners)

        domain = Domain(eligible, free_cell=catalog.free_cells > 0)
        return Planner(program, Objective(program.immediate, self.cost, portfolio, domain), domain)
