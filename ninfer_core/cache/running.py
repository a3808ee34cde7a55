"""RunningRequest: what ResourceManager knows of a request that is Active."""

from __future__ import annotations

from dataclasses import dataclass, field

from ninfer_core.cache.anchors import Wish
from ninfer_core.cache.candidates import Asker, Candidate
from ninfer_core.cache.catalog import CellId
from ninfer_core.cache.evidence import Power, SharedCandidate
from ninfer_core.contract.ids import OwnerId, RequestId
from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.contract.statistics import Capture, SourceKind


@dataclass(slots=True)
class Intended:
    """What a running request would like to leave at one frontier.

    Attributes:
        wish: a recovery point of its own continuation, or None.
        shared: a prefix for others, or None.
        power: what the shared one may do for it.
        armed: the private one will be written by the pass that reaches the frontier.
        armed_shared: as before, for one that is captured for the public alone.
        shared_cell: where the shared one will be catalogued.
    """

    frontier: int
    wish: Wish | None = None
    shared: SharedCandidate | None = None
    power: Power = Power.NONE
    armed: bool = False
    armed_shared: bool = False
    shared_cell: CellId | None = None

    @property
    def kinds(self) -> tuple[SourceKind, ...]:
        """What would come of it."""
        own = () if self.wish is None else (self.wish.kind,)
        return own if self.shared is None else (*own, SourceKind.SHARED_STABLE_PREFIX)


@dataclass(slots=True)
class RunningRequest:
    """
    Attributes:
        order: publication order (RET-3).
        owner: the active sequence's.
        cell: the private cell that its continuation will take, or None: its end is discarded (RET-4).
        candidate: where it started from.
        schedule: the frontiers behind that at which it may be captured (PLAN-12).
        intended: captures to come, ascending.
        captures: what became of them (STAT-1).
    """

    request: RequestId
    order: int
    asker: Asker
    domain: bytes
    handle: SequenceHandle
    owner: OwnerId
    cell: CellId | None
    candidate: Candidate
    schedule: frozenset[int]
    intended: list[Intended] = field(default_factory=list)
    captures: list[Capture] = field(default_factory=list)

    @property
    def base(self) -> int:
        """The frontier that it started from: what lies before was not computed again."""
        return self.candidate.frontier

    @property
    def prompt_end(self) -> int:
        """The pass that reaches it draws the first token: no later pass comes that could capture there."""
        return len(self.asker.work.prompt)

    @property
    def rewrites_ahead(self) -> int:
        """Rewrite checkpoints to come that have no room yet: what is less likely to be used leaves them theirs."""
        ahead = (i for i in self.intended if i.wish is not None and not i.armed)
        return sum(1 for i in ahead if i.wish is not None and i.wish.rewrite and not i.wish.spare)

    def note(self, kind: SourceKind, frontier: int, outcome: str, reason: str | None = None) -> None:
        """One capture was made, or skipped for a reason."""
        self.captures.append(Capture(kind, int(frontier), outcome, reason))
