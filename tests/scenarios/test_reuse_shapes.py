"""The usual shapes of a 2,000-token conversation, and exactly how much of each is computed again: see shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.shapes import demands, table
from tests.scenarios import shapes
from tests.scenarios.chat import Chat
from tests.scenarios.shapes import REPLY, Shape, user
from tests.support.talk import Talk, captures, shared


def grown(talk: Talk) -> Chat:
    """Turn by turn: each starts where the reply of the one before began."""
    chat = Chat(talk, "5" * 50)
    for k in range(1, 9):
        chat.ask(user(k), REPLY)
    turns = [(60 + 249 * (k - 1) + 221, "TurnClosure", 60 + 249 * (k - 2) + 208, "fork") for k in range(2, 9)]
    assert chat.table() == [(281, "Root", 0, "none"), *turns]
    return chat


def sent_at_once(talk: Talk) -> Chat:
    chat = shapes.sent_at_once(talk)
    assert chat.table() == [(2024, "Root", 0, "none")]
    return chat


def found(shape: Shape) -> tuple[int, int, str, int, str]:
    """(computed, prompt tokens, source, frontier, operation)."""
    assert shape.computed == shape.expected, shape.name
    return shape.computed, len(shape.prompt), *shape.reuse


@pytest.mark.req("CAN-5", "DEF-3", "CAN-8")
@pytest.mark.parametrize("begun", [grown, sent_at_once])
def test_a_conversation_of_two_thousand_tokens(talk: Callable[..., Talk], begun: Callable[[Talk], Chat]) -> None:
    with talk(device_state_slots=64) as engine:
        steps = shapes.in_one_conversation(begun(engine))
        # Its opener, whatever the reply was.
        assert found(next(steps)) == (13, 2024, "TurnClosure", 2011, "fork")
        # The edited message.
        assert found(next(steps)) == (221, 2024, "LongAnchor", 1803, "fork")
        # The new turn with the reply that it follows.
        assert found(next(steps)) == (41 + 108 + 13, 2024 - 13 + 41 + 108 + 13, "TurnClosure", 2011, "fork")
        # Token 300 lies in the first reply: from the last message boundary before it, at 268.
        last = next(steps)
        assert max(shared(path, last.prompt.token_ids) for path in engine.paths[:-1]) == 300
        assert found(last)[:2] == (2024 - 268, 2024) and last.reuse[1] == 268
        assert [miss.reason.value for miss in last.done.statistics.reuse.misses] == ["no_checkpoint", "diverged"]


@pytest.mark.req("CAN-3", "EVI-1")
def test_a_second_conversation_under_a_long_system_prompt(talk: Callable[..., Talk]) -> None:
    """1,000 tokens of instructions: the second conversation computes its user part and the opener."""
    with talk() as engine:
        second = shapes.second_conversation(engine)
        assert found(second) == (987 + 13, 2000, "SharedStablePrefix", 1000, "fork")
        assert ("SharedStablePrefix", 1000, "present") in captures(second.done)


@pytest.mark.req("SES-1", "DEF-3", "CAN-8")
def test_the_last_request_again_after_a_restart(talk: Callable[..., Talk], tmp_path: Path) -> None:
    """Computed from its last message on, as if nothing had been."""
    again = shapes.after_restart(lambda: talk(device_state_slots=64), tmp_path / "two.ninfer")
    assert found(again) == (13, 2024, "TurnClosure", 2011, "fork")


def test_the_benchmark_takes_no_other_count(talk: Callable[..., Talk]) -> None:
    with talk() as engine:
        right = shapes.second_conversation(engine)
    found = demands([right, replace(right, expected=999), replace(right, expected=1001)])
    assert [demand.met for demand in found] == [True, False, False]
    assert "| 2,000 | 1,000 | 1,000 | SharedStablePrefix at 1,000 | 979 |" in table([right])[-1]
