"""Planning in pieces: how far a piece goes, whose time counts, and what is left of one that nobody wants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ninfer_core.cache.budget import Budget, Stop
from ninfer_core.cache.deliberation import Deliberation
from ninfer_core.cache.steps import Abandoned, Steps, whole


class FakeClock:
    """Time passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def passes(self, ns: int) -> None:
        self.now += ns


class Work:
    """So many steps, each of which takes so long; the end is worth 7.

    Attributes:
        did: steps that were carried out.
        tidied: how it was left.
    """

    def __init__(self, clock: FakeClock, steps: int = 5, takes: int = 10, fails_at: int | None = None) -> None:
        self._clock, self._steps, self._takes, self._fails_at = clock, steps, takes, fails_at
        self.did = 0
        self.tidied = ""

    def go(self) -> Steps[int]:
        try:
            for _ in range(self._steps):
                self._clock.passes(self._takes)
                self.did += 1
                if self.did == self._fails_at:
                    raise MemoryError("no room")
                yield
        except Abandoned:
            self.tidied = "abandoned"
            raise
        self.tidied = "ended"
        return 7


def both(**work: int) -> tuple[FakeClock, Work, Deliberation[int]]:
    clock = FakeClock()
    steps = Work(clock, **work)
    return clock, steps, Deliberation(steps.go(), clock)


# --- how far a piece goes ----------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-8")
@pytest.mark.parametrize("most_ns", [0, -1_000_000, 1])
def test_a_piece_goes_one_step_however_little_time_there_is(most_ns: int) -> None:
    _, work, deliberation = both(steps=3)
    pieces = [(deliberation.go_on(most_ns), work.did) for _ in range(4)]
    assert pieces == [(False, 1), (False, 2), (False, 3), (True, 3)] and deliberation.result == 7


@pytest.mark.req("PLAN-8", "TXN-7")
def test_a_piece_ends_where_there_is_nothing_to_do_but_wait() -> None:
    def copying() -> Steps[int]:
        yield
        yield True
        yield
        return 7

    deliberation = Deliberation(copying(), FakeClock())
    assert not deliberation.go_on(None) and deliberation.waits, "even with all the time there is"
    assert deliberation.go_on(None) and deliberation.result == 7 and not deliberation.waits


@pytest.mark.req("PLAN-8")
def test_a_piece_begins_no_step_once_its_time_has_gone() -> None:
    _, work, deliberation = both(steps=9, takes=10)
    assert not deliberation.go_on(30) and work.did == 3, "the third ends exactly when the time has gone"
    assert not deliberation.go_on(31) and work.did == 7, "a step that was begun is carried out"
    assert not deliberation.done
    assert deliberation.go_on(1_000) and (work.did, work.tidied) == (9, "ended")
    assert deliberation.done and deliberation.result == 7


@pytest.mark.req("PLAN-8")
def test_without_a_limit_a_piece_goes_to_the_end() -> None:
    _, work, deliberation = both(steps=100, takes=10**12)
    assert deliberation.go_on(None) and work.did == 100 and deliberation.result == 7


def test_steps_that_need_no_pause_end_in_their_first_piece() -> None:
    _, work, deliberation = both(steps=0)
    assert deliberation.go_on(0) and deliberation.result == 7 and work.did == 0


def test_the_whole_of_some_steps_at_once() -> None:
    work = Work(FakeClock(), steps=4)
    assert whole(work.go()) == 7 and work.did == 4
    assert whole(Work(FakeClock(), steps=0).go()) == 7
    with pytest.raises(MemoryError, match="no room"):
        whole(Work(FakeClock(), fails_at=2).go())


# --- whose time counts -------------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-8", "STAT-1")
def test_what_ran_between_two_pieces_is_no_time_of_its_own() -> None:
    clock, _, deliberation = both(steps=4, takes=10)
    clock.passes(1_000_000)  # between its making and its first piece
    spent = []
    for _ in range(5):
        deliberation.go_on(1)
        spent.append(deliberation.spent_ns)
        clock.passes(1_000_000)
    assert deliberation.done and spent == [10, 20, 30, 40, 40], "the last piece found nothing left to do"


def timed() -> tuple[FakeClock, Budget]:
    """A budget whose first window is 1,000."""
    clock = FakeClock()
    return clock, Budget(100, 4_000, clock=clock)


def stopped(budget: Budget) -> bool:
    """Whether its first window, a quarter of its time, has gone."""
    return budget.stop(1.0) is Stop.TIME_BUDGET


@pytest.mark.req("PLAN-8")
def test_a_budget_in_pieces_counts_the_time_within_them_only() -> None:
    clock, budget = timed()
    clock.passes(10**9)
    for piece in range(4):
        with budget.running():
            clock.passes(250)
            assert not stopped(budget), f"{250 * (piece + 1)} of 1,000 have gone"
        clock.passes(10**9)
    with budget.running():
        assert not stopped(budget)
        clock.passes(1)
        assert stopped(budget)


@pytest.mark.req("PLAN-8")
def test_a_pause_is_not_taken_for_a_slow_operation() -> None:
    """An operation that is predicted not to fit is not begun: the prediction knows nothing of what ran in between."""
    clock, budget = timed()
    with budget.running():
        clock.passes(100)
        budget.spent()
    clock.passes(10**9)
    with budget.running():
        clock.passes(100)
        budget.spent()
        assert not stopped(budget)
        clock.passes(700)
        assert not stopped(budget), "900, and 100 more are expected"
        clock.passes(1)
        assert stopped(budget)


