"""Loop: a tool loop as a Chat, step by step."""

from __future__ import annotations

from ninfer_core import Message
from ninfer_core.frontend.messages import ToolCall
from tests.scenarios.chat import Chat
from tests.support.talk import Talk

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}}]


class Loop(Chat):
    """It begins with a question of 100 letters. The reasoning, if there is any, is one letter."""

    def __init__(
        self, talk: Talk, thinking: bool = True, *, system: str = "S", session: str = "loop", question: str = "a"
    ):
        super().__init__(talk, system * 50, session=session, thinking=thinking)
        self.tools = TOOLS
        self.messages.append(Message("user", question * 100))

    def call(self, value: str, result: str) -> None:
        """The model calls the tool; the result comes back. Both are one letter."""
        words = f"<tool_call>\n<function=f>\n<parameter=x>\n{value}\n</parameter>\n</function>\n</tool_call>"
        self.reply(words, "r", Message("assistant", "", tool_calls=(ToolCall("f", {"x": value}),)))
        self.messages.append(Message("tool", f"out {result}"))

    def answer(self) -> None:
        self.reply("done", "r", Message("assistant", "done"))
