"""ActiveRequest: one request inside the worker, from submission to its last event."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum

from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.plans import RequestWork, SequenceHandle
from ninfer_core.contract.statistics import Capture, Planning, RequestStatistics, Reuse, Timings, Transfer, Usage
from ninfer_core.engine.channel import EventChannel
from ninfer_core.engine.events import FinishReason
from ninfer_core.engine.request import GenerationRequest
from ninfer_core.frontend.output import OutputSession


class Wish(Enum):
    """What callers asked of a request. Wishes only grow: who cancelled does not get a kept state back."""

    GO_ON = "go_on"
    INTERRUPT = "interrupt"
    """End at the next token boundary and keep what there is (DEF-4: an early Finish)."""
    CANCEL = "cancel"
    """Stop and keep nothing (DEF-4: Discard)."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a running request ends, noted while its state cannot be settled yet. keep: publish its continuation."""

    reason: FinishReason
    error: BaseException | None
    keep: bool


@dataclass(slots=True)
class Clock:
    """Moments of one request, perf_counter seconds."""

    submitted: float = field(default_factory=time.perf_counter)
    admitted: float | None = None
    prefilled: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    def timings(self, tokens: int) -> Timings:
        def ms(begin: float | None, end: float | None) -> float | None:
            return None if begin is None or end is None else (end - begin) * 1e3

        rate = None
        if tokens > 1 and self.first_token is not None and self.last_token is not None:
            rate = (tokens - 1) / max(self.last_token - self.first_token, 1e-9)
        return Timings(
            queued_ms=ms(self.submitted, self.admitted),
            ttft_ms=ms(self.submitted, self.first_token),
            prefill_ms=ms(self.admitted, self.prefilled),
            decode_tokens_per_s=rate,
        )


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """
    Attributes:
        work: what was reserved for it; `work.sampling.seed` is the seed in use.
        wish: written by callers through `Worker.wish`, read by the worker at token boundaries.
        token_ids: accepted output tokens, forced ones included.
        prefilled: prompt tokens in the state, reused ones included.
        prompt_done: the first token has been drawn.
        attempts: admissions whose transition was aborted.
        held: its next pass waits for the open transition's end, and runs before another one may start.
        ending: it has ended, and waits for the open transition before its state is kept or released (ACT-4).
        kept: a continuation was published at its end.
        reasoning_tokens: output tokens of the open think block, for the thinking budget.
    """

    id: RequestId
    request: GenerationRequest
    work: RequestWork
    output: OutputSession
    channel: EventChannel = field(default_factory=EventChannel)
    clock: Clock = field(default_factory=Clock)
    wish: Wish = Wish.GO_ON
    handle: SequenceHandle | None = None
    reuse: Reuse = field(default_factory=Reuse)
    planning: Planning = field(default_factory=Planning)
    transfer: Transfer = field(default_factory=Transfer)
    captures: tuple[Capture, ...] = ()
    attempts: int = 0
    held: bool = False
    ending: Ending | None = None
    kept: bool = False
    token_ids: list[int] = field(default_factory=list)
    prefilled: int = 0
    prompt_done: bool = False
    reasoning_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt)

    @property
    def most_new(self) -> int:
        """Output tokens that the reservation covers."""
        return self.work.lifetime_tokens - self.prompt_tokens

    def statistics(self) -> RequestStatistics:
        computed = max(0, self.prefilled - self.reuse.frontier)
        return RequestStatistics(
            usage=Usage(self.prompt_tokens, self.reuse.frontier, computed, len(self.token_ids)),
            reuse=self.reuse,
            transfer=self.transfer,
            planning=self.planning,
            captures=self.captures,
            timings=self.clock.timings(len(self.token_ids)),
        )
