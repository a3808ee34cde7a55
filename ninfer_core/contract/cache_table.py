"""CacheTable: what the context cache holds, for people (context-cache STAT-3). A snapshot; nothing decides by it."""

from __future__ import annotations

from dataclasses import dataclass

from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.results import CheckpointSummary
from ninfer_core.contract.statistics import Placement


@dataclass(frozen=True, slots=True)
class AxisUse:
    """One axis of the capacity vector; used includes reserved.

    Attributes:
        unit: "images", "pages" or "bytes".
    """

    name: str
    unit: str
    used: int
    reserved: int
    capacity: int


@dataclass(frozen=True, slots=True)
class OwnerRow:
    """One owner.

    Attributes:
        kind: "active", "private" or "shared".
        checkpoints: ascending by frontier.
        exclusive_bytes: what would be free if this owner alone went.
        shared_bytes: what it holds together with others.
        hits: requests that started from it.
        age: materializations since it was last hit or published; None for a running one.
        retention: the class of a private continuation; "credit" for a shared prefix with declared credit.
        leased: a running request started from it.
    """

    owner: OwnerId
    kind: str
    checkpoints: tuple[CheckpointSummary, ...]
    exclusive_bytes: int
    shared_bytes: int
    hits: int
    age: int | None
    retention: str
    leased: bool


@dataclass(frozen=True, slots=True)
class CacheTable:
    """Owners, running ones first, and the totals per axis.

    Attributes:
        cells: (used, all) of the private and of the shared catalog.
    """

    owners: tuple[OwnerRow, ...]
    axes: tuple[AxisUse, ...]
    private_cells: tuple[int, int]
    shared_cells: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Residency:
    """The deepest resident checkpoint of a prompt; frontier 0 is none."""

    frontier: int
    placement: Placement
