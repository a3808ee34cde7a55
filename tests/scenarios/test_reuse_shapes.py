"""The usual shapes of a 2,000-token conversation, and exactly how much of each is computed again.

With the published template: a system message of 60 tokens, eight user messages of 208, replies of 41 in history. User
message k starts at 60 + 249 (k - 1), its reply 208 tokens later: the eighth at 1803 and 2011. The opener takes 13.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ninfer_core import CacheIntent, Message
from tests.scenarios.chat import Chat
from tests.support.talk import Talk, captures, line

REPLY = "y" * 28


def user(k: int) -> str:
    return f"{k}" * 200


def grown(talk: Talk) -> Chat:
    """Turn by turn: each starts where the reply of the one before began."""
    chat = Chat(talk)
    for k in range(1, 9):
        chat.ask(user(k), REPLY)
    turns = [(60 + 249 * (k - 1) + 221, "TurnClosure", 60 + 249 * (k - 2) + 208, "fork") for k in range(2, 9)]
    assert chat.table() == [(281, "Root", 0, "none"), *turns]
    return chat


def sent_at_once(talk: Talk) -> Chat:
    chat = Chat(talk)
    for k in range(1, 8):
        chat.messages += [Message("user", user(k)), Message("assistant", REPLY)]
    chat.ask(user(8), REPLY)
    assert chat.table() == [(2024, "Root", 0, "none")]
    return chat


@pytest.mark.req("CAN-5", "DEF-3", "CAN-8")
@pytest.mark.parametrize("begun", [grown, sent_at_once])
def test_a_conversation_of_two_thousand_tokens(talk: Callable[..., Talk], begun: Callable[[Talk], Chat]) -> None:
    with talk(device_state_slots=64) as engine:
        chat = begun(engine)
        said = list(chat.messages)
        # The last request again: its opener, whatever the reply was.
        chat.again(REPLY)
        assert chat.table() == [(2024, "TurnClosure", 2011, "fork")]
        assert chat.done.statistics.usage.prefill_tokens == 13
        # Its last 100 tokens edited: the edited message.
        chat.edit(1, "8" * 100 + "z" * 100, REPLY)
        assert chat.table() == [(2024, "LongAnchor", 1803, "fork")]
        assert chat.done.statistics.usage.prefill_tokens == 221
        # Back to the branch before, and on: the new turn with the reply that it follows.
        chat.messages = list(said)
        chat.ask("n" * 100, REPLY)
        assert chat.table() == [(2024 - 13 + 41 + 108 + 13, "TurnClosure", 2011, "fork")]
        assert chat.done.statistics.usage.prefill_tokens == 41 + 108 + 13
        # A change at token 300, which lies in the first reply: from the last message boundary before it, at 268.
        chat.messages = list(said[:-1])
        changed = REPLY[: 300 - 268 - 11] + "!" + REPLY[300 - 268 - 10 :]
        chat.messages[2] = Message("assistant", changed)
        prompt = engine.engine.prepare(chat.messages)
        assert engine.common(prompt) == 300
        done = engine.say(prompt, "ok", CacheIntent(session="one"))
        assert done.statistics.reuse.frontier == 268 and done.statistics.usage.prefill_tokens == 2024 - 268
        assert [miss.reason.value for miss in done.statistics.reuse.misses] == ["no_checkpoint", "diverged"]


@pytest.mark.req("CAN-3", "EVI-1")
def test_a_second_conversation_under_a_long_system_prompt(talk: Callable[..., Talk]) -> None:
    """1,000 tokens of instructions: the second conversation computes its user part and the opener."""
    with talk() as engine:
        first, second = (Chat(engine, "S" * 990, session=name) for name in ("first", "second"))
        first.ask("a" * 100)
        second.ask("b" * 100)
        assert first.table() == [(1121, "Root", 0, "none")]
        assert second.table() == [(1121, "SharedStablePrefix", 1000, "fork")]
        assert second.done.statistics.usage.prefill_tokens == 108 + 13
        assert ("SharedStablePrefix", 1000, "present") in captures(second.done)
        assert line(second.done) != line(first.done)


@pytest.mark.req("SES-1", "DEF-3", "CAN-8")
def test_the_last_request_again_after_a_restart(talk: Callable[..., Talk], tmp_path: Path) -> None:
    """Saved, ended, read by another Engine: computed from its last message on, as if nothing had been."""
    with talk(device_state_slots=64) as engine:
        chat = sent_at_once(engine)
        said = list(chat.messages[:-1])
        engine.engine.save_session(tmp_path / "two.ninfer", [engine.paths[-1]], {})
    with talk(device_state_slots=64) as another:
        restored = another.engine.restore_session(tmp_path / "two.ninfer")
        assert [c.frontier for c in restored.checkpoints[-1]][-2:] == [2011, 2059] and not restored.left_out
        another.paths = [engine.paths[-1]]
        done = another.say(another.engine.prepare(said), REPLY)
        assert line(done) == ("TurnClosure", 2011, "fork") and done.statistics.usage.prefill_tokens == 13
