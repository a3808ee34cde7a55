"""What stands in a conversation's tree: frozen values without identity. Ids and links belong to the Tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ninfer_core import FinishReason, Message, RequestStatistics, ToolCall


class Author(Enum):
    """Who wrote a reply."""

    MODEL = "model"
    PERSON = "person"
    IMPORT = "import"


@dataclass(frozen=True, slots=True)
class Record:
    """How a reply was generated.

    Attributes:
        seed: None when greedy.
        sampling: the values of every sampling setting but the seed.
        statistics: usage, reuse record and timings of the request.
    """

    model: str
    seed: int | None
    sampling: Mapping[str, float]
    max_new: int
    stop: tuple[str, ...]
    thinking_budget: int | None
    statistics: RequestStatistics


@dataclass(frozen=True, slots=True)
class Reply:
    """An assistant's reply.

    Attributes:
        finish: why it ended; STOP where nobody generated it.
        think: the thinking mode of the generation opener that it stands behind.
        token_ids: its own ids behind that opener, end token included; empty where it was not generated.
        record: None where it was not generated.
    """

    text: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    finish: FinishReason = FinishReason.STOP
    author: Author = Author.MODEL
    think: bool | None = None
    token_ids: tuple[int, ...] = field(default=(), repr=False)
    record: Record | None = field(default=None, repr=False)

    @property
    def interrupted(self) -> bool:
        return self.finish is FinishReason.INTERRUPTED

    def message(self, *, unfinished: bool = False) -> Message:
        """The reply as the next prompt holds it. Reasoning is always a string: without one, a template looks for
        `</think>` in the content, and an answer that quotes it would lose what stands before."""
        return Message(
            role="assistant",
            content=self.text,
            reasoning_content=self.reasoning or "",
            tool_calls=self.tool_calls,
            token_ids=self.token_ids or None,
            unfinished=unfinished,
        )


@dataclass(frozen=True, slots=True)
class Start:
    """Where a conversation begins.

    Attributes:
        leading: its system (or developer) messages.
        tools: JSON schemas of the tools, or None.
    """

    leading: tuple[Message, ...] = ()
    tools: tuple[dict[str, Any], ...] | None = None

    @classmethod
    def with_system(cls, text: str | None) -> Start:
        return cls((Message("system", text),) if text else ())

    @property
    def system(self) -> str | None:
        """The system message as the model reads it, several joined by a blank line."""
        return "\n\n".join(message.content for message in self.leading) or None


@dataclass(frozen=True, slots=True)
class Turn:
    """What was said, and the reply. asked holds a user's message, or tool results; an import may bring several."""

    asked: tuple[Message, ...]
    reply: Reply

    @property
    def user(self) -> Message | None:
        """The last user message of what was said."""
        return next((message for message in reversed(self.asked) if message.role == "user"), None)

    @property
    def text(self) -> str:
        """What was said, for people."""
        return "\n\n".join(message.content for message in self.asked)

    def with_user_text(self, text: str) -> tuple[Message, ...]:
        """What is said when the user's message is rewritten."""
        user = self.user
        return tuple(Message("user", text, name=m.name) if m is user else m for m in self.asked)
