"""Sequence: one active request as Program sees it. The ledger runs ahead of the frontier by what is not executed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ninfer_core.contract.ids import Frontier, OwnerId
from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.contract.results import Grant
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.execution.sampling import SamplerRow
from ninfer_core.program.identity import Identity, Unit


class SequenceStatus(Enum):
    ACTIVE = "active"
    PENDING = "pending"
    """A pass has run and is not yet committed."""
    FAILED = "failed"
    """A pass was lost: the state is past the frontier and cannot be rolled back. Only discard is left."""
    TERMINAL_PENDING = "terminal_pending"
    """The request has ended; handle and reservation stay until finish or discard (ACT-4)."""


@dataclass(frozen=True, slots=True)
class ArmedCapture:
    """A checkpoint that is written when a pass reaches its frontier."""

    frontier: Frontier
    kind: SourceKind
    grant: Grant


@dataclass(slots=True)
class Sequence:
    """
    Attributes:
        owner: its place in the ledger of the world.
        ledger: prompt, then every accepted output token.
        prompt_tokens: length of the prompt in the ledger.
        lifetime_tokens: the ledger never grows beyond it.
        frontier: tokens executed: state and KV cover ledger[:frontier].
        cuts: rewrite execution frontiers, ascending: the scan is cut at each (ID-2). All are the prompt's: they lie
            where an assistant's message opens, and a reply ends before another can. So the accepted output joins the
            identity with its tokens alone (ID-3).
        mode: template and runtime mode, part of the identity.
        trace: the units that ran, from token 0, those of the source included (ID-4).
        forced: positions of output tokens that were not drawn.
        armed: captures to come, ascending.
        schedule: the only frontiers at which it may be captured, its first one included; None where that is open.
    """

    handle: SequenceHandle
    owner: OwnerId
    ledger: list[int]
    prompt_tokens: int
    lifetime_tokens: int
    sampler: SamplerRow
    cuts: tuple[Frontier, ...] = ()
    mode: tuple[tuple[str, str], ...] = ()
    frontier: Frontier = field(default=Frontier(0))
    status: SequenceStatus = SequenceStatus.ACTIVE
    trace: list[Unit] = field(default_factory=list)
    forced: list[int] = field(default_factory=list)
    armed: list[ArmedCapture] = field(default_factory=list)
    schedule: frozenset[int] | None = None

    @property
    def unexecuted(self) -> int:
        return len(self.ledger) - self.frontier

    def identity(self, frontier: int) -> Identity:
        """The identity of the first frontier tokens."""
        return Identity.of(self.ledger, self.cuts, self.mode, frontier)
