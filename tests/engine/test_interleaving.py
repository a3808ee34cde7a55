"""A transition's copies run as steps between other requests' passes, whatever those do meanwhile (TXN-7)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.plans import Readiness
from ninfer_core.contract.statistics import SourceKind, SourceOperation
from ninfer_core.engine.events import Completion, FinishReason
from ninfer_core.engine.handle import RequestHandle
from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.program.planning.assessment import judge
from ninfer_core.program.planning.plan import ResourcePlan
from ninfer_core.program.planning.target import Activation
from ninfer_core.program.transactions.running import RunningTransaction
from tests.engine.test_worker_cache import FIRST, LIMITS, SECOND, expect, reused, turn
from tests.support.bench_engine import BenchEngine

DECODING = [5, 6, 7]
LONG = [(i * 3 + 1) % 50 for i in range(400)]


@dataclass
class Scene:
    """An Engine of three lanes. The state of a conversation lies on Host and one request decodes.

    Attributes:
        more: the next prompt of the conversation on Host: its admission takes many steps.
        row: the request that decodes.
        log: what the worker does: a piece of a transition, a prefill chunk, a decode round.
    """

    engine: BenchEngine
    more: list[int]
    row: RequestHandle
    log: list[str] = field(default_factory=list)

    def held(self, *submit: Callable[[], RequestHandle]) -> list[RequestHandle]:
        """Submit while the worker waits in a pass, so that it finds all of them at once; then let it go on."""
        self.engine.hold()
        before = len(self.log)
        self.engine.gate.release(1)
        while len(self.log) == before:
            time.sleep(0.001)
        handles = [one() for one in submit]
        self.engine.go_on()
        return handles

    def between_pieces(self) -> list[list[str]]:
        """What ran between each two pieces of one opening."""
        found: list[list[str]] = []
        for entry in self.log:
            if entry == "piece":
                found.append([])
            elif entry == "settled":
                found = found[:-1] if found else found
            elif found:
                found[-1].append(entry)
        return found[:-1]


@contextmanager
def scene(most_new: int = 300, *, spare: int = 0, **machine: Any) -> Iterator[Scene]:
    """spare: Device slots beside the lanes'; with any, there is one more that is free than two requests need."""
    limits = replace(LIMITS, private_cells=12, long_anchors=1)
    settings = {"lanes": 3, "pages": 40, "chunk": 16, "limits": limits, "slots": (spare, 6), "host_pages": 24} | machine
    with BenchEngine(**settings) as engine:
        _, more = turn(engine, FIRST)
        engine.hold()
        row = engine.submit(DECODING, most_new)
        pushing = [engine.submit([(i * 11) % 50, *[(i + n) % 50 for n in range(150)]], 2) for i in range(2 + spare)]
        engine.go_on()
        for handle in pushing:
            handle.result(120)
        found = Scene(engine, more, row)
        first, *others = engine.manager.books.private
        for entry in others[: spare and 3]:
            engine.worker.call(partial(engine.manager.books.release, entry.owner))
        assert first.checkpoints[0].placement.value != "device", "the scene is not set"
        advance = engine.program.advance

        def piece(transaction: RunningTransaction, plan: ResourcePlan) -> Any:
            readiness = judge(engine.program.world, plan.target, plan.projection).readiness
            # One that needs no copies goes at once, a capture's as many pieces at a time as planning may.
            is_open = readiness is Readiness.NEEDS_TRANSFER and isinstance(plan.target.demand, Activation)
            if is_open:
                found.log.append("piece")
            done = advance(transaction, plan)
            if is_open and done is not None:
                found.log.append("settled")
            return done

        def passing(batch: ForwardBatch) -> None:
            found.log.append("chunk" if any(len(row.token_ids) > 1 for row in batch.rows) else "round")

        engine.program.advance = piece  # type: ignore[method-assign]
        engine.fault = passing
        yield found
        engine.worker.call(engine.manager.audit)


def restored(scene: Scene, result: Completion) -> None:
    expect(scene.engine, scene.more, result)
    assert reused(result) == len(FIRST) + 3
    assert result.statistics.reuse.operation is SourceOperation.RESTORE


@pytest.mark.req("TXN-7", "PRO-4")
def test_a_prompt_is_read_and_rows_decode_between_the_pieces_of_a_restore() -> None:
    with scene() as here:
        long, back = here.held(lambda: here.engine.submit(LONG, 3), lambda: here.engine.submit(here.more, 4))
        restored(here, back.result(120))
        expect(here.engine, LONG, long.result(120))
        here.row.interrupt()
        expect(here.engine, DECODING, here.row.result(120))
        between = here.between_pieces()
    assert len(between) >= 8, "two openings of several steps each"
    assert all("round" in passes for passes in between), f"two pieces without a round between them: {between}"
    assert sum("chunk" in passes for passes in between) >= 4, "the second opens while the first's prompt is read"


