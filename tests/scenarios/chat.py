"""Chat: a tree of messages over a Talk, as a person walks it."""

from __future__ import annotations

from typing import Any

from ninfer_core import CacheIntent, Completion, Message
from ninfer_core.contract.prompt import PreparedPrompt
from tests.support.talk import Talk, line

Row = tuple[int, str, int, str]
"""(prompt tokens, source, frontier, operation)."""


class Chat:
    """The last step's prompt and Completion are `prompt` and `done`, the rows of the steps since the last `table` are
    kept."""

    def __init__(
        self, talk: Talk, system: str = "S" * 50, *, session: str | None = "one", thinking: bool | None = None
    ):
        self.talk = talk
        self.messages = [Message("system", system)] if system else []
        self.session = session
        self.thinking = thinking
        self.prompt: PreparedPrompt
        self.done: Completion
        self._rows: list[Row] = []

    def ask(self, text: str, answer: str = "xx", **cache: Any) -> None:
        """One more user message, and a reply with a little reasoning where the reply opens with it."""
        self.messages.append(Message("user", text))
        reasons = self.thinking is not False
        self.prompt = self.talk.engine.prepare(self.messages, thinking=self.thinking)
        reply = f"hmm\n</think>\n\n{answer}<|im_end|>" if reasons else f"{answer}<|im_end|>"
        self.done = self.talk.say(self.prompt, reply, CacheIntent(session=self.session, **cache))
        self._rows.append((len(self.prompt), *line(self.done)))
        self.messages.append(Message("assistant", answer, reasoning_content="hmm" if reasons else None))

    def again(self, answer: str) -> None:
        """Regenerate the last reply."""
        self.edit(1, self.messages[-2].content, answer)

    def edit(self, back: int, text: str, answer: str = "xx") -> None:
        """Say something else instead of the last-but-so-many user message; what followed it is gone."""
        del self.messages[-2 * back :]
        self.ask(text, answer)

    def table(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows
