"""Chat: a tree of messages over a Talk, as a person walks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ninfer_core import CacheIntent, Completion, Message
from ninfer_core.contract.prompt import PreparedPrompt
from tests.support.talk import Talk, line, told

Row = tuple[int, str, int, str]
"""(prompt tokens, source, frontier, operation)."""

Step = tuple[int, str, int, str, list[str]]
"""The same, and what became of the request's captures: see `told`."""

A, B, C, D = ("a" * 100, "b" * 100, "c" * 100, "d" * 100)
"""Messages that take 108 tokens each in the byte vocabulary."""


def after(talk: Talk, *steps: Step) -> Chat:
    """A conversation whose first turns, A, B and so on, did just this."""
    chat = Chat(talk)
    for text, _ in zip((A, B, C, D), steps, strict=False):
        chat.ask(text)
    assert chat.steps() == list(steps)
    return chat


class Chat:
    """The last step's prompt and Completion are `prompt` and `done`, and what the steps did is kept until it is asked
    for."""

    def __init__(
        self, talk: Talk, system: str = "S" * 50, *, session: str | None = "one", thinking: bool | None = None
    ):
        self.talk = talk
        self.messages = [Message("system", system)] if system else []
        self.session = session
        self.thinking = thinking
        self.tools: list[dict[str, Any]] | None = None
        self.prompt: PreparedPrompt
        self.done: Completion
        self._steps: list[Step] = []

    def ask(self, text: str, answer: str = "xx", **cache: Any) -> None:
        """One more user message, and a reply with a little reasoning where the reply opens with it."""
        self.messages.append(Message("user", text))
        self.reply(answer, "hmm", Message("assistant", answer), **cache)

    def reply(self, text: str, reasoning: str, message: Message, **cache: Any) -> None:
        """Have the model reply to what is there, with the reasoning where the reply opens with it; history shows the
        message from then on."""
        reasons = self.thinking is not False
        self.prompt = self.talk.engine.prepare(self.messages, tools=self.tools, thinking=self.thinking)
        begin = f"{reasoning}\n</think>\n\n" if reasons else ""
        self.done = self.talk.say(self.prompt, f"{begin}{text}<|im_end|>", CacheIntent(session=self.session, **cache))
        self._steps.append((len(self.prompt), *line(self.done), told(self.done)))
        self.messages.append(replace(message, reasoning_content=reasoning if reasons else None))

    def again(self, answer: str) -> None:
        """Regenerate the last reply."""
        self.edit(1, self.messages[-2].content, answer)

    def edit(self, back: int, text: str, answer: str = "xx") -> None:
        """Say something else instead of the last-but-so-many user message; what followed it is gone."""
        del self.messages[-2 * back :]
        self.ask(text, answer)

    def steps(self) -> list[Step]:
        """Of the steps since it was asked last."""
        steps, self._steps = self._steps, []
        return steps

    def table(self) -> list[Row]:
        """The same without what was captured."""
        return [step[:4] for step in self.steps()]
