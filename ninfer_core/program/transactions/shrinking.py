"""Shrinking: the extent replacements of a transaction, part of its Host releases (context-cache DEF-8, TXN-5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import STEP_PAGES
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.hosting import Shrink
from ninfer_core.program.storage.physical import Physical


class Shrinking:
    """One replacement after the other: reserve, copy, publish and release the old extent. Between any two steps the
    world is stable, and what is published stays (TXN-10).

    Attributes:
        copied: bytes so far.
    """

    def __init__(self, physical: Physical, shrinks: Sequence[Shrink]) -> None:
        self.copied = 0
        self._physical = physical
        self._shrinks = shrinks
        self._reserved: Shrink | None = None

    def run(self, before_copy: Callable[[], None]) -> Iterator[None]:
        """Yields after each step."""
        for shrink in self._shrinks:
            self._reserve(shrink)
            yield
            store = self._physical.pools[shrink.extent.pool]
            for extent in shrink.into:
                for first in range(0, len(extent.pages), STEP_PAGES):
                    count = min(STEP_PAGES, len(extent.pages) - first)
                    before_copy()
                    store.copy_on_host(shrink.extent, extent, first, count)
                    self.copied += count * store.page_bytes
                    yield
            self._publish(shrink)
            yield

    def undone(self, world: World) -> World:
        """The world without the destinations of a replacement that was not published; their reservation is the caller's
        to drop."""
        arena = world.arena
        for extent in self._reserved.into if self._reserved else ():
            arena = arena.release(extent.offset, extent.size)
        self._reserved = None
        return replace(world, arena=arena)

    def _reserve(self, shrink: Shrink) -> None:
        world = self._physical.world
        arena = world.arena
        for extent in shrink.into:
            placed = arena.allocate(extent.size)
            assert placed is not None and placed[0] == extent.offset, "the arena is not what the plan saw"
            arena = placed[1]
        self._reserved = shrink
        self._physical.publish(replace(world, arena=arena, held=world.held + _bytes(world, shrink)))

    def _publish(self, shrink: Shrink) -> None:
        world = self._physical.world
        for extent in shrink.into:
            self._physical.pools[extent.pool].moved(extent)
        others = (extent for extent in world.extents if extent != shrink.extent)
        extents = tuple(sorted((*others, *shrink.into), key=lambda extent: extent.offset))
        arena = world.arena.release(shrink.extent.offset, shrink.extent.size)
        self._reserved = None
        held = world.held - _bytes(world, shrink)
        self._physical.publish(replace(world, extents=extents, arena=arena, held=held))


def _bytes(world: World, shrink: Shrink) -> Vector:
    return Vector(0, 0, (0,) * len(world.geometry.pools), shrink.bytes)
