"""Catalogs: the logical places of owners, preallocated (context-cache AUT-2, CAP-3, RET-4).

A cell is free, reserved for a request that will publish into it, or holds an entry. Adoption never grows a catalog and
never searches it: the cell was found before Program was asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from ninfer_core.cache.retention import Retention
from ninfer_core.contract.ids import CheckpointRef, Generation, OwnerId
from ninfer_core.contract.results import CheckpointSummary

CellId = NewType("CellId", int)


@dataclass(frozen=True, slots=True)
class Capability:
    """An owner as a plan saw it. Valid inside one planning or transaction (DEF-1)."""

    owner: OwnerId
    cell: CellId
    generation: Generation


@dataclass(slots=True)
class Entry:
    """One catalogued owner: what ResourceManager may know of it, which is no count, slot or page (AUT-3).

    Attributes:
        checkpoints: its summaries, ascending.
        published, last_hit: epochs of publication and of the last exact hit (of publication before the first).
        retention: as of its publication or the last change of its session's binding; `prior` says what is left of it.
        session: digest of the session key that it was published under, or None.
        order: publication order of the request that made it (RET-3).
        unreachable: endpoints that no rendering of history reproduces: losing them costs nothing (VAL-9).
        proven: False for what came out of a session that nothing vouches for (product: Trust).
        shared: it is a shared prefix, no continuation.
        automatic: a shared owner without declared evidence: the kind that EVI-3 may reclaim.
        credit_until: a shared owner's explicit credit expires at this epoch; None without one (VAL-5, DEF-7).
        hit_refs: hits by checkpoint.
    """

    owner: OwnerId
    cell: CellId
    generation: Generation
    checkpoints: tuple[CheckpointSummary, ...]
    published: int
    last_hit: int
    retention: Retention = Retention.RECENT_PRIVATE
    session: bytes | None = None
    order: int = 0
    hits: int = 0
    unreachable: frozenset[CheckpointRef] = frozenset()
    proven: bool = True
    shared: bool = False
    automatic: bool = False
    credit_until: int | None = None
    hit_refs: dict[CheckpointRef, int] = field(default_factory=dict)

    @property
    def capability(self) -> Capability:
        return Capability(self.owner, self.cell, self.generation)

    @property
    def refs(self) -> frozenset[CheckpointRef]:
        return frozenset(summary.ref for summary in self.checkpoints)

    def prior(self, epoch: int) -> Retention:
        """Its retention now."""
        return self.retention.after(epoch - self.last_hit)

    def hit(self, ref: CheckpointRef, epoch: int) -> None:
        """An adopted request started from one of its checkpoints."""
        self.hits += 1
        self.hit_refs[ref] = self.hit_refs.get(ref, 0) + 1
        self.last_hit = epoch

    def hits_of(self, ref: CheckpointRef) -> int:
        return self.hit_refs.get(ref, 0)


class CellState(Enum):
    FREE = "free"
    RESERVED = "reserved"
    CATALOGUED = "catalogued"


class Catalog:
    """A fixed number of cells. Every verb raises RuntimeError when the cell is not in the state that it needs."""

    def __init__(self, cells: int, *, shared: bool = False) -> None:
        """
        Args:
            shared: it holds shared prefixes.
        """
        self._shared = shared
        self._states = [CellState.FREE] * cells
        self._reserved = 0
        self._generations = [0] * cells
        self._entries: dict[OwnerId, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, owner: OwnerId) -> Entry | None:
        return self._entries.get(owner)

    @property
    def entries(self) -> Mapping[OwnerId, Entry]:
        """By owner, in the order of their publication."""
        return self._entries

    @property
    def cells(self) -> int:
        return len(self._states)

    @property
    def free_cells(self) -> int:
        return len(self._states) - len(self._entries) - self._reserved

    def reserve(self) -> CellId | None:
        """Take a free cell for an owner to come; None when there is none."""
        if not self.free_cells:
            return None
        cell = CellId(self._states.index(CellState.FREE))
        self._states[cell] = CellState.RESERVED
        self._reserved += 1
        return cell

    def give(self, cell: CellId) -> None:
        """A reserved cell is not needed any more."""
        self._expect(cell, CellState.RESERVED)
        self._states[cell] = CellState.FREE
        self._reserved -= 1

    def publish(self, cell: CellId, owner: OwnerId, checkpoints: tuple[CheckpointSummary, ...], epoch: int) -> Entry:
        """An owner takes its reserved cell."""
        self._expect(cell, CellState.RESERVED)
        self._states[cell] = CellState.CATALOGUED
        self._reserved -= 1
        self._generations[cell] += 1
        entry = Entry(owner, cell, Generation(self._generations[cell]), checkpoints, epoch, epoch, shared=self._shared)
        self._entries[owner] = entry
        return entry

    def remove(self, owner: OwnerId, *, reserve: bool = False) -> CellId:
        """The owner is gone. With reserve its cell stays taken, for the sequence that consumed it (RET-4)."""
        entry = self._entries.pop(owner)
        self._expect(entry.cell, CellState.CATALOGUED)
        self._states[entry.cell] = CellState.RESERVED if reserve else CellState.FREE
        self._reserved += reserve
        self._generations[entry.cell] += 1
        return entry.cell

    def replace(self, owner: OwnerId, checkpoints: tuple[CheckpointSummary, ...]) -> None:
        """The owner's checkpoints or their placements have changed: capabilities of before are stale."""
        entry = self._entries[owner]
        self._generations[entry.cell] += 1
        entry.generation = Generation(self._generations[entry.cell])
        entry.checkpoints = checkpoints
        living = {summary.ref for summary in checkpoints}
        entry.unreachable &= living
        entry.hit_refs = {ref: count for ref, count in entry.hit_refs.items() if ref in living}

    def audit(self, reserved: Collection[CellId]) -> None:
        """Raises AssertionError when states, entries and the cells that somebody has reserved disagree."""
        cells = [*reserved, *(entry.cell for entry in self._entries.values())]
        assert len(set(cells)) == len(cells), "one cell serves two"
        assert self._reserved == len(reserved), "the count of reserved cells is wrong"
        taken = [CellState.RESERVED] * len(reserved) + [CellState.CATALOGUED] * len(self._entries)
        expected = dict(zip(cells, taken, strict=True))
        for number, state in enumerate(self._states):
            should = expected.get(CellId(number), CellState.FREE)
            assert state is should, f"cell {number} is {state.value}, not {should.value}"

    def _expect(self, cell: CellId, state: CellState) -> None:
        if self._states[cell] is not state:
            raise RuntimeError(f"catalog cell {cell} is {self._states[cell].value}, not {state.value}")