@pytest.mark.req("PLAN-3", "PLAN-8")
def test_mandatory_work_takes_nothing_of_the_time_nor_is_it_a_slow_operation() -> None:
    clock, budget = timed()
    clock.passes(100)
    with pytest.raises(MemoryError), budget.mandatory():  # however it ends
        clock.passes(10**9)
        raise MemoryError
    clock.passes(100)
    budget.spent()
    clock.passes(700)
    assert not stopped(budget), "900, and 100 more are expected"
    clock.passes(1)
    assert stopped(budget)


@pytest.mark.req("PLAN-8")
def test_mandatory_work_in_pieces_is_left_out_once() -> None:
    clock, budget = timed()

    def steps() -> Steps[None]:
        clock.passes(300)
        yield
        with budget.mandatory():
            clock.passes(5_000)
            yield
            clock.passes(7_000)
        yield
        clock.passes(700)

    planning = Deliberation(steps(), clock, budget)
    while not planning.go_on(1):
        clock.passes(10**9)
    with budget.running():
        assert not stopped(budget)
        clock.passes(1)
        assert stopped(budget), "1,000 of the first window had gone"


@pytest.mark.req("PLAN-7", "PLAN-8")
def test_what_is_abandoned_in_mandatory_work_gives_no_time_back() -> None:
    """The revision advanced while rows decoded: the same budget goes on with a planning that begins anew."""
    clock, budget = timed()

    def steps() -> Steps[None]:
        clock.passes(900)
        yield
        with budget.mandatory():
            clock.passes(5_000)
            yield

    planning = Deliberation(steps(), clock, budget)
    assert not planning.go_on(1) and not planning.go_on(1)
    clock.passes(10**9)
    planning.abandon()
    clock.passes(10**9)
    with budget.running():
        clock.passes(100)
        assert not stopped(budget)
        clock.passes(1)
        assert stopped(budget)


@pytest.mark.req("PLAN-8")
def test_a_piece_that_raises_is_counted_too() -> None:
    clock, budget = timed()
    with pytest.raises(MemoryError), budget.running():
        clock.passes(600)
        raise MemoryError
    clock.passes(10**9)
    with budget.running():
        clock.passes(400)
        assert not stopped(budget)
        clock.passes(1)
        assert stopped(budget)


@pytest.mark.req("PLAN-8")
def test_a_deliberation_takes_its_budgets_time_within_its_pieces_only() -> None:
    """Steps that look at their budget as the search does: they stop when their own work has used it up."""
    clock, budget = timed()

    def look() -> Steps[int]:
        looked = 0
        while not stopped(budget) and looked < 9:
            clock.passes(300)
            looked += 1
            yield
        return looked

    deliberation = Deliberation(look(), clock, budget)
    for _ in range(10):
        if deliberation.go_on(1):
            break
        clock.passes(10**9)
    assert deliberation.result == 4, "300, 600, 900, 1,200 of 1,000"
    assert deliberation.spent_ns == 1_200


# --- its end -----------------------------------------------------------------------------------------------------
def test_there_is_no_result_before_the_end() -> None:
    _, _, deliberation = both(steps=2)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="not come to its end"):
            _ = deliberation.result
        deliberation.go_on(0)
    assert deliberation.result == 7


def test_what_a_step_raises_ends_it_and_comes_out() -> None:
    _, work, deliberation = both(fails_at=3)
    assert not deliberation.go_on(11)
    with pytest.raises(MemoryError, match="no room"):
        deliberation.go_on(None)
    assert work.did == 3 and deliberation.spent_ns == 30, "what it took is known all the same"
    assert not deliberation.done
    with pytest.raises(RuntimeError, match="not come to its end"):
        _ = deliberation.result
    deliberation.abandon()
    assert work.did == 3 and work.tidied == ""


@pytest.mark.req("TXN-10")
def test_abandoned_steps_give_back_what_they_hold() -> None:
    _, work, deliberation = both(steps=9)
    deliberation.go_on(25)
    deliberation.abandon()
    assert (work.did, work.tidied) == (3, "abandoned"), "no further step, and its cleanup ran"
    deliberation.abandon()


@pytest.mark.req("TXN-10")
def test_steps_that_never_began_hold_nothing_and_may_be_abandoned() -> None:
    _, work, deliberation = both()
    deliberation.abandon()
    assert (work.did, work.tidied) == (0, "")


def test_steps_that_have_ended_may_be_abandoned() -> None:
    _, work, deliberation = both()
    deliberation.go_on(None)
    deliberation.abandon()
    assert work.tidied == "ended" and deliberation.result == 7


@pytest.mark.req("TXN-10")
def test_cleanup_within_steps_of_steps_runs_from_the_inside_out() -> None:
    order = []

    def inner() -> Steps[int]:
        try:
            yield
            return 1
        finally:
            order.append("inner")

    def outer() -> Steps[int]:
        try:
            return (yield from inner())
        finally:
            order.append("outer")

    deliberation = Deliberation(outer(), FakeClock())
    deliberation.go_on(0)
    deliberation.abandon()
    assert order == ["inner", "outer"]


@pytest.mark.req("TXN-11")
def test_what_cleanup_raises_comes_out() -> None:
    """Books that could not be brought to rest must not be taken for ones that are."""

    def broken() -> Iterator[None]:
        try:
            yield
        except Abandoned:
            raise MemoryError("the books do not hold") from None

    deliberation = Deliberation(broken(), FakeClock())  # type: ignore[arg-type]
    deliberation.go_on(0)
    with pytest.raises(MemoryError, match="do not hold"):
        deliberation.abandon()


@pytest.mark.req("PLAN-7")
def test_what_was_abandoned_does_not_go_on() -> None:
    _, _, deliberation = both()
    deliberation.go_on(1)
    deliberation.abandon()
    with pytest.raises(RuntimeError, match="abandoned"):
        deliberation.go_on(None)
