"""What the ledger speaks of: replicas, checkpoints, owners, extents. Frozen; needs are sets, never counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from msgspec import Struct

from ninfer_core.contract.ids import CheckpointRef, ImageId, LogicalPage, OwnerId
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.ledger.bits import lowest, mask_of, minus

STEP_PAGES = 16
"""Most pages of an extent that one step of a transition copies: decode rounds run between two steps (TXN-7)."""


class Replicas(Struct, frozen=True):
    """Which images and pages have, or shall have, a replica on Device and on Host. Four sets.

    They and what a planner makes of them (outcomes, targets, projections, work) are made by the thousand in a session:
    a Struct takes a tenth of the time of a frozen dataclass.
    """

    device_images: int = 0
    host_images: int = 0
    device_pages: int = 0
    host_pages: int = 0

    def __or__(self, other: Replicas) -> Replicas:
        return Replicas(
            self.device_images | other.device_images,
            self.host_images | other.host_images,
            self.device_pages | other.device_pages,
            self.host_pages | other.host_pages,
        )

    def __and__(self, other: Replicas) -> Replicas:
        return Replicas(
            self.device_images & other.device_images,
            self.host_images & other.host_images,
            self.device_pages & other.device_pages,
            self.host_pages & other.host_pages,
        )

    def without(self, other: Replicas) -> Replicas:
        return Replicas(
            minus(self.device_images, other.device_images),
            minus(self.host_images, other.host_images),
            minus(self.device_pages, other.device_pages),
            minus(self.host_pages, other.host_pages),
        )

    def only(self, images: int, pages: int) -> Replicas:
        """Those of the given images and pages."""
        return Replicas(
            self.device_images & images, self.host_images & images, self.device_pages & pages, self.host_pages & pages
        )

    @property
    def images(self) -> int:
        return self.device_images | self.host_images

    @property
    def pages(self) -> int:
        return self.device_pages | self.host_pages

    def __bool__(self) -> bool:
        return bool(self.device_images or self.host_images or self.device_pages or self.host_pages)


NOTHING = Replicas()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The immutable complete state at one frontier (CKP-1, CKP-4).

    Attributes:
        pages: its logical pages in order, per pool: they cover [0, frontier).
    """

    ref: CheckpointRef
    kind: SourceKind
    frontier: int
    image: ImageId
    pages: tuple[tuple[LogicalPage, ...], ...]
    page_mask: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "page_mask", mask_of(page for pool in self.pages for page in pool))

    @property
    def image_mask(self) -> int:
        return 1 << self.image


def needs_of(checkpoints: Iterable[Checkpoint]) -> tuple[int, int]:
    """(images, pages), as sets, that these checkpoints need together (CAP-4)."""
    images = pages = 0
    for checkpoint in checkpoints:
        images |= checkpoint.image_mask
        pages |= checkpoint.page_mask
    return images, pages


class Role(Enum):
    ACTIVE = "active"
    PRIVATE = "private"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Lane:
    """What an active sequence holds beside its checkpoints.

    Attributes:
        image: the StateImage that it writes.
        reads: the image that its first pass reads when that is another one's (ST-4), else None. Pinned, not owned.
        pages: its logical pages in order, per pool; borrowed ones first (KV-3).
        writable: the pages that it alone writes.
        promised: pages reserved and not yet mapped, per pool (ACT-1).
        room_images, room_pages: granted for a capture that is not published yet, as sets.
    """

    image: ImageId
    reads: ImageId | None
    pages: tuple[tuple[LogicalPage, ...], ...]
    writable: int
    promised: tuple[int, ...]
    room_images: int = 0
    room_pages: int = 0
    page_mask: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "page_mask", mask_of(page for pool in self.pages for page in pool))

    @property
    def image_mask(self) -> int:
        return 1 << self.image | (0 if self.reads is None else 1 << self.reads)


@dataclass(frozen=True, slots=True)
class Owner:
    """One owner. `checkpoints` ascend by frontier; `lane` is there iff the role is ACTIVE."""

    id: OwnerId
    role: Role
    checkpoints: tuple[Checkpoint, ...]
    lane: Lane | None = None
    needs_images: int = field(init=False, compare=False, repr=False)
    needs_pages: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        images, pages = needs_of(self.checkpoints)
        if self.lane is not None:
            images |= self.lane.image_mask | self.lane.room_images
            pages |= self.lane.page_mask | self.lane.room_pages
        object.__setattr__(self, "needs_images", images)
        object.__setattr__(self, "needs_pages", pages)

    @property
    def device_needs(self) -> tuple[int, int]:
        """(images, pages) that must be on Device: what a running sequence reads and writes."""
        return (0, 0) if self.lane is None else (self.lane.image_mask, self.lane.page_mask)


@dataclass(frozen=True, slots=True)
class Extent:
    """One contiguous span of the Host arena with consecutive logical pages of one pool (DEF-8).

    Attributes:
        pages: the pages that it was made for, in order. It counts whole until the last of their replicas dies.
        mask: those of them whose replica here lives; all, unless who makes the extent says otherwise.
        window: the least of those, and one above the greatest: the numbers of its pages need not follow each other.
    """

    pool: int
    offset: int
    size: int
    pages: tuple[LogicalPage, ...]
    mask: int = field(default=0, compare=False, repr=False)
    window: tuple[int, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.mask:
            object.__setattr__(self, "mask", mask_of(self.pages))
        object.__setattr__(self, "window", (lowest(self.mask), self.mask.bit_length()))
