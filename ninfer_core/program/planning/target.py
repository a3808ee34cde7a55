"""Target: a candidate together with the complete end state of every affected inactive owner (TGT-1)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.ledger.objects import Checkpoint
from ninfer_core.program.planning.outcome import Outcome


class SourceMode(Enum):
    RETAIN = "retain"
    """The source owner stays as it is; the sequence forks from it."""
    CONSUME = "consume"
    """The source owner becomes the sequence: what lies above the reuse base goes (CAN-8)."""


class Source(Struct, frozen=True):
    """The checkpoint that a sequence starts from.

    Attributes:
        lineage: with CONSUME, the owner's checkpoints that stay with the sequence, ascending, none above the source.
            The source itself is among them unless it is consumed too (an endpoint: DEF-2).
    """

    owner: OwnerId
    checkpoint: Checkpoint
    mode: SourceMode
    lineage: tuple[Checkpoint, ...] = ()


class Activation(Struct, frozen=True):
    """A sequence that shall become active.

    Attributes:
        source: None for root.
        lifetime_pages: pages that its whole life needs, per pool.
    """

    source: Source | None
    lifetime_pages: tuple[int, ...]


class Capture(Struct, frozen=True):
    """Room that a checkpoint of a running sequence needs before it can be written.

    Attributes:
        device_image, host_image: where its StateImage goes; at most one is true, neither when the sequence's own image
            is frozen and its successor takes the slot that is counted here as device_image.
        tail_pages: pages to copy, per pool: 1 where the frontier is not aligned (KV-4).
    """

    owner: OwnerId
    device_image: bool
    host_image: bool
    tail_pages: tuple[int, ...]


class Target(Struct, frozen=True):
    """
    Attributes:
        demand: what shall be made room for: an activation, a capture, or nothing (an explicit release).
        outcomes: the end state of every eligible owner that differs from what it is now.
    """

    demand: Activation | Capture | None
    outcomes: Mapping[OwnerId, Outcome] = field(default_factory=dict)


def source_of(target: Target) -> Source | None:
    """The source of an activation; None without one."""
    return target.demand.source if isinstance(target.demand, Activation) else None
