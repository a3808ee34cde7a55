"""Hosting: where in the Host arena a target's demotions go, and which extents have to be shrunk for them.

An extent counts whole until its last page dies (DEF-8). Once some of its pages have died, what they held comes back
only by replacing the extent: the living pages are copied into extents of their own, then the old one goes. Program
derives that from the complete end state like every other replacement, and only when the demotions find no place
without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ninfer_core.program.ledger.arena import Arena
from ninfer_core.program.ledger.objects import Extent
from ninfer_core.program.planning.ground import Ground, Run, runs_of
from ninfer_core.program.planning.target import Target


class Shrink(Struct, frozen=True):
    """One extent replacement.

    Attributes:
        extent: the extent that goes.
        into: the extents of its living pages, one per run of consecutive ones: reserved while it is still there.
    """

    extent: Extent
    into: tuple[Extent, ...]

    @property
    def bytes(self) -> int:
        """What is copied."""
        return sum(extent.size for extent in self.into)


class Hosting(Struct, frozen=True):
    """
    Attributes:
        shrinks: extent replacements, in order, each complete before the next; then the demotions are placed.
        extents: one per run of consecutive demoted pages that found a place.
        wanted: bytes of all of them, placed or not.
        unplaceable: bytes of those that found none.
        used: bytes of the extents that are there when the demotions' destinations are reserved.
        peak: most bytes in use while the shrinks run; 0 without any.
    """

    shrinks: tuple[Shrink, ...]
    extents: tuple[Extent, ...]
    wanted: int
    unplaceable: int
    used: int
    peak: int


def host(ground: Ground, target: Target, demoted: int, living: int) -> Hosting:
    """Place one extent per run of pages to be demoted.

    Extents are shrunk one after the other, the fewest bytes to copy first, until every run has a place: a target maps
    to one order, without a search. One that finds no room for its living pages is passed over.

    Args:
        demoted: pages that shall get a Host replica.
        living: pages whose Host replica lives once the pure releases are done.
    """
    arena, used = ground.released_arena(living)
    runs = _runs(ground, target, demoted)
    extents, unplaceable = _placed(ground, runs, arena)
    shrinks: list[Shrink] = []
    peak = 0
    for extent, size in _partly_dead(ground, living) if unplaceable else ():
        found = _shrunk(ground, extent, living, arena)
        if found is None:
            continue
        shrinks.append(found[0])
        peak = max(peak, used + size)
        used += size - extent.size
        arena = found[1]
        extents, unplaceable = _placed(ground, runs, arena)
        if not unplaceable:
            break
    wanted = sum(_size(ground, run) for run in runs)
    return Hosting(tuple(shrinks), extents, wanted, unplaceable, used, peak)


def _runs(ground: Ground, target: Target, pages: int) -> list[Run]:
    """The demoted pages of the changed owners, deepest checkpoints first: their runs contain the shallower ones'."""
    found: list[Run] = []
    left = pages
    for owner_id in sorted(target.outcomes) if pages else ():
        for checkpoint in reversed(target.outcomes[owner_id].kept):
            if part := checkpoint.page_mask & left:
                found += ground.runs(checkpoint, part)
                left ^= part
    assert not left, "a demoted page belongs to no surviving checkpoint"
    return found


def _size(ground: Ground, run: Run) -> int:
    return len(run.pages) * ground.world.geometry.pools[run.pool].page_bytes


def _placed(ground: Ground, runs: Sequence[Run], arena: Arena) -> tuple[tuple[Extent, ...], int]:
    """(an extent for each run that the arena has a hole for, bytes of the others)."""
    extents, unplaceable = [], 0
    for run in runs:
        size = _size(ground, run)
        placed = arena.allocate(size)
        if placed is None:
            unplaceable += size
        else:
            extents.append(Extent(run.pool, placed[0], size, run.pages, run.mask))
            arena = placed[1]
    return tuple(extents), unplaceable


def _partly_dead(ground: Ground, living: int) -> Iterable[tuple[Extent, int]]:
    """Extents with living and dead pages, each with the bytes of the living ones: the fewest first."""
    found, pools = [], ground.world.geometry.pools
    for extent in ground.world.extents:
        pages = (extent.mask & living).bit_count()
        if 0 < pages < len(extent.pages):
            found.append((pages * pools[extent.pool].page_bytes, extent.offset, extent))
    return [(extent, size) for size, _, extent in sorted(found, key=lambda one: one[:2])]


def _shrunk(ground: Ground, extent: Extent, living: int, arena: Arena) -> tuple[Shrink, Arena] | None:
    """Replacements for an extent's living pages beside it, and the arena once it is gone; None without room."""
    runs = runs_of(extent.pool, extent.pages, extent.mask & living)
    into, unplaceable = _placed(ground, runs, arena)
    if unplaceable:
        return None
    for one in into:
        arena = _taken(arena, one)
    return Shrink(extent, into), arena.release(extent.offset, extent.size)


def _taken(arena: Arena, extent: Extent) -> Arena:
    placed = arena.allocate(extent.size)
    assert placed is not None and placed[0] == extent.offset
    return placed[1]
