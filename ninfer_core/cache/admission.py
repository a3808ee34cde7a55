"""What is asked of ResourceManager for a request, and what it answers (context-cache PLAN-11)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.plans import RequestWork, SequenceHandle
from ninfer_core.contract.statistics import Planning, Reuse, Transfer


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as the Scheduler hands it over. `order` is its publication order (RET-3)."""

    request: RequestId
    work: RequestWork
    intent: CacheIntent = field(default_factory=CacheIntent)

    @property
    def order(self) -> int:
        return int(self.request)


@dataclass(frozen=True, slots=True)
class Passing:
    """A request that would pass the blocked head: only with Program's proof (ACT-5).

    Attributes:
        donors: what the head waits for the end of.
    """

    head: Ask
    donors: tuple[SequenceHandle, ...]


@dataclass(frozen=True, slots=True)
class Blocked:
    """Not now: look again when a lane, protection, a transition or the resource revision changes (PLAN-11)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Never: the request exceeds what this Engine has even when it is alone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """The choice takes more than one piece, and has changed nothing yet: call `advance` between decode rounds."""


@dataclass(frozen=True, slots=True)
class Transferring:
    """The plan has started and takes several steps: call `advance` between decode rounds."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The sequence is Active; what was reused and what it took to decide."""

    handle: SequenceHandle
    reuse: Reuse
    planning: Planning
    transfer: Transfer


@dataclass(frozen=True, slots=True)
class Failed:
    """The transition was aborted, or not begun since nobody wants it any more; nothing that was valid is lost. The
    request may be tried again.

    Attributes:
        begun: a transition was open.
    """

    reason: str
    begun: bool = True


Admission = Admitted | Blocked | Refused | Undecided | Transferring | Failed
