"""Chat: one conversation with one Engine. It neither reads a keyboard nor draws; the loops do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ninfer_cli.generation import follow
from ninfer_cli.inputs import joined
from ninfer_cli.repl.conversation import Conversation, Root, Turn
from ninfer_core import Completion, FinishReason, GenerationRequest, Message, NinferError

if TYPE_CHECKING:
    from ninfer_cli.reply_view import ReplyView
    from ninfer_cli.settings import Settings
    from ninfer_core import Engine


class ReplyFailed(NinferError):
    """The reply ended with an error; the conversation is as it was before."""

    def __init__(self, completion: Completion) -> None:
        super().__init__(completion.error or "the request failed without a message")
        self.completion = completion


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one message. turn is None when it was interrupted before a token was there."""

    completion: Completion
    turn: Turn | None


@dataclass(slots=True)
class Chat:
    """The state that the loops and the commands share.

    Attributes:
        initial: the settings at the start, which `/set KEY default` goes back to.
        files: texts that --file and /file put before the next message.
        last: the last reply that was begun, also if it failed.
    """

    engine: Engine
    settings: Settings
    conversation: Conversation
    initial: Settings
    files: list[str] = field(default_factory=list)
    last: Completion | None = None

    @classmethod
    def start(cls, engine: Engine, settings: Settings, system: str | None, files: list[str]) -> Chat:
        return cls(engine, settings, Conversation(Root(system)), settings, files)

    def say(self, text: str, view: ReplyView, wants_end: Callable[[], bool]) -> Reply:
        """Ask for a reply and add the turn.

        Raises:
            UsageError: the prompt cannot be rendered or is too long; nothing was changed.
            ReplyFailed: the reply ended with an error; nothing was added.
        """
        user = Message(role="user", content=joined([*self.files, text]))
        completion = follow(self.engine.submit(self._request(user)), view, wants_end)
        self.last = completion
        if completion.finish_reason is FinishReason.ERROR:
            raise ReplyFailed(completion)
        if completion.finish_reason is FinishReason.INTERRUPTED and not completion.token_ids:
            return Reply(completion, None)
        self.files.clear()
        return Reply(completion, self.conversation.add(user, completion))

    def context_used(self) -> int:
        """Tokens of the current path after its last reply, as far as they are known without rendering."""
        turn = self.conversation.current
        if turn is None:
            return 0
        usage = turn.completion.statistics.usage
        return usage.prompt_tokens + usage.completion_tokens

    def prompt_length(self) -> int:
        """Tokens that the current path renders to; 0 while nothing was said."""
        messages = self.conversation.messages()
        return len(self.engine.prepare(messages, thinking=self.settings.think)) if self.conversation.current else 0

    def _request(self, user: Message) -> GenerationRequest:
        settings = self.settings
        return GenerationRequest(
            prompt=self.engine.prepare(self.conversation.messages(user), thinking=settings.think),
            sampling=settings.sampling(self.engine.default_sampling),
            max_new=settings.max_new,
            stop=settings.stop,
            thinking_budget=settings.thinking_budget,
        )
