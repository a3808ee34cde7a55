"""Trouble at every stage of a request: the books are as the account beside them says, and the Engine goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ninfer_core.contract.ids import Revision
from ninfer_core.contract.results import ResourceResult
from ninfer_core.engine import worker
from ninfer_core.engine.events import FinishReason
from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.program.transactions.running import CopyError, Phase
from tests.engine.test_cancel_phases import Scene, expect, reused, scene

Arrange = Callable[[Scene, int], Callable[[], bool]]
"""Returns whether the trouble has come about."""


def raises(name: str) -> Arrange:
    """The n-th call of that name fails before it has done anything."""

    def arrange(here: Scene, number: int) -> Callable[[], bool]:
        def trouble() -> None:
            raise MemoryError("injected")

        here.books.before[name, number] = trouble
        return lambda: not here.books.before

    return arrange


def aborted_start(here: Scene, number: int) -> Callable[[], bool]:
    start, left = here.engine.program.start, [number]

    def refusing(plan: Any) -> Any:
        left[0] -= 1
        return start(plan) if left[0] else ResourceResult.refused(here.engine.program.revision, "injected")

    here.engine.program.start = refusing  # type: ignore[method-assign]
    return lambda: left[0] <= 0


def stale_plan(here: Scene, number: int) -> Callable[[], bool]:
    seal, left = here.engine.program.seal, [number]

    def late(*arguments: Any) -> Any:
        plan = seal(*arguments)
        left[0] -= 1
        return plan if left[0] else replace(plan, revision=Revision(plan.revision - 1))

    here.engine.program.seal = late  # type: ignore[method-assign]
    return lambda: left[0] <= 0


def failing_copy(here: Scene, number: int) -> Callable[[], bool]:
    left = [number]

    def fault(phase: Phase) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise CopyError("injected")

    here.engine.program.fault = fault
    return lambda: left[0] <= 0


def failing_pass(here: Scene, number: int) -> Callable[[], bool]:
    """Of the prompt's."""
    pause, left = here.engine.fault, [number]

    def fault(batch: ForwardBatch) -> None:
        left[0] -= any(len(row.token_ids) > 1 for row in batch.rows)
        if left[0] == 0:
            left[0] = -1
            raise MemoryError("injected")
        pause(batch)

    here.engine.fault = fault
    return lambda: left[0] < 0


SERVED, FAILED = FinishReason.LENGTH, FinishReason.ERROR


@pytest.mark.req("TXN-3", "TXN-4", "TXN-10", "TXN-11", "INV-10", "INV-11", "INV-15", "RET-3", "RET-4", "AUT-2", "AUT-4")
@pytest.mark.parametrize(
    ("arrange", "number", "end"),
    [
        pytest.param(aborted_start, 1, SERVED, id="aborted start"),
        pytest.param(aborted_start, 2, SERVED, id="aborted start of a capture"),
        pytest.param(stale_plan, 1, SERVED, id="stale plan"),
        pytest.param(stale_plan, 2, SERVED, id="stale plan of a capture"),
        pytest.param(failing_copy, 1, SERVED, id="failing copy"),
        pytest.param(failing_copy, 2, SERVED, id="failing second copy"),
        pytest.param(failing_copy, 3, SERVED, id="failing copy of a capture"),
        pytest.param(failing_copy, 5, SERVED, id="failing copy of a later capture"),
        pytest.param(raises("plan"), 1, FAILED, id="planning raises at once"),
        pytest.param(raises("seal"), 1, FAILED, id="seal raises"),
        pytest.param(raises("start"), 1, FAILED, id="start raises"),
        pytest.param(raises("seal"), 2, FAILED, id="seal of a capture raises"),
        pytest.param(raises("arm"), 1, FAILED, id="a capture raises"),
        pytest.param(raises("before_pass"), 20, FAILED, id="offering a capture raises"),
        pytest.param(failing_pass, 1, FAILED, id="the first pass raises"),
        pytest.param(failing_pass, 3, FAILED, id="a later pass raises"),
        pytest.param(raises("after_pass"), 2, FAILED, id="settling captures raises"),
        pytest.param(raises("end"), 1, FAILED, id="the end raises"),
        pytest.param(raises("finish"), 1, FAILED, id="publication raises"),
    ],
)
def test_trouble_stays_with_its_request(
    arrange: Arrange, number: int, end: FinishReason, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "PIECE_NS", 10**15)
    with scene() as here:
        has_happened = arrange(here, number)
        result = here.turn().result(120)
        assert result.finish_reason is end, result.error
        assert has_happened()
        expect(here.engine, here.prompt, result)
        here.engine.program.fault = None
        if end is FAILED:
            assert "memory" in (result.error or "")
        else:
            assert reused(result) == 153, "its source is lost to no trouble"
        here.goes_on_serving()
        here.ends()
