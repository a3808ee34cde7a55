"""Planning goes in pieces while rows decode, whatever those and others do meanwhile (PLAN-8, PLAN-11)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ninfer_core.cache.admission import Admitted, Ask, Undecided
from ninfer_core.cache.budget import Budget
from ninfer_core.contract.ids import Frontier, RequestId
from ninfer_core.contract.prompt import Boundaries
from ninfer_core.engine.active import ActiveRequest, Wish
from ninfer_core.engine.events import Completion, FinishReason
from ninfer_core.engine.handle import RequestHandle
from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.program.transactions.running import RunningTransaction
from tests.engine.test_worker_cache import LIMITS, expect, reused, turn
from tests.support.bench_engine import BenchEngine

DECODING = [5, 6, 7]
ROUNDS = 1_200
"""Far more than any test here waits for."""
PAGES = 60
CUTS = (500, 900)
"""Where a long prompt's captures are."""


@dataclass(frozen=True)
class Piece:
    """One call of the worker for planning.

    Attributes:
        verb: admit, advance or before_pass.
        undecided: it has not come to its end.
        copying: it has left a transition open.
        room: nanoseconds that the worker gave it; None to decide at once.
    """

    verb: str
    request: RequestId
    undecided: bool
    outcome: str
    copying: bool
    room: int | None


