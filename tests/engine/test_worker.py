"""The worker: order, batches, ends of every kind, and that one request's trouble stays its own."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.prompt import Boundaries
from ninfer_core.engine.active import Wish
from ninfer_core.engine.cache_options import ContextCacheOptions
from ninfer_core.engine.cache_sizing import cache_limits
from ninfer_core.engine.events import Finished, FinishReason, Prefilled, ReasoningDelta, Started, TextDelta
from ninfer_core.errors import CapacityError, EngineClosed, QueueFull
from tests.support.bench_engine import BenchEngine
from tests.support.plain_output import PlainOutput

PROMPT = list(range(10))


class PanicException(BaseException):
    """What a panic in a Rust extension looks like: not an Exception."""


def free(engine: BenchEngine) -> bool:
    return not engine.program.world.used()


def test_events_come_in_order_and_the_tokens_are_the_models() -> None:
    with BenchEngine(chunk=4) as engine:
        handle = engine.submit(PROMPT, 5)
        events = list(handle.events())
        expected = engine.model.greedy(PROMPT, 5)
    assert isinstance(events[0], Started) and isinstance(events[-1], Finished)
    done = [e.done for e in events if isinstance(e, Prefilled)]
    assert done == sorted(done) and done[-1] == 10
    result = events[-1].completion
    assert result.token_ids == tuple(expected) and result.finish_reason is FinishReason.LENGTH
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == result.text
    usage = result.statistics.usage
    assert (usage.prompt_tokens, usage.reused_tokens, usage.prefill_tokens, usage.completion_tokens) == (10, 0, 10, 5)
    assert result.statistics.reuse.misses[0].end == 10
    assert free(engine)


def test_an_end_token_stops_and_is_in_the_ledger() -> None:
    with BenchEngine() as engine:
        expected = engine.model.greedy(PROMPT, 50)
        end = next(t for i, t in enumerate(expected) if i >= 3 and t not in expected[:i])
        result = engine.submit(PROMPT, 50, PlainOutput(end=end)).result()
    assert result.finish_reason is FinishReason.STOP
    assert result.token_ids == tuple(expected[: expected.index(end) + 1])


@pytest.mark.req("INV-1", "PRO-3", "AUT-1", "ACT-5")
@pytest.mark.parametrize(
    ("pages", "large", "order"),
    [(5, 290, ["first", "large", "small"]), (4, 180, ["first", "small", "large"])],
    ids=["it might delay the head", "proved not to delay the head"],
)
def test_a_later_request_passes_the_head_only_with_a_proof(pages: int, large: int, order: list[str]) -> None:
    with BenchEngine(lanes=3, pages=pages) as engine:
        engine.hold()
        handles = {"first": engine.submit(PROMPT, 180)}
        while engine.worker._scheduler.running == []:
            time.sleep(0.001)
        handles |= {"large": engine.submit(PROMPT, large), "small": engine.submit(PROMPT, 3)}
        engine.go_on()
        for handle in handles.values():
            handle.result()
        admitted = sorted((handle._request.clock.admitted, name) for name, handle in handles.items())
    assert [name for _, name in admitted] == order


@pytest.mark.req("PRO-1")
def test_every_round_holds_all_ready_rows() -> None:
    with BenchEngine(lanes=8) as engine:
        engine.hold()
        handles = [engine.submit([i, i + 1, i + 2], 12) for i in range(8)]
        engine.go_on()
        results = [handle.result() for handle in handles]
        sizes = [len(batch.rows) for batch in engine.model.batches]
        for i, result in enumerate(results):
            assert list(result.token_ids) == engine.model.greedy([i, i + 1, i + 2], 12)
    assert max(sizes) == 8
    assert len(sizes) < 8 * 12, "rows were batched"


def test_running_rows_decode_between_prefill_chunks() -> None:
    with BenchEngine(lanes=2, chunk=16) as engine:
        engine.hold()
        short, long = engine.submit(PROMPT, 40), engine.submit(list(range(60)) * 4, 2)
        engine.go_on()
        short.result(), long.result()
        chunks = [i for i, batch in enumerate(engine.model.batches) if len(batch.rows[0].token_ids) == 16]
    assert len(chunks) == 15
    assert all(b - a == 2 for a, b in itertools.pairwise(chunks)), "a decode round after each chunk"


def test_interrupt_keeps_the_text_and_frees_the_lane() -> None:
    with BenchEngine() as engine:
        handle = engine.submit(PROMPT, 500)
        for event in handle.events():
            if isinstance(event, TextDelta):
                handle.interrupt()
        result = handle.result()
        expected = engine.model.greedy(PROMPT, len(result.token_ids))
    assert result.finish_reason is FinishReason.INTERRUPTED
    assert result.text and list(result.token_ids) == expected
    assert free(engine)


def test_interrupt_before_the_first_token_leaves_nothing() -> None:
    with BenchEngine(chunk=4) as engine:
        engine.hold()
        running, waiting = engine.submit(PROMPT), engine.submit(PROMPT)
        third = engine.submit(PROMPT)
        for handle in (running, waiting, third):
            handle.interrupt()
        engine.go_on()
        for handle in (running, waiting, third):
            result = handle.result()
            assert result.finish_reason is FinishReason.INTERRUPTED and result.token_ids == ()
    assert free(engine)


def test_a_panic_in_one_rows_preview_ends_that_row_only() -> None:
    with BenchEngine() as engine:
        engine.hold()
        bad_output = PlainOutput()
        count = iter(range(100))

        def trouble(token: int) -> None:
            if next(count) == 3:
                raise PanicException("index out of bounds")

        bad_output.trouble = trouble
        good, bad = engine.submit(PROMPT, 20), engine.submit(PROMPT, 20, bad_output)
        engine.go_on()
        failed, fine = bad.result(), good.result()
        assert list(fine.token_ids) == engine.model.greedy(PROMPT, 20)
        assert failed.finish_reason is FinishReason.ERROR
        assert failed.error == "PanicException: index out of bounds"
        assert list(failed.token_ids) == engine.model.greedy(PROMPT, 3), "what came before stays"
        assert engine.submit(PROMPT, 4).result().finish_reason is FinishReason.LENGTH, "the Engine goes on"
    assert free(engine)


def test_a_failing_pass_ends_its_requests_and_the_engine_goes_on() -> None:
    with BenchEngine() as engine:
        left = iter([None, MemoryError("DefaultCPUAllocator: not enough memory")])

        def fault(batch: object) -> None:
            if error := next(left, None):
                raise error

        engine.fault = fault
        result = engine.submit(PROMPT, 20).result()
        assert result.finish_reason is FinishReason.ERROR and "lower --max-context" in (result.error or "")
        assert len(result.token_ids) == 1
        assert engine.submit(PROMPT, 4).result().finish_reason is FinishReason.LENGTH
    assert free(engine)


@pytest.mark.parametrize("place", ["end", "finish"])
def test_a_reply_that_cannot_be_kept_ends_with_an_error_and_the_engine_goes_on(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BenchEngine() as engine:
        owner = engine.program if place == "end" else engine.worker._manager
        original = getattr(owner, place)
        left = iter([PanicException("no room to publish")])

        def fault(*arguments: object, **named: object) -> object:
            if error := next(left, None):
                raise error
            return original(*arguments, **named)

        monkeypatch.setattr(owner, place, fault)
        result = engine.submit(PROMPT, 4).result(10)
        assert result.finish_reason is FinishReason.ERROR and result.error == "PanicException: no room to publish"
        assert list(result.token_ids) == engine.model.greedy(PROMPT, 4) and result.text
        assert engine.submit(PROMPT, 4).result(10).finish_reason is FinishReason.LENGTH
    assert free(engine)


def test_what_cannot_even_be_discarded_ends_the_engine_and_everyone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with BenchEngine(lanes=1) as engine:
        engine.hold()
        first, second = engine.submit(PROMPT, 4), engine.submit(PROMPT, 4)

        def fault(*arguments: object, **named: object) -> None:
            raise RuntimeError("the books are wrong")

        monkeypatch.setattr(engine.worker._manager, "finish", fault)
        monkeypatch.setattr(engine.worker._manager, "discard", fault)
        engine.go_on()
        assert first.result(10).token_ids and second.result(10).error == "RuntimeError: the books are wrong"
        with pytest.raises(EngineClosed):
            engine.submit(PROMPT)
        for handle in (first, second):
            assert handle.result(0).finish_reason in (FinishReason.LENGTH, FinishReason.ERROR)
        monkeypatch.undo()
        assert first._request.handle is not None
        engine.manager.discard(first.id)


def test_a_request_beyond_the_contract_is_refused_and_does_not_block_the_next() -> None:
    with BenchEngine(pages=2) as engine:
        result = engine.submit(PROMPT, 1000).result()
        assert isinstance(result.cause, CapacityError) and "--kv-capacity" in (result.error or "")
        assert engine.submit(PROMPT, 4).result().finish_reason is FinishReason.LENGTH


def test_the_queue_is_bounded() -> None:
    with BenchEngine(lanes=1, queue_limit=2) as engine:
        engine.hold()
        first = engine.submit(PROMPT)
        while first.next_event(1) is None:
            pass
        handles = [engine.submit(PROMPT) for _ in range(2)]
        with pytest.raises(QueueFull, match="2 requests are waiting"):
            engine.submit(PROMPT)
        engine.go_on()
        assert all(handle.result().error is None for handle in (first, *handles))
        assert engine.submit(PROMPT).result().error is None


def test_closing_tells_everyone_and_ends_the_thread() -> None:
    engine = BenchEngine(lanes=1)
    engine.hold()
    handles = [engine.submit(PROMPT, 500) for _ in range(3)]
    threading.Timer(0.05, engine.go_on).start()
    engine.worker.close()
    for handle in handles:
        result = handle.result(5)
        assert result.finish_reason is FinishReason.ERROR and isinstance(result.cause, EngineClosed)
    assert not engine.worker._thread.is_alive()
    with pytest.raises(EngineClosed):
        engine.submit(PROMPT)
    engine.worker.close()


def test_a_request_whose_end_cannot_be_settled_is_told_and_the_engine_says_why() -> None:
    engine = BenchEngine(lanes=2)
    engine.hold()

    def broken(*_: object) -> None:
        raise RuntimeError("the lane is gone")

    engine.worker._manager.finish = engine.worker._manager.discard = broken  # type: ignore[method-assign]
    handles = [engine.submit(PROMPT, most) for most in (2, 50)]
    engine.go_on()
    for handle in handles:
        result = handle.result(5)
        assert result.finish_reason is FinishReason.ERROR and result.error == "RuntimeError: the lane is gone"
    engine.worker._thread.join(5)
    with pytest.raises(EngineClosed, match="the lane is gone"):
        engine.submit(PROMPT)
    engine.worker.close()


def test_a_cancelled_request_cannot_be_kept_by_a_later_interrupt() -> None:
    with BenchEngine() as engine:
        engine.hold()
        handle = engine.submit(PROMPT, 50)
        handle.cancel()
        handle.interrupt()
        assert handle._request.wish is Wish.CANCEL


def test_a_consumer_that_never_reads_costs_nothing_and_blocks_nobody() -> None:
    with BenchEngine() as engine:
        silent, read = engine.submit(PROMPT, 300), engine.submit(PROMPT, 300)
        assert list(read.result().token_ids) == engine.model.greedy(PROMPT, 300)
        silent.result()
        assert len(silent._request.channel._events) <= 4, "unread deltas are joined"
        texts = [event.text for event in silent.events() if isinstance(event, TextDelta)]
        assert "".join(texts) == silent.result().text


def test_thinking_budget_closes_the_block_by_force() -> None:
    with BenchEngine() as engine:
        output = PlainOutput(reasoning_until=62)
        result = engine.submit(PROMPT, 12, output, thinking_budget=4, thinking_close=(61, 62)).result()
        before = engine.model.greedy(PROMPT, 4)
        after = engine.model.greedy([*PROMPT, *before, 61, 62], 6)
    assert list(result.token_ids) == [*before, 61, 62, *after]
    assert result.reasoning == "".join(f"<{t}>" for t in [*before, 61, 62])


@pytest.mark.parametrize(("most_new", "forced"), [(1, [61]), (2, [61, 62])])
def test_a_budget_of_nothing_closes_before_the_first_token(most_new: int, forced: list[int]) -> None:
    with BenchEngine() as engine:
        output = PlainOutput(reasoning_until=62)
        result = engine.submit(PROMPT, most_new, output, thinking_budget=0, thinking_close=(61, 62)).result()
    assert list(result.token_ids) == forced and result.finish_reason is FinishReason.LENGTH
    assert free(engine)


def test_a_budget_of_nothing_goes_on_with_the_answer() -> None:
    with BenchEngine() as engine:
        output = PlainOutput(reasoning_until=62)
        result = engine.submit(PROMPT, 6, output, thinking_budget=0, thinking_close=(61, 62)).result()
        assert list(result.token_ids) == [61, 62, *engine.model.greedy([*PROMPT, 61, 62], 4)]


@pytest.mark.req("ACT-3")
def test_a_closing_before_the_first_token_finds_its_room_though_no_lease_counted_it() -> None:
    prompt, closing = list(range(1, 62)), (61, 62, 63, 61, 62)  # the promise ends within the second page's first tokens
    with BenchEngine(lease=1) as engine:
        output = PlainOutput(reasoning_until=62)
        result = engine.submit(prompt, 9, output, thinking_budget=0, thinking_close=closing).result()
        assert result.error is None
        assert list(result.token_ids) == [*closing, *engine.model.greedy([*prompt, *closing], 4)]
    assert free(engine)


@pytest.mark.req("INV-15", "ACT-3")
@pytest.mark.parametrize(("pages", "captured"), [(2, []), (3, [20]), (4, [20, 50])])
def test_captures_get_what_a_closing_leaves(pages: int, captured: list[int]) -> None:
    prompt, closing = list(range(1, 62)), (61, 62, 63, 61, 62)
    limits, wanted = cache_limits(ContextCacheOptions(), 1, 4), Boundaries(None, None, (20, 50), 50, 50, (50,), False)
    with BenchEngine(lanes=1, pages=pages, lease=1, limits=limits, slots=(4, 0)) as engine:
        output = PlainOutput(reasoning_until=62)
        result = engine.submit(
            prompt, 9, output, thinking_budget=0, thinking_close=closing, boundaries=wanted, cache=CacheIntent()
        ).result()
        assert len(result.token_ids) == 9, "the reply comes first"
        assert [c.frontier for c in result.statistics.captures if c.outcome == "captured"] == captured
        assert len(result.statistics.captures) == 2


def test_reasoning_and_answer_are_separate_events() -> None:
    with BenchEngine() as engine:
        third = engine.model.greedy(PROMPT, 3)[-1]
        handle = engine.submit(PROMPT, 8, PlainOutput(reasoning_until=third))
        events = list(handle.events())
    kinds = [type(e) for e in events if isinstance(e, (ReasoningDelta, TextDelta))]
    assert kinds == sorted(kinds, key=[ReasoningDelta, TextDelta].index) and set(kinds) == {ReasoningDelta, TextDelta}


def test_many_callers_with_cancels_leave_nothing_behind() -> None:
    with BenchEngine(lanes=4, pages=24, chunk=16, queue_limit=64) as engine:
        problems: list[str] = []

        def caller(seed: int) -> None:
            for turn in range(6):
                prompt = [(seed * 7 + turn * 3 + i) % 64 for i in range(5 + 13 * (seed % 4))]
                handle = engine.submit(prompt, 30)
                if (seed + turn) % 3 == 0:
                    time.sleep(0.002 * turn)
                    (handle.cancel if seed % 2 else handle.interrupt)()
                result = handle.result(60)
                if list(result.token_ids) != engine.model.greedy(prompt, len(result.token_ids)):
                    problems.append(f"caller {seed}, turn {turn}")
                if result.error:
                    problems.append(result.error)

        threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert free(engine)
