"""What a caller hears of its request, in order: Started, Prefilled*, deltas, Finished. All frozen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ninfer_core.contract.cache_table import AxisUse
from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.statistics import RequestStatistics, Reuse
from ninfer_core.frontend.messages import ToolCall


class FinishReason(Enum):
    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    INTERRUPTED = "interrupted"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Started:
    """The request is Active: everything it can need is reserved."""

    request_id: RequestId
    prompt_tokens: int
    reuse: Reuse


@dataclass(frozen=True, slots=True)
class Prefilled:
    """done of total prompt tokens are in the state, reused ones included."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A request's whole result.

    Attributes:
        text: the answer, tool calls removed when they were parsed.
        reasoning: text of the think block, or None when the output had none.
        tool_calls: parsed calls, or None.
        notice: one line for the person, such as a tool call that could not be parsed; or None.
        finish_reason: why it ended. LENGTH also when the context was full.
        error: one line, only with ERROR.
        cause: the exception behind error, or None.
        seed: the seed that was used, or None when greedy.
        prompt_token_ids, token_ids: the exact ledger; token_ids holds the end token and forced tokens too.
        statistics: STAT-1.
    """

    request_id: RequestId
    text: str
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...] | None
    notice: str | None
    finish_reason: FinishReason
    error: str | None
    cause: BaseException | None
    seed: int | None
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    statistics: RequestStatistics


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of every request.

    Attributes:
        axes: how full the context cache is now that the request has been settled.
    """

    completion: Completion
    axes: tuple[AxisUse, ...] = ()


Event = Started | Prefilled | ReasoningDelta | TextDelta | Finished