@dataclass
class Scene:
    """An Engine of three lanes whose cache is full, over two tiers: whoever comes needs room.

    Attributes:
        more: the next prompt of the first conversation.
        log: what the worker does: pieces of planning, prefill chunks, decode rounds.
        before: what is to be done before the n-th piece of a verb, the first being 1.
        counts: pieces of each verb so far.
        rows: those that decode for the others' sake.
    """

    engine: BenchEngine
    more: list[int]
    log: list[Piece | str] = field(default_factory=list)
    before: dict[tuple[str, int], Callable[[], object]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    rows: list[ActiveRequest] = field(default_factory=list)

    # --- what the tests do ----------------------------------------------------------------------------------------
    def decoding(self, prompt: Sequence[int] = DECODING, most_new: int = ROUNDS) -> RequestHandle:
        """A request that has begun to decode. It goes on only while there is something else to do, so that a slow test
        does not find it at its end."""
        handle = self.engine.submit(prompt, most_new)
        self.rows.append(handle._request)
        wait_for(lambda: bool(handle._request.token_ids))
        self.log.clear()
        self.counts.clear()
        return handle

    def long(self, most_new: int = 4, pages: int = 16) -> tuple[list[int], RequestHandle]:
        """A prompt that goes on where the first conversation ended, with captures on its way."""
        prompt = [*self.more, *[(i * 17 + 5) % 50 for i in range(pages * 64 - len(self.more))]]
        ends = tuple(Frontier(cut) for cut in CUTS)
        bounds = Boundaries(None, None, ends, ends[-1], ends[0], (ends[-1],), reproduces_history=False)
        return prompt, self.engine.submit(prompt, most_new, boundaries=bounds)

    def ends(self, row: RequestHandle, prompt: Sequence[int] = DECODING) -> Completion:
        """It is not needed any more, and what it has said is right."""
        row.interrupt()
        result = row.result(120)
        expect(self.engine, list(prompt), result)
        return result

    def at_rest(self) -> None:
        """Nothing is left open or claimed, and a request that needs every page can be served."""
        manager = self.engine.manager

        def look() -> None:
            assert manager.at_rest
            assert not manager.books.claims and not manager._running
            manager.audit()

        self.engine.worker.call(look)
        everything = [(i * 29 + 3) % 50 for i in range(PAGES * 64 - 6)]
        result, _ = turn(self.engine, everything, 3)
        expect(self.engine, everything, result)

    @property
    def idle(self) -> bool:
        """Whether the rows are all there is."""
        worker = self.engine.worker
        news = worker._inbox or worker._errands or worker._closing
        others = [r for r in worker._scheduler.everyone if r not in self.rows or not r.prompt_done]
        return not (news or others or any(row.wish is not Wish.GO_ON for row in self.rows))

    # --- what was done --------------------------------------------------------------------------------------------
    def pieces(self, *verbs: str, request: RequestId | None = None) -> list[Piece]:
        found = [entry for entry in self.log if isinstance(entry, Piece) and (not verbs or entry.verb in verbs)]
        return [piece for piece in found if request in (None, piece.request)]

    def between(self) -> list[list[str]]:
        """After each piece that came to no end: what ran until the next."""
        found: list[list[str]] = []
        counts = False
        for entry in self.log:
            if isinstance(entry, str):
                if counts:
                    found[-1].append(entry)
                continue
            if counts := entry.undecided:
                found.append([])
        return found

    def rows_ran_between(self, least: int) -> None:
        between = self.between()
        assert len(between) >= least, f"{len(between)} pieces: the scene is not set"
        assert all("round" in ran for ran in between), f"two pieces without a round between them: {between}"


def wait_for(there: Callable[[], bool]) -> None:
    while not there():
        time.sleep(0.001)


@contextmanager
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Every step is a piece of its own, however fast the machine is: the worker's time for a piece never runs out, and
    where it gives any, the manager is told that it is a nanosecond."""
    monkeypatch.setattr("ninfer_core.engine.worker.PIECE_NS", 10**15)
    limits = replace(LIMITS, private_cells=12, long_anchors=1)
    machine: dict[str, Any] = {"pages": PAGES, "chunk": 512, "slots": (2, 3), "host_pages": 16, "limits": limits}
    with BenchEngine(lanes=3, **machine) as engine:
        _, more = turn(engine, [i % 50 for i in range(150)])
        for number in range(6):
            turn(engine, [(i * 7 + number) % 50 for i in range(200 + 64 * number)])
        found = Scene(engine, more)
        watch(found)
        yield found


def watch(scene: Scene) -> None:
    manager, program, started = scene.engine.manager, scene.engine.program, list[RunningTransaction]()
    start = program.start

    def starting(*arguments: Any) -> Any:
        begun = start(*arguments)
        if isinstance(begun, RunningTransaction):
            started.append(begun)
        return begun

    def watched(verb: str, request: RequestId, act: Callable[[int | None], Any], room: int | None) -> Any:
        scene.counts[verb] += 1
        scene.before.pop((verb, scene.counts[verb]), lambda: None)()
        done = act(None if room is None else 1)
        undecided = done is None or isinstance(done, Undecided)
        copying = any(transaction.result is None for transaction in started)
        scene.log.append(Piece(verb, request, undecided, type(done).__name__, copying, room))
        return done

    admit, advance, before_pass = manager.admit, manager.advance, manager.before_pass

    def admitting(ask: Ask, *rest: Any, most_ns: int | None) -> Any:
        return watched("admit", ask.request, lambda ns: admit(ask, *rest, most_ns=ns), most_ns)

    def advancing(*room: int | None) -> Any:
        if not room:
            return advance()  # the manager itself, with a plan that needs no copies
        opening = scene.engine.worker._scheduler.opening
        assert opening is not None
        return watched("advance", opening.id, advance, *room)

    def passing(request: RequestId, *rest: Any, most_ns: int | None) -> Any:
        return watched("before_pass", request, lambda ns: before_pass(request, *rest, most_ns=ns), most_ns)

    def executed(batch: ForwardBatch) -> None:
        prefills = any(len(row.token_ids) > 1 for row in batch.rows)
        scene.log.append("chunk" if prefills else "round")
        while not prefills and scene.idle:
            time.sleep(0.001)

    program.start = starting  # type: ignore[method-assign]
    manager.admit, manager.advance, manager.before_pass = admitting, advancing, passing  # type: ignore[method-assign]
    scene.engine.fault = executed


# --- rows between pieces -----------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-8", "TXN-7", "PRO-4")
def test_rows_decode_between_any_two_pieces_of_anothers_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(monkeypatch) as here:
        row = here.decoding()
        prompt, handle = here.long()
        result = handle.result(120)
        expect(here.engine, prompt, result)
        assert reused(result) == 153, "it goes on where its conversation ended"
        assert {c.frontier: c.outcome for c in result.statistics.captures} == dict.fromkeys(CUTS, "captured")
        here.ends(row)
        assert sum(piece.undecided for piece in here.pieces("admit", "advance")) >= 10
        assert sum(piece.undecided for piece in here.pieces("before_pass")) >= 10
        here.rows_ran_between(least=20)
        here.at_rest()


@pytest.mark.req("PLAN-8")
def test_a_piece_gets_no_more_than_its_share_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(monkeypatch) as here:
        most = 10**12
        monkeypatch.setattr("ninfer_core.engine.worker.PIECE_NS", most)
        row = here.decoding()
        _, handle = here.long()
        handle.result(120)
        rooms = [piece.room for piece in here.pieces() if piece.undecided]
        here.ends(row)
    assert rooms and all(room is not None and 0 < room <= most for room in rooms)


@pytest.mark.req("PLAN-8", "PLAN-11")
def test_where_nobody_decodes_planning_is_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(monkeypatch) as here:
        prompt, handle = here.long()
        expect(here.engine, prompt, handle.result(120))
        (admit,) = here.pieces("admit")
        assert not admit.undecided
        assert here.pieces("before_pass")
        assert not any(piece.undecided for piece in here.pieces())
        assert all(piece.room is None for piece in here.pieces())
        here.at_rest()


@pytest.mark.req("PLAN-8")
def test_what_was_begun_in_pieces_is_decided_at_once_when_the_last_row_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scene(monkeypatch) as here:
        row = here.decoding()
        here.before["advance", 4] = row.interrupt
        prompt, handle = here.long()
        expect(here.engine, prompt, handle.result(120))
        gone = row.result(120)
        assert gone.finish_reason is FinishReason.INTERRUPTED
        expect(here.engine, DECODING, gone)
        undecided = [piece for piece in here.pieces() if piece.undecided]
        assert len(undecided) == 5, "one of admit, four of advance: it was told to end within the last of them"
        here.at_rest()


# --- who is tried when (PLAN-11) ---------------------------------------------------------------------------------
@pytest.mark.req("PLAN-11", "ACT-5")
def test_a_head_that_was_blocked_in_pieces_is_not_planned_again_while_rows_only_decode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor because a later request is looked at, also in pieces, and may not pass it."""
    with scene(monkeypatch) as here:
        row = here.decoding()
        here.engine.hold()
        prompt, head = here.long(pages=50)
        goes_on_until(here, lambda: any(piece.undecided for piece in here.pieces()))
        second_prompt, second = here.long(pages=21)
        goes_on_until(here, lambda: any(piece.outcome == "Blocked" for piece in here.pieces(request=second.id)))
        rounds(here, 30)
        other_prompt, other = here.long(pages=20)
        goes_on_until(here, lambda: any(piece.outcome == "Blocked" for piece in here.pieces(request=other.id)))
        rounds(here, 30)
        for handle in (head, second, other):
            pieces = here.pieces(request=handle.id)
            assert [piece.verb for piece in pieces].count("admit") == 1, "it was planned again"
            assert [piece.outcome for piece in pieces].count("Blocked") == 1
            assert sum(piece.undecided for piece in pieces) >= 1, "it was decided in pieces"
        assert list(here.engine.worker._scheduler.waiting) == [head._request, second._request, other._request]
        here.rows_ran_between(least=2)
        here.engine.go_on()
        here.ends(row)
        expect(here.engine, prompt, head.result(120))
        expect(here.engine, second_prompt, second.result(120))
        expect(here.engine, other_prompt, other.result(120))
        started = [piece.request for piece in here.pieces() if piece.outcome == Admitted.__name__]
        assert started == [head.id, second.id, other.id]
        here.at_rest()


@pytest.mark.req("PLAN-11", "ACT-5")
def test_who_was_to_pass_a_head_that_has_left_meanwhile_is_tried_as_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(monkeypatch) as here:
        row, _, head = behind_a_row(here)
        here.before["advance", here.counts["advance"] + 2] = head.cancel
        prompt, other = here.long(pages=20)
        goes_on_until(here, lambda: any(piece.outcome == "Blocked" for piece in here.pieces(request=other.id)))
        goes_on_until(here, lambda: other._request.handle is not None)
        assert not row._request.channel.finished, "it waits for nobody's end"
        here.engine.go_on()
        assert head.result(120).finish_reason is FinishReason.INTERRUPTED
        here.ends(row)
        expect(here.engine, prompt, other.result(120))
        here.at_rest()


@pytest.mark.req("PLAN-11", "ACT-5")
def test_the_head_is_not_planned_again_because_one_that_would_pass_it_is_cancelled_undecided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scene(monkeypatch) as here:
        row, prompt, head = behind_a_row(here)
        _, other = here.long(pages=20)
        here.before["advance", here.counts["advance"] + 2] = other.cancel
        goes_on_until(here, lambda: other._request.channel.finished is not None)
        rounds(here, 30)
        assert [piece.verb for piece in here.pieces(request=head.id)].count("admit") == 1
        here.engine.go_on()
        here.ends(row)
        expect(here.engine, prompt, head.result(120))
        here.at_rest()


@pytest.mark.req("PLAN-8", "PLAN-11")
def test_planning_for_which_there_is_never_time_left_goes_on_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(monkeypatch) as here:
        monkeypatch.setattr("ninfer_core.engine.worker.PIECE_NS", 0)
        here.engine.worker._share = 0.0
        row = here.decoding()
        prompt, handle = here.long()
        expect(here.engine, prompt, handle.result(120))
        assert not row._request.channel.finished, "while the row decoded"
        here.ends(row)
        here.at_rest()


def behind_a_row(here: Scene) -> tuple[RequestHandle, list[int], RequestHandle]:
    """A row that decodes, and a head that is blocked for its sake, with its prompt. Only what is asked for goes on."""
    row = here.decoding()
    here.engine.hold()
    prompt, head = here.long(pages=50)
    goes_on_until(here, lambda: any(piece.outcome == "Blocked" for piece in here.pieces()))
    return row, prompt, head


def goes_on_until(here: Scene, there: Callable[[], bool]) -> None:
    """One pass after another, and no more than needed."""
    for _ in range(ROUNDS // 2):
        if there():
            return
        before = len(here.log)
        here.engine.gate.release(1)
        wait_for(lambda before=before: len(here.log) > before)  # type: ignore[misc]
    raise AssertionError("it has not come about in many rounds")


def rounds(here: Scene, count: int) -> None:
    """So many decode rounds more."""
    least = here.log.count("round") + count
    goes_on_until(here, lambda: here.log.count("round") >= least)


# --- what comes in between ---------------------------------------------------------------------------------------
@pytest.mark.req("TXN-10", "PLAN-11", "INV-9")
@pytest.mark.parametrize("piece", [1, 2, 9, 20])
def test_a_request_cancelled_while_it_is_undecided_was_never_there(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(monkeypatch) as here:
        row = here.decoding()
        revision, handles = here.engine.program.revision, list[RequestHandle]()
        here.before["advance", piece] = lambda: cancelled(handles)
        handles.append(here.long()[1])
        result = handles[0].result(120)
        assert result.finish_reason is FinishReason.INTERRUPTED and not result.token_ids
        pieces = here.pieces(request=handles[0].id)
        assert [p.outcome for p in pieces] == ["Undecided"] * (piece + 1) + ["Failed"]
        assert here.engine.program.revision == revision, "nothing was changed for it"
        here.engine.worker.call(here.engine.manager.audit)
        prompt, again = here.long()
        served = again.result(120)
        expect(here.engine, prompt, served)
        assert reused(served) == 153
        here.rows_ran_between(least=10)
        here.ends(row)
        here.at_rest()


def cancelled(handles: list[RequestHandle], how: str = "cancel") -> None:
    """By the worker, maybe before the test has its handle."""
    wait_for(lambda: bool(handles))
    (handles[0].cancel if how == "cancel" else handles[0].interrupt)()


@pytest.mark.req("TXN-10", "INV-9", "INV-17")
@pytest.mark.parametrize("how", ["cancel", "interrupt"])
def test_a_request_cancelled_while_its_captures_are_settled_leaves_nothing_open(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(monkeypatch) as here:
        row = here.decoding()
        here.long()[1].result(120)
        offers = here.pieces("before_pass")
        here.ends(row)
    undecided = [number for number, piece in enumerate(offers, 1) if piece.undecided]
    copying = [number for number, piece in enumerate(offers, 1) if piece.copying]
    first = offers.index(next(offer for offer in offers if not offer.undecided))
    assert len(copying) >= 3 and copying[0] <= first, "the scene is not set"
    for number in sorted({1, copying[0], copying[1], first // 2, first} & {*undecided}):
        _cancelled_after(number, how, copying=number in copying, monkeypatch=monkeypatch)


def _cancelled_after(number: int, how: str, *, copying: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told to end within so manieth piece of its captures."""
    with scene(monkeypatch) as here:
        row, handles = here.decoding(), list[RequestHandle]()
        here.before["before_pass", number] = lambda: cancelled(handles, how)
        prompt, handle = here.long()
        handles.append(handle)
        result = handle.result(120)
        assert result.finish_reason is FinishReason.INTERRUPTED and not result.token_ids
        offers = here.pieces("before_pass", request=handle.id)
        assert len(offers) == number and offers[-1].undecided, "it ended with its captures half settled"
        assert offers[-1].copying is copying
        here.engine.worker.call(here.engine.manager.audit)
        again = here.engine.submit(prompt, 3)
        expect(here.engine, prompt, again.result(120))
        here.rows_ran_between(least=10)
        here.ends(row)
        here.at_rest()


@pytest.mark.req("ACT-4", "INV-15", "PLAN-8")
@pytest.mark.parametrize("verb", ["advance", "before_pass"])
@pytest.mark.parametrize("how", ["length", "cancel", "interrupt"])
def test_a_row_that_ends_while_another_is_planned_is_settled_afterwards_and_delays_nobody(
    verb: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(monkeypatch) as here:
        row, ending_prompt = here.decoding(), [9, 8, 7]
        ending = here.decoding(ending_prompt, 600)
        running, waited = here.engine.worker._scheduler, list[bool]()

        def end() -> None:
            if how == "length":
                request = ending._request
                said = len(request.token_ids)
                # As if the next token were its last.
                request.work = replace(request.work, lifetime_tokens=len(ending_prompt) + said + 1)
            else:
                (ending.cancel if how == "cancel" else ending.interrupt)()

        here.before[verb, 2] = end
        here.before[verb, 4] = lambda: waited.append(ending._request.ending is not None)
        here.before[verb, 5] = lambda: waited.append(ending._request in running.running)
        prompt, handle = here.long()
        expect(here.engine, prompt, handle.result(120))
        gone = ending.result(120)
        assert waited == [True, True], "it keeps its place until the books are at rest"
        assert gone.finish_reason is (FinishReason.LENGTH if how == "length" else FinishReason.INTERRUPTED)
        expect(here.engine, ending_prompt, gone)
        here.rows_ran_between(least=20)
        again = here.engine.submit([*ending_prompt, *gone.token_ids, 1], 3).result(120)
        assert (reused(again) > 0) is (how != "cancel"), "an end is kept, a cancel is not (DEF-4)"
        here.ends(row)
        here.at_rest()


@pytest.mark.req("SES-1", "INV-9", "PLAN-8")
@pytest.mark.parametrize("verb", ["advance", "before_pass"])
def test_an_errand_is_done_once_the_books_are_at_rest(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(monkeypatch) as here:
        row = here.decoding()
        manager, seen = here.engine.manager, list[int]()

        def errand() -> None:
            assert manager.at_rest
            seen.append(len(here.log))
            manager.audit()

        callers = [threading.Thread(target=here.engine.worker.call, args=(errand,))]

        def ask() -> None:
            callers[0].start()
            wait_for(lambda: bool(here.engine.worker._errands))

        here.before[verb, 2] = ask
        prompt, handle = here.long()
        expect(here.engine, prompt, handle.result(120))
        callers[0].join()
        (done,) = seen
        calls = [i for i, entry in enumerate(here.log) if isinstance(entry, Piece) and entry.verb == verb]
        left = [here.log[i] for i in calls if calls[1] < i < done]
        assert left and all(isinstance(entry, Piece) and entry.request == handle.id for entry in left)
        last = here.log[max(i for i in calls if i < done)]
        assert isinstance(last, Piece) and not last.undecided, "it came as soon as the books were at rest"
        here.rows_ran_between(least=20)
        here.ends(row)
        here.at_rest()


@pytest.mark.req("PLAN-8")
def test_each_boundary_has_a_budget_of_its_own_however_many_pieces_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(monkeypatch) as here:
        row = here.decoding()
        admit, budgets = here.engine.manager.admit, []

        def noted(ask: Ask, budget: Budget, *asked: Any, **options: Any) -> Any:
            budgets.append(budget)
            return admit(ask, budget, *asked, **options)

        here.engine.manager.admit = noted  # type: ignore[method-assign]
        for _ in range(2):
            prompt, handle = here.long()
            expect(here.engine, prompt, handle.result(120))
        here.ends(row)
    assert len(budgets) >= 2 and len({id(budget) for budget in budgets}) == len(budgets)
