"""What no budget may take away: a runnable request runs, and a verified source that fits is used (PLAN-3, PLAN-13)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ninfer_core.cache.admission import Admitted, Blocked, Refused
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.contract.statistics import MissReason, SourceKind, SourceOperation
from ninfer_core.program.ledger.geometry import Vector
from tests.support.managed import Managed

LONG = list(range(100_000))
PAGES = -(-len(LONG) // PAGE_SIZE)

NO_BUDGET = CacheLimits(
    private_cells=8,
    shared_cells=0,
    long_anchors=0,
    automatic_anchors=0,
    endpoint_anchors=False,
    planning_targets=0,
    planning_ns=0,
)


def others(managed: Managed, count: int, pages: int) -> None:
    """Conversations that have nothing in common with the long one."""
    for number in range(count):
        first = 200_000 + number * 50_000
        managed.run(range(first, first + pages * PAGE_SIZE - 1))


@pytest.mark.req("PLAN-3", "PLAN-13", "INV-12")
def test_a_long_match_resumes_without_any_budget() -> None:
    managed = Managed(Vector(8, 0, (PAGES + 8,), 0), NO_BUDGET)
    managed.run(LONG)
    again = managed.run([*LONG, 1, 7, 8])
    assert (again.reuse.frontier, again.reuse.source) == (100_000, SourceKind.SESSION_ENDPOINT)
    assert again.reuse.operation is SourceOperation.MOVE
    managed.manager.audit()


@pytest.mark.req("PLAN-3", "PLAN-7", "PLAN-13", "INV-12")
def test_a_long_match_resumes_without_any_budget_after_releasing_others() -> None:
    """The continuation needs 40 pages more, and none is free: two conversations of 30 pages fill the rest."""
    managed = Managed(Vector(8, 0, (PAGES + 60,), 0), NO_BUDGET)
    managed.run(LONG)
    others(managed, 2, 30)
    ask = managed.ask([*LONG, *range(900_000, 900_000 + 39 * PAGE_SIZE)])
    again = managed.admit(ask)
    assert isinstance(again, Admitted)
    assert again.reuse.frontier == 100_000 and again.planning.stop == "target_budget"
    assert again.planning.targets == 2 + 1 + 2 + 1, "identities; both released, and one kept in turn; root maximal"
    assert not list(managed.manager.books.entries()), "both others were released: nobody looked for less"
    managed.complete(ask, again)
    managed.manager.audit()


@pytest.mark.req("PLAN-3", "PLAN-11", "INV-12", "INV-13")
def test_without_budget_a_request_that_matches_nothing_still_starts_over_a_full_cache() -> None:
    managed = Managed(Vector(4, 0, (40,), 0), NO_BUDGET)
    others(managed, 3, 10)
    ask = managed.ask(range(40 * PAGE_SIZE - 1))
    admitted = managed.admit(ask)
    assert isinstance(admitted, Admitted) and admitted.reuse.source is SourceKind.ROOT
    waiting = managed.admit(managed.ask([5, 6, 7]))
    assert isinstance(waiting, Blocked) and "active" in waiting.reason
    never = managed.admit(managed.ask(range(40 * PAGE_SIZE + 1)))
    assert isinstance(never, Refused) and "41 KV pages of 40" in never.reason
    managed.complete(ask, admitted)
    managed.manager.audit()


# --- what a budget may take away is told (STAT-2) ------------------------------------------------------------------
def deeper_needs_room(shallow: int, deep: int, limits: CacheLimits) -> Admitted:
    """A request whose path has two ends: a shallow one that it can take over as it is, and a deep one of another
    session that has to stay, so that its state needs an image that only the shallow one's release frees."""
    managed = Managed(Vector(2, 0, (PAGES,), 0), limits)
    managed.run(range(shallow))
    managed.run(range(deep), session="another", sibling=True)
    assert len(list(managed.manager.books.entries())) == 2
    ask = managed.ask(range(deep + 100))
    admitted = managed.admit(ask)
    assert isinstance(admitted, Admitted)
    managed.complete(ask, admitted)
    managed.manager.audit()
    return admitted


PLENTY = replace(NO_BUDGET, planning_targets=256, planning_ns=10**12)


@pytest.mark.req("STAT-2", "PLAN-7", "PLAN-13")
def test_a_deeper_checkpoint_that_planning_had_no_target_for_is_named_with_the_budget() -> None:
    reuse = deeper_needs_room(100, 5000, NO_BUDGET).reuse
    assert reuse.frontier == 100
    first, last = reuse.misses
    assert (first.start, first.end, first.reason) == (100, 5000, MissReason.BUDGET)
    assert "target_budget" in first.detail
    assert (last.start, last.reason) == (5000, MissReason.DIVERGED)
    assert deeper_needs_room(100, 5000, PLENTY).reuse.frontier == 5000, "with it, it is found"
    in_no_time = replace(PLENTY, planning_ns=0)
    assert deeper_needs_room(100, 5000, in_no_time).reuse.frontier == 5000, "what promises most is not left half done"


@pytest.mark.req("STAT-2", "VAL-6")
def test_a_deeper_checkpoint_that_would_cost_others_more_is_named_with_capacity() -> None:
    reuse = deeper_needs_room(2000, 2100, PLENTY).reuse
    assert reuse.frontier == 2000
    first, _ = reuse.misses
    assert (first.start, first.end, first.reason) == (2000, 2100, MissReason.CAPACITY)
    assert "take more from others" in first.detail
