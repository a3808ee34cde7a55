"""Job: replies that a message or a command asks for. Until it is carried out nothing has happened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ninfer_cli.repl.node import Record, Reply, Turn
from ninfer_cli.repl.tree import NodeId
from ninfer_cli.settings import SAMPLING_FIELDS
from ninfer_core import Completion, FinishReason, Message, NinferError

if TYPE_CHECKING:
    from ninfer_core import GenerationRequest


class ReplyFailed(NinferError):
    """The reply ended with an error; the conversation is as it was before."""

    def __init__(self, completion: Completion) -> None:
        super().__init__(completion.error or "the request failed without a message")
        self.completion = completion


@dataclass(frozen=True, slots=True)
class Job:
    """
    Attributes:
        parent: the node that the new turns stand behind.
        asked: what is said in them.
        requests: one for each sibling; they are submitted together.
        think: the thinking mode of their prompts.
        before: /continue: the reply that goes on.
        opener: with before, how many prompt tokens stand before that reply.
        unsent: what belongs back into the input line when no turn came of it.
        spends_files: the files that wait are part of what is said.
    """

    parent: NodeId
    asked: tuple[Message, ...]
    requests: tuple[GenerationRequest, ...]
    think: bool | None
    before: Reply | None = None
    opener: int = 0
    unsent: str = ""
    spends_files: bool = False

    def turn(self, completion: Completion, model: str, index: int = 0) -> Turn | None:
        """The turn that a finished request makes: none if it failed, was interrupted before a token, or added nothing
        to the reply that was to go on."""
        if completion.finish_reason is FinishReason.ERROR:
            return None
        interrupted = completion.finish_reason is FinishReason.INTERRUPTED
        if (interrupted and not completion.token_ids) or (self.before is not None and not _says(completion)):
            return None
        request = self.requests[index]
        record = Record(
            model=model,
            seed=completion.seed,
            sampling={name: getattr(request.sampling, name) for name in SAMPLING_FIELDS if name != "seed"},
            max_new=request.max_new,
            stop=request.stop,
            thinking_budget=request.thinking_budget,
            statistics=completion.statistics,
        )
        reply = Reply(
            text=completion.text,
            reasoning=completion.reasoning,
            tool_calls=completion.tool_calls,
            finish=completion.finish_reason,
            think=self.think,
            token_ids=completion.token_ids,
            record=record,
        )
        return Turn(self.asked, reply if self.before is None else self._joined(self.before, reply, completion))

    def _joined(self, before: Reply, more: Reply, completion: Completion) -> Reply:
        reasoning = (before.reasoning or "") + (more.reasoning or "")
        own = completion.prompt_token_ids[self.opener :] + completion.token_ids
        return replace(more, text=before.text + more.text, reasoning=reasoning or None, token_ids=own)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request. node is None where it made no turn."""

    completion: Completion
    node: NodeId | None


def _says(completion: Completion) -> bool:
    return bool(completion.text or completion.reasoning or completion.tool_calls)
