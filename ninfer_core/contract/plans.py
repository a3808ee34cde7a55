"""What ResourceManager and Program say to each other: work, assessment, handles (context-cache AUT-6, TXN-1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ninfer_core.contract.ids import Frontier, Generation, SequenceId
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class RequestWork:
    """What a request needs for its whole life.

    Attributes:
        prompt: its tokens and boundaries.
        lifetime_tokens: prompt plus the largest output, the extent that its reservation covers (ACT-1).
        sampling: how its tokens are drawn, with a seed unless greedy.
    """

    prompt: PreparedPrompt
    lifetime_tokens: int
    sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class FinalScheduleIntent:
    """Where a request's prefill may leave checkpoints: fixed when its plan is sealed, and final from then on (PLAN-12).

    Attributes:
        frontiers: ascending, behind the reuse base and none beyond the prompt's end.
    """

    frontiers: tuple[Frontier, ...]


class Readiness(Enum):
    """The four outcomes of PLAN-11."""

    PERMANENTLY_INFEASIBLE = "permanently_infeasible"
    TEMPORARILY_BLOCKED = "temporarily_blocked"
    NEEDS_TRANSFER = "needs_transfer"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class SequenceHandle:
    """An active sequence. The generation stops a handle that outlived its sequence."""

    id: SequenceId
    generation: Generation
