"""ResourceResult: where a transaction ended, in absolute facts (context-cache TXN-9). Nothing in it is a delta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ninfer_core.contract.ids import CheckpointRef, ImageId, LogicalPage, OwnerId, Revision
from ninfer_core.contract.statistics import Placement, SourceKind, Transfer


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """What the logical side may know of a checkpoint: never a slot, a page or a count."""

    ref: CheckpointRef
    kind: SourceKind
    frontier: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class OwnerSummary:
    """An owner as it is now; `deleted` are exactly the checkpoints that it has lost in this transaction."""

    owner: OwnerId
    checkpoints: tuple[CheckpointSummary, ...]
    deleted: frozenset[CheckpointRef]

    @property
    def gone(self) -> bool:
        return not self.checkpoints


class Ending(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Grant:
    """Room for one capture: the image that a tap writes, and a page per pool whose tail has to be copied."""

    image: ImageId
    on_device: bool
    tails: tuple[LogicalPage | None, ...]


@dataclass(frozen=True, slots=True)
class ResourceResult:
    """
    Attributes:
        owner: the new active sequence, or None.
        grant: the room for a capture, or None.
        owners: every owner that the plan claimed, as it is now, whatever way it ended.
        transfer: what was copied.
        reason: a line for people when it was aborted.
        placed: inactive owners that nobody claimed, as they are now: they share objects that have come to other places.
    """

    ending: Ending
    revision: Revision
    owner: OwnerId | None
    grant: Grant | None
    owners: Mapping[OwnerId, OwnerSummary]
    transfer: Transfer
    reason: str = ""
    placed: tuple[OwnerSummary, ...] = ()

    @classmethod
    def refused(cls, revision: Revision, reason: str) -> ResourceResult:
        """A transition that was never begun: nothing is claimed, nothing was touched (INV-10)."""
        return cls(Ending.ABORTED, revision, None, None, {}, Transfer(), reason)
