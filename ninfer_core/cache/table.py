"""The cache table, put together from the books and Program (context-cache STAT-3)."""

from __future__ import annotations

from collections.abc import Iterable

from ninfer_core.cache.books import Books
from ninfer_core.cache.catalog import Catalog, Entry
from ninfer_core.contract.cache_table import CacheTable, OwnerRow
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.program import Program


def cache_table(program: Program, books: Books, running: Iterable[OwnerId]) -> CacheTable:
    """A snapshot of everything that is held, running sequences first."""
    rows = [_running(program, owner) for owner in running]
    rows += [_row(program, books, entry, "private") for entry in books.private]
    rows += [_row(program, books, entry, "shared") for entry in books.shared]
    return CacheTable(tuple(rows), program.axes(), _cells(books.private), _cells(books.shared))


def _running(program: Program, owner: OwnerId) -> OwnerRow:
    exclusive, shared = program.footprint(owner)
    return OwnerRow(owner, "active", program.summaries(owner), exclusive, shared, 0, None, "running", leased=False)


def _row(program: Program, books: Books, entry: Entry, kind: str) -> OwnerRow:
    exclusive, shared = program.footprint(entry.owner)
    retention = entry.prior(books.demand.epoch).label
    if kind == "shared":
        retention = "automatic" if entry.credit_until is None else "credit"
    return OwnerRow(
        owner=entry.owner,
        kind=kind,
        checkpoints=entry.checkpoints,
        exclusive_bytes=exclusive,
        shared_bytes=shared,
        hits=entry.hits,
        age=books.demand.epoch - entry.last_hit,
        retention=retention,
        leased=books.edges.protects(entry.owner),
    )


def _cells(catalog: Catalog) -> tuple[int, int]:
    return catalog.cells - catalog.free_cells, catalog.cells