@pytest.mark.req("TXN-7", "ACT-4", "INV-8", "INV-15")
@pytest.mark.parametrize("how", ["length", "cancel", "interrupt"])
def test_who_ends_during_a_restore_is_settled_after_it_and_delays_nobody(how: str) -> None:
    with scene() as here:
        ending = here.engine.submit(SECOND, 300)
        while not ending._request.token_ids:
            time.sleep(0.001)
        advance, at, ended_at = here.engine.program.advance, [0], list[int]()

        def end(*arguments: Any) -> Any:
            at[0] += 1
            if at[0] == 3:
                if how == "length":
                    request = ending._request
                    request.work = replace(
                        request.work, lifetime_tokens=len(SECOND) + len(request.token_ids) + 1
                    )  # as if the next token were its last
                else:
                    (ending.cancel if how == "cancel" else ending.interrupt)()
            if ending._request.ending is not None:
                ended_at.append(at[0])
            return advance(*arguments)

        here.engine.program.advance = end  # type: ignore[method-assign]
        (back,) = here.held(lambda: here.engine.submit(here.more, 4))
        restored(here, back.result(120))
        gone = ending.result(120)
        assert gone.finish_reason is (FinishReason.LENGTH if how == "length" else FinishReason.INTERRUPTED)
        expect(here.engine, SECOND, gone)
        assert len(ended_at) >= 2, "it keeps its place while the pieces that are left are carried out"
        between = here.between_pieces()
        assert all("round" in passes for passes in between), "its end drove no transition to its end"
        here.row.interrupt()
        expect(here.engine, DECODING, here.row.result(120))
        again, _ = turn(here.engine, [*SECOND, *gone.token_ids, 1])
        assert (reused(again) > 0) is (how != "cancel"), "an end is kept, a cancel is not (DEF-4)"


@pytest.mark.req("TXN-7", "INV-9", "ACT-4")
def test_a_chunk_that_captures_waits_for_the_open_transition_while_rows_decode() -> None:
    with scene(spare=1) as here:
        capturing = [(i * 13) % 50 for i in range(30)]
        anchor = CacheIntent(anchor_prompt_end=True)
        before, back = here.held(
            lambda: here.engine.submit(capturing, 3, cache=anchor), lambda: here.engine.submit(here.more, 4)
        )
        restored(here, back.result(120))
        result = before.result(120)
        expect(here.engine, capturing, result)
        assert [(c.kind, c.frontier, c.outcome) for c in result.statistics.captures] == [
            (SourceKind.LONG_ANCHOR, 29, "captured")
        ]
        assert all("round" in passes for passes in here.between_pieces())
        here.row.interrupt()
        here.row.result(120)
        again, _ = turn(here.engine, capturing)
        assert reused(again) == 29


@pytest.mark.req("ACT-3", "TXN-7")
def test_a_lease_that_ends_during_a_restore_is_extended_after_it() -> None:
    with scene(lease=1, most_new=200) as here:
        (back,) = here.held(lambda: here.engine.submit(here.more, 4))
        restored(here, back.result(120))
        whole = here.row.result(120)
        assert whole.finish_reason is FinishReason.LENGTH and len(whole.token_ids) == 200
        expect(here.engine, DECODING, whole)


@pytest.mark.req("TXN-6", "TXN-10", "SES-1")
def test_a_request_cancelled_at_any_step_beside_others_is_gone_and_its_conversation_stays() -> None:
    steps = 0
    while _cancelled_at(steps):
        steps += 1
    assert steps >= 6, "two demotion phases, an activation's, and copies"


def _cancelled_at(step: int) -> bool:
    """Whether the opening has such a step."""
    with scene() as here:
        advance, left, handles = here.engine.program.advance, [step], list[RequestHandle]()

        def cancelling(*arguments: Any) -> Any:
            if left[0] == 0:
                handles[0].cancel()
            left[0] -= 1
            return advance(*arguments)

        here.engine.program.advance = cancelling  # type: ignore[method-assign]

        def submit() -> RequestHandle:
            handles.append(here.engine.submit(here.more, 4))
            return handles[0]

        here.held(submit)
        here.engine.worker.call(here.engine.manager.audit)  # with the books at rest, whatever is open when it comes
        result = handles[0].result(120)
        here.engine.program.advance = advance  # type: ignore[method-assign]
        assert all("round" in passes for passes in here.between_pieces())
        here.row.interrupt()
        expect(here.engine, DECODING, here.row.result(120))
        again, _ = turn(here.engine, here.more)
        expect(here.engine, here.more, again)
        committed = reused(result) > 0
        assert committed or reused(again) == len(FIRST) + 3
        return left[0] < 0 and not committed
