"""What one request did, as frozen values (context-cache STAT-1, STAT-2). A value that does not apply is None."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SourceKind(Enum):
    """Where a request started from. The values are the words that people and JSON see."""

    ROOT = "Root"
    SESSION_ENDPOINT = "SessionEndpoint"
    TURN_CLOSURE = "TurnClosure"
    RESPONSE_REPLAY = "ResponseReplay"
    LONG_ANCHOR = "LongAnchor"
    SHARED_STABLE_PREFIX = "SharedStablePrefix"


class Placement(Enum):
    NONE = "none"
    DEVICE = "device"
    HOST = "host"
    MIXED = "mixed"


class SourceOperation(Enum):
    NONE = "none"
    MOVE = "move"
    FORK = "fork"
    RESTORE = "restore"


class MissReason(Enum):
    DIVERGED = "diverged"
    NO_CHECKPOINT = "no_checkpoint"
    EVICTED = "evicted"
    CAPACITY = "capacity"
    BUDGET = "budget"
    IDENTITY = "identity"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Miss:
    """Tokens [start, end) of the prompt were computed again, for one reason."""

    start: int
    end: int
    reason: MissReason
    detail: str


@dataclass(frozen=True, slots=True)
class Reuse:
    """The source that the request started from; tokens [0, frontier) were not computed again."""

    source: SourceKind = SourceKind.ROOT
    frontier: int = 0
    placement: Placement = Placement.NONE
    operation: SourceOperation = SourceOperation.NONE
    misses: tuple[Miss, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    reused_tokens: int
    prefill_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Transfer:
    bytes: int = 0
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Planning:
    """stop: a stop reason of PLAN-10; targets: how many were assessed."""

    ms: float = 0.0
    stop: str = "no_pressure"
    targets: int = 1


@dataclass(frozen=True, slots=True)
class Capture:
    kind: SourceKind
    frontier: int
    outcome: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall-clock figures.

    Attributes:
        queued_ms: submission to admission.
        ttft_ms: submission to the first sampled token, or None when there was none.
        prefill_ms: admission to the end of prefill, other rows' rounds included.
        decode_tokens_per_s: tokens after the first over the time after the first, or None below two tokens.
    """

    queued_ms: float | None
    ttft_ms: float | None
    prefill_ms: float | None
    decode_tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class RequestStatistics:
    usage: Usage
    reuse: Reuse
    transfer: Transfer
    planning: Planning
    captures: tuple[Capture, ...]
    timings: Timings
