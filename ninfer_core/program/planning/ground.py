"""Ground: what every projection from one world shares, counted once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ninfer_core.contract.ids import CheckpointRef, LogicalPage
from ninfer_core.program.ledger.arena import Arena
from ninfer_core.program.ledger.bits import lowest, mask_of, members, minus
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import Checkpoint, Extent, Replicas
from ninfer_core.program.ledger.world import World, measure


class Run(NamedTuple):
    """Consecutive pages of an address space that move together: one extent to be."""

    pool: int
    pages: tuple[LogicalPage, ...]
    mask: int


@dataclass(frozen=True, slots=True)
class Ground:
    """
    Attributes:
        world: the stable world that is projected from.
        reserved: its concrete reservations.
        present: what is used as things are.
        host_bytes: bytes of its extents.
        windows: (lowest page, one above the highest, extent) for each extent.
    """

    world: World
    reserved: Vector
    present: Vector
    host_bytes: int
    windows: tuple[tuple[int, int, Extent], ...]
    _runs: dict[CheckpointRef, tuple[int, tuple[Run, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, world: World) -> Ground:
        windows = tuple((*extent.window, extent) for extent in world.extents)
        reserved, host_bytes = world.reserved(), sum(extent.size for extent in world.extents)
        present = measure(world.geometry, world.replicas, host_bytes) + reserved
        return cls(world, reserved, present, host_bytes, windows)

    def used(self, replicas: Replicas, host_bytes: int) -> Vector:
        """Allocations and reservations per axis when these replicas are there."""
        if replicas is self.world.replicas and host_bytes == self.host_bytes:
            return self.present
        return measure(self.world.geometry, replicas, host_bytes) + self.reserved

    def released_arena(self, host_pages: int) -> tuple[Arena, int]:
        """The arena and the bytes in use when only these Host pages live on: an extent goes with its last page."""
        arena, used = self.world.arena, self.host_bytes
        gone = minus(self.world.replicas.host_pages, host_pages)
        if not gone:
            return arena, used
        low, high = lowest(gone), gone.bit_length()
        for first, end, extent in self.windows:
            # Most extents lie wholly beside what goes: two comparisons instead of a set operation each.
            if first < high and low < end and extent.mask & gone and not extent.mask & host_pages:
                arena = arena.release(extent.offset, extent.size)
                used -= extent.size
        return arena, used

    def runs(self, checkpoint: Checkpoint, wanted: int) -> tuple[Run, ...]:
        """Maximal runs of consecutive pages of a checkpoint that are among the wanted ones, in order.

        Args:
            wanted: a subset of the checkpoint's pages. The last answer is kept: targets repeat it.
        """
        known = self._runs.get(checkpoint.ref)
        if known is not None and known[0] == wanted:
            return known[1]
        found = tuple(run for number, pool in enumerate(checkpoint.pages) for run in runs_of(number, pool, wanted))
        self._runs[checkpoint.ref] = (wanted, found)
        return found


def runs_of(pool: int, pages: tuple[LogicalPage, ...], wanted: int) -> list[Run]:
    """Maximal runs of consecutive pages of one pool that are among the wanted ones, in order."""
    chosen, found, begin = set(members(wanted)), [], None
    for at, page in enumerate((*pages, None)):
        if page in chosen:
            begin = at if begin is None else begin
        elif begin is not None:
            run = pages[begin:at]
            found.append(Run(pool, run, mask_of(run)))
            begin = None
    return found
