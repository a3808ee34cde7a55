"""What is reused in a tool loop with the published template, thinking and not: tables worked out by hand.

With thinking, the template keeps the reasoning of the loop that is going on: a call in history has the tokens that it
was said with, so that each step goes on from the end of the one before. A new question drops all of it: back to where
the loop began. Without thinking the opener writes an empty think block that history never shows: back to the last
opener.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ninfer_core import CacheIntent, Message
from ninfer_core.frontend.messages import ToolCall
from tests.support.talk import END, Talk, captures, line, starts

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}}]
OPENER = {True: 13, False: 17}
"""<|im_start|>assistant, a line end, and <think> with one line end, or <think>, two, </think> and two again."""


class Loop:
    def __init__(self, talk: Talk, thinking: bool) -> None:
        self.talk, self.thinking = talk, thinking
        self.messages = [Message("system", "S" * 50), Message("user", "a" * 100)]
        self.captures: list[tuple[str, int, str]] = []

    def step(self, *coming: Message) -> tuple[int, tuple[str, int, str]]:
        """Ask, have the model reply what history will show of it, and go on with what comes then: (opener, line)."""
        prompt = self.talk.engine.prepare(self.messages, tools=TOOLS, thinking=self.thinking)
        after = self.talk.engine.prepare([*self.messages, *coming], tools=TOOLS, thinking=self.thinking)
        opener = starts(prompt)[-1]
        assert len(prompt) == opener + OPENER[self.thinking]
        # In history an assistant's message starts with its role and, as long as it is kept, the think block.
        begin = opener + (13 if self.thinking else 11)
        end = after.token_ids.index(END, begin)
        done = self.talk.say(prompt, after.token_ids[begin : end + 1], CacheIntent(session="loop"))
        self.messages.extend(coming)
        self.captures = captures(done)
        return opener, line(done)

    def call(self, value: str) -> tuple[Message, Message]:
        calls = (ToolCall("f", {"x": value}),)
        return (
            Message("assistant", "", reasoning_content="r" if self.thinking else None, tool_calls=calls),
            Message("tool", f"out {value}"),
        )

    def answer(self, question: str) -> tuple[Message, Message]:
        reasoning = "r" if self.thinking else None
        return Message("assistant", "done", reasoning_content=reasoning), Message("user", question)


@pytest.mark.req("DEF-3", "ID-3", "VAL-9", "CKP-3")
def test_a_thinking_loop_goes_on_from_its_ends(talk: Callable[..., Talk]) -> None:
    with talk() as engine:
        loop = Loop(engine, thinking=True)
        first, row = loop.step(*loop.call("1"))
        assert row == ("Root", 0, "none")
        ends = [len(engine.paths[-1])]
        _, row = loop.step(*loop.call("2"))
        assert row == ("SessionEndpoint", ends[-1], "move")
        ends.append(len(engine.paths[-1]))
        third, row = loop.step(*loop.answer("b" * 100))
        assert row == ("SessionEndpoint", ends[-1], "move")
        kinds = {frontier: (kind, outcome) for kind, frontier, outcome in loop.captures if kind != "SharedStablePrefix"}
        assert kinds[first] == ("TurnClosure", "present"), "it came along with each Move"
        assert kinds[third] == ("ResponseReplay", "captured")
        assert kinds[ends[-1]] == ("LongAnchor", "captured")
        _, row = loop.step(*loop.answer("c"))
        assert row == ("TurnClosure", first, "fork"), "a new question drops the reasoning of the whole loop"


@pytest.mark.req("DEF-3", "CAN-3")
def test_a_loop_without_thinking_goes_on_from_its_openers(talk: Callable[..., Talk]) -> None:
    with talk() as engine:
        loop = Loop(engine, thinking=False)
        first, row = loop.step(*loop.call("1"))
        assert row == ("Root", 0, "none")
        tools, system = loop.captures[0], loop.captures[2]
        assert tools[0] == system[0] == "SharedStablePrefix" and tools[2:] == ("captured",)
        second, row = loop.step(*loop.call("2"))
        assert row == ("TurnClosure", first, "fork")
        third, row = loop.step(*loop.answer("b" * 100))
        assert row == ("ResponseReplay", second, "fork")
        _, row = loop.step(*loop.answer("c"))
        assert row == ("ResponseReplay", third, "fork"), "nothing was reasoned, nothing is dropped"

        other = Loop(engine, thinking=False)
        other.messages[0] = Message("system", "T" * 50)
        _, row = other.step(*other.call("1"))
        assert row == ("SharedStablePrefix", tools[1], "fork"), "other instructions under the same tools"
        assert tools[1] < system[1]
