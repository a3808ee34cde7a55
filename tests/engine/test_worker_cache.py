"""The worker over a context cache: transitions that fail, are cancelled, or run beside decode rounds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Revision
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.results import ResourceResult
from ninfer_core.contract.statistics import SourceKind, SourceOperation
from ninfer_core.engine.errand import Errand
from ninfer_core.engine.events import Completion, FinishReason, Prefilled, Started
from ninfer_core.engine.handle import RequestHandle
from ninfer_core.engine.scheduler import MOST_PASSES
from ninfer_core.engine.worker import LOOK_AGAIN
from ninfer_core.errors import CapacityError, EngineClosed
from ninfer_core.program.transactions.running import CopyError, Phase
from tests.support.bench_engine import BenchEngine

LIMITS = CacheLimits(
    private_cells=6,
    shared_cells=0,
    long_anchors=0,
    automatic_anchors=0,
    endpoint_anchors=False,
    planning_ns=10**12,  # what is chosen must not depend on the machine's load
)
FIRST, SECOND = [i % 50 for i in range(150)], [(i * 7) % 50 for i in range(150)]


def engine_with(**machine: Any) -> BenchEngine:
    """One lane and one Device slot; conversations that do not fit there go to the Host tier."""
    return BenchEngine(**{"lanes": 1, "pages": 12, "limits": LIMITS, "slots": (0, 3), "host_pages": 12} | machine)


def turn(engine: BenchEngine, prompt: list[int], most_new: int = 4) -> tuple[Completion, list[int]]:
    """A whole request, and the next prompt of its conversation."""
    result = engine.submit(prompt, most_new).result(120)
    return result, [*prompt, *result.token_ids, 1, 2]


@contextmanager
def a_conversation_on_host(**machine: Any) -> Iterator[tuple[BenchEngine, list[int]]]:
    """(engine, the next prompt of a conversation whose state was moved to Host by another one)."""
    with engine_with(**machine) as engine:
        _, more = turn(engine, FIRST)
        turn(engine, SECOND)
        first = next(iter(engine.manager.books.private))
        assert first.checkpoints[0].placement.value in ("host", "mixed"), "the scene is not set"
        yield engine, more


def reused(result: Completion) -> int:
    return result.statistics.usage.reused_tokens


def expect(engine: BenchEngine, prompt: list[int], result: Completion) -> None:
    assert list(result.token_ids) == engine.model.greedy(prompt, len(result.token_ids))


# --- transitions that fail ---------------------------------------------------------------------------------------
@pytest.mark.req("TXN-4", "INV-10")
@pytest.mark.parametrize(("times", "served"), [(1, True), (2, True), (3, False)])
def test_an_aborted_start_is_tried_again_and_given_up_in_the_end(
    times: int, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_conversation_on_host() as (engine, more):
        start, left = engine.program.start, [times]

        def refuse(plan: Any) -> Any:
            left[0] -= 1
            refused = ResourceResult.refused(engine.program.revision, "injected")
            return refused if left[0] >= 0 else start(plan)

        monkeypatch.setattr(engine.program, "start", refuse)
        before = engine.program.revision
        result, _ = turn(engine, more)
        if served:
            assert result.error is None and reused(result) == len(FIRST) + 3
        else:
            assert isinstance(result.cause, CapacityError) and engine.program.revision == before, "nothing was touched"
            result, _ = turn(engine, more)
            assert reused(result) == len(FIRST) + 3
        expect(engine, more, result)


@pytest.mark.req("TXN-3", "INV-10")
def test_a_stale_plan_changes_nothing_and_the_request_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_conversation_on_host() as (engine, more):
        seal, left = engine.program.seal, [1]

        def late(*arguments: Any) -> Any:
            plan = seal(*arguments)
            left[0] -= 1
            return replace(plan, revision=Revision(plan.revision - 1)) if left[0] >= 0 else plan

        monkeypatch.setattr(engine.program, "seal", late)
        result, _ = turn(engine, more)
        assert reused(result) == len(FIRST) + 3 and left[0] < 0
        expect(engine, more, result)


@pytest.mark.req("TXN-4", "TXN-11", "RET-4")
@pytest.mark.parametrize("place", ["seal", "start"])
def test_a_start_that_raises_ends_its_request_and_leaves_no_claim(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_conversation_on_host() as (engine, more):

        def broken(*_: Any) -> None:
            raise MemoryError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(engine.program, place, broken)
            for _ in range(LIMITS.private_cells + 1):
                result, _ = turn(engine, more)
                assert result.finish_reason is FinishReason.ERROR and "out of memory" in (result.error or "")
        engine.manager.audit()
        result, _ = turn(engine, more)
        assert reused(result) == len(FIRST) + 3
        expect(engine, more, result)


@pytest.mark.req("TXN-10", "INV-11")
@pytest.mark.parametrize("phase", [Phase.COPIES_IN_FLIGHT, Phase.ACTIVATION_COPIES])
@pytest.mark.parametrize("times", [1, 9])
def test_a_failing_copy_loses_neither_source_nor_engine(phase: Phase, times: int) -> None:
    with a_conversation_on_host() as (engine, more):
        left = [times]

        def fault(at: Phase) -> None:
            if at is phase and left[0] > 0:
                left[0] -= 1
                raise CopyError("the bus hung")

        engine.program.fault = fault
        result, _ = turn(engine, more)
        if times == 1:
            assert result.error is None
        else:
            assert "the bus hung" in (result.error or "") and left[0] == times - 3
        engine.program.fault = None
        if result.error is not None:
            engine.manager.audit()
            result, _ = turn(engine, more)
        assert reused(result) == len(FIRST) + 3
        expect(engine, more, result)


@pytest.mark.req("TXN-6", "TXN-10")
def test_a_request_cancelled_at_any_step_of_its_opening_leaves_its_conversation() -> None:
    steps = 0
    while _cancelled_at(steps):
        steps += 1
    assert steps >= 6, "each of two demotion phases, an activation's, and its copies"


def _cancelled_at(step: int) -> bool:
    """Whether the opening has such a step."""
    with a_conversation_on_host() as (engine, more):
        advance, left, handles = engine.program.advance, [step], list[RequestHandle]()

        def cancelling(*arguments: Any) -> Any:
            while not handles:
                time.sleep(0.001)
            if left[0] == 0:
                handles[0].cancel()
            left[0] -= 1
            return advance(*arguments)

        engine.program.advance = cancelling  # type: ignore[method-assign]
        handles.append(engine.submit(more, 4))
        result = handles[0].result(120)
        engine.program.advance = advance  # type: ignore[method-assign]
        engine.worker.call(engine.manager.audit)
        again, _ = turn(engine, more)
        expect(engine, more, again)
        if left[0] >= 0:
            assert result.finish_reason is FinishReason.LENGTH
            return False
        assert result.finish_reason is FinishReason.INTERRUPTED
        # Once it is committed the sequence is the conversation, and a cancel gives that up (DEF-4).
        committed = reused(result) > 0
        assert committed or reused(again) == len(FIRST) + 3
        return not committed


# --- what ends the Engine ----------------------------------------------------------------------------------------
def _substituted(engine: BenchEngine, transaction: Any) -> None:
    """The result names another deleted checkpoint than it should: the counts are right, the set is not."""
    result = transaction.result
    owners = {o: replace(s, checkpoints=s.checkpoints[:0], deleted=frozenset({-1})) for o, s in result.owners.items()}
    transaction.result = replace(result, owners=owners)


def _foreign(engine: BenchEngine, transaction: Any) -> None:
    transaction.result = replace(transaction.result, owners={})


def _moved(engine: BenchEngine, transaction: Any) -> None:
    """Somebody changed a claimed entry meanwhile: another generation."""
    entry = next(iter(engine.manager.books.private))
    engine.manager.books.private.replace(entry.owner, entry.checkpoints)


def _lost(engine: BenchEngine, transaction: Any) -> None:
    raise RuntimeError("the device is gone")


@pytest.mark.req("TXN-9", "TXN-11")
@pytest.mark.parametrize("tamper", [_substituted, _foreign, _moved, _lost])
def test_an_end_that_cannot_be_adopted_ends_the_engine_and_tells_everyone(
    tamper: Callable[[BenchEngine, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_with()
    _, more = turn(engine, FIRST)
    turn(engine, SECOND)
    books, advance, errand = engine.manager.books, engine.program.advance, Errand[None](lambda: None)

    def tampered(transaction: Any, plan: Any) -> Any:
        if not engine.worker._errands and not errand._future.done():
            engine.worker._errands.append(errand)  # somebody asks for something while the transition is open
        done = advance(transaction, plan)
        if done is not None:
            tamper(engine, transaction)
        return done

    entries = {entry.owner: entry.refs for entry in books.entries()}
    engine.hold()
    monkeypatch.setattr(engine.program, "advance", tampered)
    handles = [engine.submit(more, 4) for _ in range(3)]
    engine.go_on()
    for handle in handles:
        result = handle.result(120)
        assert result.finish_reason is FinishReason.ERROR and result.token_ids == ()
    with pytest.raises(RuntimeError):
        errand.result()
    engine.worker._thread.join(30)
    assert {entry.owner: entry.refs for entry in books.entries()} == entries, "no catalog was changed before the check"
    with pytest.raises(EngineClosed, match="start a new one"):
        engine.submit(more)
    with pytest.raises(EngineClosed):
        engine.worker.call(lambda: None)
    engine.worker.close()


# --- beside decode rounds ----------------------------------------------------------------------------------------
@pytest.mark.req("TXN-7", "RET-2")
def test_rows_decode_between_two_pieces_of_a_restore_from_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_with(lanes=2, pages=20) as engine:
        _, more = turn(engine, FIRST)
        engine.hold()
        other = engine.submit([5, 6, 7], 120)
        log: list[str] = []
        engine.fault = lambda batch: log.append("pass")
        engine.gate.release(40)
        while len(log) < 3:
            time.sleep(0.001)
        second = engine.submit(SECOND, 4)
        engine.go_on()
        second.result(120)
        advance = engine.program.advance

        def logged(*arguments: Any) -> Any:
            log.append("piece")
            return advance(*arguments)

        monkeypatch.setattr(engine.program, "advance", logged)
        placements = {c.placement.value for entry in engine.manager.books.private for c in entry.checkpoints}
        assert not placements <= {"device"}, "the scene is not set"
        log.clear()
        handle = engine.submit(more, 4)
        events = list(handle.events())
        started = next(event for event in events if isinstance(event, Started))
        whole, result = other.result(120), handle.result()
        expect(engine, [5, 6, 7], whole)
        expect(engine, more, result)
    assert started.reuse.operation is SourceOperation.RESTORE and result.statistics.transfer.bytes > 0
    first, last = log.index("piece"), len(log) - 1 - log[::-1].index("piece")
    inside = log[first : last + 1]
    assert inside.count("piece") >= 4
    assert "piece,piece" not in ",".join(inside), f"two pieces without a round between them: {inside}"


@pytest.mark.req("TXN-7", "ACT-3", "CAN-9")
@pytest.mark.parametrize(
    ("lease", "share"),
    [
        (32, False),  # it waits for its next lease
        (None, True),  # it waits to capture its prompt for others
    ],
)
def test_a_row_that_waits_for_the_books_runs_before_the_next_transition(lease: int | None, share: bool) -> None:
    limits = replace(LIMITS, shared_cells=2, lanes=3)
    with BenchEngine(3, 40, 128, queue_limit=64, limits=limits, slots=(1, 4), lease=lease) as engine:
        for n in range(6):
            turn(engine, [(n * 11 + i) % 50 for i in range(70)], 2)
        advance, left, seen = engine.program.advance, dict[int, int](), list[int]()

        def slow(transaction: Any, plan: Any) -> Any:
            """Every admission that makes room takes eight pieces of work more."""
            if engine.worker._scheduler.opening is None:
                return advance(transaction, plan)
            if id(transaction) not in left and row._request.handle is not None:
                seen.append(len(row._request.token_ids))  # at the start of each
            left[id(transaction)] = left.get(id(transaction), 8) - 1
            return None if left[id(transaction)] >= 0 else advance(transaction, plan)

        engine.program.advance = slow  # type: ignore[method-assign]
        engine.hold()
        row = engine.submit([(i * 7 + 1) % 50 for i in range(100)], 300, cache=CacheIntent(share_prompt=share))
        others = [engine.submit([(n * 13 + i * 3) % 50 for i in range(70)], 2) for n in range(40)]
        engine.go_on()
        results = [handle.result(120) for handle in (row, *others)]
        assert all(result.error is None for result in results)
    stuck = [tokens for tokens, then in pairwise(seen) if tokens == then < 300]
    assert len(seen) > 10 and stuck == [], "it got further between any two transitions"


@pytest.mark.req("DEF-4", "TXN-1")
def test_who_is_interrupted_beside_a_transition_and_then_cancelled_is_not_kept() -> None:
    with engine_with(lanes=2, pages=20) as engine:
        turn(engine, FIRST)
        advance, closed = engine.program.advance, threading.Event()

        def waiting(transaction: Any, plan: Any) -> Any:
            return advance(transaction, plan) if closed.is_set() else None

        row = engine.submit([5, 6, 7], 400)
        next(event for event in row.events() if isinstance(event, Prefilled))
        engine.program.advance = waiting  # type: ignore[method-assign]
        other = engine.submit(SECOND, 4)
        while engine.worker._scheduler.opening is None or not row._request.token_ids:
            time.sleep(0.001)
        row.interrupt()
        while row._request.ending is None:
            time.sleep(0.001)
        assert row._request.ending.keep
        row.cancel()
        closed.set()
        row.result(120)
        assert not row._request.kept
        expect(engine, SECOND, other.result(120))


@pytest.mark.req("TXN-7")
@pytest.mark.parametrize("beside", [False, True])
def test_without_a_row_to_run_the_worker_sleeps_until_copies_are_looked_at_again(
    beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_with(lanes=2, pages=20) as engine:
        turn(engine, FIRST)
        looks, slept = [5], list[float]()
        wait = engine.worker._changed.wait

        def landed() -> bool:
            looks[0] -= 1
            return looks[0] < 0

        def noted(timeout: float | None = None) -> bool:
            if timeout is not None:
                slept.append(timeout)
            return wait(timeout)

        row = None
        if beside:
            engine.hold()
            row = engine.submit([5, 6, 7], 400)
            while not engine.worker._scheduler.running:
                time.sleep(0.001)
        else:
            turn(engine, FIRST[::-1])
        monkeypatch.setattr(engine.program.physical.copies, "landed", landed)
        monkeypatch.setattr(engine.worker._changed, "wait", noted)
        other = engine.submit(SECOND, 4)
        engine.go_on()
        expect(engine, SECOND, other.result(120))
        if row is not None:
            row.cancel()
            row.result(120)
    assert looks[0] < 0, "copies were waited for"
    assert slept == ([] if beside else [LOOK_AGAIN] * 5)


@pytest.mark.req("RET-2")
def test_nothing_is_moved_while_rows_only_decode() -> None:
    with engine_with(lanes=2, pages=20) as engine:
        turn(engine, FIRST)
        handle = engine.submit([1, 2, 3], 100)
        next(event for event in handle.events() if isinstance(event, Started))
        begun = {
            entry.owner: entry.checkpoints for entry in engine.worker.call(lambda: list(engine.manager.books.private))
        }
        handle.result(120)
        now = {entry.owner: entry.checkpoints for entry in engine.manager.books.private}
    assert all(now[owner] == checkpoints for owner, checkpoints in begun.items())


# --- admission order and leases -----------------------------------------------------------------------------------
@pytest.mark.req("ACT-5", "PRO-3")
def test_an_endless_stream_passes_the_head_so_often_and_no_more() -> None:
    with BenchEngine(lanes=3, pages=7, queue_limit=80) as engine:
        engine.hold()
        donor = engine.submit(FIRST[:10], 150)
        while not engine.worker._scheduler.running:
            time.sleep(0.001)
        head = engine.submit(FIRST[:20], 300)
        stream = [engine.submit([n % 50], 2) for n in range(2 * MOST_PASSES)]
        engine.go_on()
        admitted = {h: (h.result(60), h._request.clock.admitted or 0.0)[1] for h in (donor, head, *stream)}
    order = sorted(admitted, key=lambda handle: admitted[handle])
    assert order.index(donor) == 0 and order.index(head) == 1 + MOST_PASSES
    assert [h.id for h in order if h in stream] == [h.id for h in stream], "the stream itself stays in order"


@pytest.mark.req("PRO-1")
@pytest.mark.parametrize("lanes", [1, 2, 5, 8])
def test_rows_that_can_decode_do_so_between_chunks(lanes: int) -> None:
    with BenchEngine(lanes=lanes, pages=64, chunk=16) as engine:
        engine.hold()
        short = [engine.submit([n, n + 1], 60) for n in range(lanes - 1)]
        long = engine.submit([n % 50 for n in range(160)], 2)
        engine.go_on()
        for handle in (*short, long):
            handle.result(60)
        sizes = [[len(row.token_ids) for row in batch.rows] for batch in engine.model.batches]
    chunks = [i for i, lengths in enumerate(sizes) if lengths == [16]]
    assert len(chunks) == 10
    gaps = {sum(sizes[k] != [16] for k in range(a + 1, b)) for a, b in pairwise(chunks)}
    assert gaps == ({0} if lanes == 1 else {1}), "one round after each chunk"
    if lanes > 1:
        rounds = [lengths for lengths in sizes[chunks[0] : chunks[-1]] if lengths != [16]]
        assert all(lengths == [1] * (lanes - 1) for lengths in rounds), "every ready row is in the round"


@pytest.mark.req("ACT-3")
def test_a_lease_grows_while_there_is_room_and_ends_with_length_when_there_is_none() -> None:
    with BenchEngine(lanes=2, pages=4, lease=64) as engine:
        alone = engine.submit([1, 2, 3], 200).result(60)
        assert alone.finish_reason is FinishReason.LENGTH and len(alone.token_ids) == 200, "alone it grows to its end"
        expect(engine, [1, 2, 3], alone)
        engine.hold()
        handles = [engine.submit([n, n + 1, n + 2], 200) for n in (4, 7)]
        engine.go_on()
        results = [handle.result(120) for handle in handles]
        for n, result in zip((4, 7), results, strict=True):
            expect(engine, [n, n + 1, n + 2], result)
            assert result.finish_reason is FinishReason.LENGTH and result.error is None
        lengths = sorted(len(result.token_ids) for result in results)
        # Four pages: the first to ask for a third one finds none and ends where it is covered; then the other goes on.
        assert lengths == [125, 200]
    assert not engine.program.world.used()


@pytest.mark.req("ACT-3")
def test_with_a_lease_more_run_at_once() -> None:
    def together(lease: int | None) -> int:
        with BenchEngine(lanes=4, pages=6, lease=lease) as engine:
            engine.hold()
            handles = [engine.submit([n], 130) for n in range(4)]
            engine.go_on()
            for handle in handles:
                handle.result(120)
            return max(len(batch.rows) for batch in engine.model.batches)

    assert (together(None), together(32)) == (2, 4)


def test_eight_callers_under_pressure_leave_a_sound_cache() -> None:
    limits = replace(LIMITS, private_cells=5, shared_cells=2, long_anchors=1, automatic_anchors=1)
    with BenchEngine(lanes=3, pages=24, chunk=32, queue_limit=64, limits=limits, slots=(2, 3), host_pages=10) as engine:
        problems: list[str] = []

        def caller(seed: int) -> None:
            prompt = [(seed * 5 + i) % 50 for i in range(40 + 30 * (seed % 3))]
            for number in range(4):
                handle = engine.submit(prompt, 12)
                if (seed + number) % 4 == 0:
                    (handle.cancel if seed % 2 else handle.interrupt)()
                result = handle.result(60)
                if result.error or list(result.token_ids) != engine.model.greedy(prompt, len(result.token_ids)):
                    problems.append(f"caller {seed}, request {number}: {result.error}")
                prompt = [*prompt, *result.token_ids, seed]

        threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert engine.submit([1, 2], 2).result(120).statistics.reuse.source is SourceKind.ROOT
