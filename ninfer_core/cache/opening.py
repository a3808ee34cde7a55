"""Opening: the one logical transaction record (context-cache TXN-4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ninfer_core.cache.admission import Ask
from ninfer_core.cache.candidates import Asker, Candidate
from ninfer_core.cache.catalog import CellId
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.plans import FinalScheduleIntent
from ninfer_core.contract.statistics import Planning, Reuse
from ninfer_core.program.planning.plan import ResourcePlan
from ninfer_core.program.planning.target import Target
from ninfer_core.program.transactions.running import RunningTransaction


@dataclass(frozen=True, slots=True)
class Intent:
    """A request with the target that was chosen for it, and what it is told of the choice.

    Attributes:
        ready: it needs no copies and degrades nobody: the plan is driven to its end at once (PLAN-11).
        schedule: where it may leave checkpoints.
        keys: prefixes that it matched exactly or could create: its demand, once it is Active.
    """

    ask: Ask
    asker: Asker
    candidate: Candidate
    target: Target
    ready: bool
    reuse: Reuse
    planning: Planning
    keys: frozenset[bytes]
    schedule: FinalScheduleIntent

    @property
    def claims(self) -> frozenset[OwnerId]:
        """The owners that the target may change: victims, and the source."""
        source = () if self.candidate.owner is None else (self.candidate.owner,)
        return frozenset((*self.target.outcomes, *source))

    @property
    def consumed(self) -> OwnerId | None:
        """The owner that becomes the sequence."""
        return self.candidate.owner if self.candidate.consumes else None


@dataclass(frozen=True, slots=True)
class Destination:
    """The private cell of the continuation to come, found before Program is asked (RET-4).

    Attributes:
        cell: reserved; None where the consumed source or the heir brings it, or there is none at all.
        heir: the victim whose cell the continuation takes over, or None.
    """

    cell: CellId | None
    heir: OwnerId | None


@dataclass(frozen=True, slots=True)
class Opening:
    """From before start until adoption: what is claimed and reserved, beside Program's own transaction."""

    intent: Intent
    plan: ResourcePlan
    transaction: RunningTransaction
    destination: Destination


def heir_of(target: Target, holders: Mapping[OwnerId, object]) -> OwnerId | None:
    """A victim that leaves its private cell, or None."""
    return next((owner for owner, outcome in target.outcomes.items() if outcome.evicted and owner in holders), None)
