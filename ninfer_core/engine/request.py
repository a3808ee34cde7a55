"""GenerationRequest: one thing to generate, fixed before it enters the queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.errors import UsageError

DEFAULT_MAX_NEW = 4096


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One request.

    Attributes:
        prompt: from `Engine.prepare`, `prepare_text` or `prepare_tokens`.
        sampling: how tokens are drawn.
        max_new: most tokens to generate; shortened to the remaining context, then the request ends with LENGTH. With 0
            the prompt is read and nothing is generated.
        stop: strings that end the answer; the text ends before the first that occurs.
        thinking_budget: most tokens of reasoning before the think block is closed by force; None is no limit.
        ignore_end: go on after end tokens (benchmarks).
        tools: JSON schemas of the tools, to type the arguments of parsed calls.
        cache: what it may do with the context cache (REQ-1).

    Raises:
        UsageError: a value outside its range.
    """

    prompt: PreparedPrompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_new: int = DEFAULT_MAX_NEW
    stop: tuple[str, ...] = ()
    thinking_budget: int | None = None
    ignore_end: bool = False
    tools: tuple[dict[str, object], ...] | None = None
    cache: CacheIntent = field(default_factory=CacheIntent)

    def __post_init__(self) -> None:
        if not _is_whole(self.max_new) or self.max_new < 0:
            raise UsageError(f"max-new is {self.max_new!r}: it must be a whole number, 0 or more")
        budget = self.thinking_budget
        if budget is not None and (not _is_whole(budget) or budget < 0):
            raise UsageError(f"thinking-budget is {budget!r}: it must be a whole number, 0 or more")
        if not isinstance(self.sampling, SamplingParams):
            raise UsageError(f"sampling is a {type(self.sampling).__name__}: give SamplingParams")
        # A lone string would pass as a list of its characters and end the reply at the first of them.
        if isinstance(self.stop, str) or not all(isinstance(s, str) for s in self.stop):
            raise UsageError(f"stop is {self.stop!r}: give a tuple of texts")
        if any(not s for s in self.stop):
            raise UsageError("a stop string is empty: give at least one character")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
