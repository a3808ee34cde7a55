"""Arena: which spans of the Host KV memory are free. Frozen, so that a plan can try allocations and forget them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple


class Hole(NamedTuple):
    """Free bytes [offset, offset + size)."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Arena:
    """Holes in ascending order, none touching the next: fragmentation is real, and decides what fits (KV-6)."""

    holes: tuple[Hole, ...]

    @classmethod
    def empty(cls, size: int) -> Arena:
        """All of size bytes free."""
        return cls((Hole(0, size),) if size else ())

    @property
    def free(self) -> int:
        return sum(hole.size for hole in self.holes)

    def allocate(self, size: int) -> tuple[int, Arena] | None:
        """Best fit, the lowest of equals: the offset and the arena afterwards, or None when no hole is large enough."""
        fitting = [(hole.size, i) for i, hole in enumerate(self.holes) if hole.size >= size]
        if not fitting:
            return None
        _, i = min(fitting)
        offset, whole = self.holes[i]
        rest = (Hole(offset + size, whole - size),) if whole > size else ()
        return offset, Arena((*self.holes[:i], *rest, *self.holes[i + 1 :]))

    def release(self, offset: int, size: int) -> Arena:
        """Give a span back and join it with its neighbours.

        Raises:
            ValueError: part of the span is free already.
        """
        i = bisect_left(self.holes, (offset, 0))
        before, after = self.holes[i - 1 : i] if i else (), self.holes[i : i + 1]
        if (before and sum(before[0]) > offset) or (after and offset + size > after[0].offset):
            raise ValueError(f"bytes [{offset}, {offset + size}) are free already")
        begin, end = offset, offset + size
        low, high = i, i
        if before and sum(before[0]) == offset:
            begin, low = before[0].offset, i - 1
        if after and after[0].offset == end:
            end, high = sum(after[0]), i + 1
        return Arena((*self.holes[:low], Hole(begin, end - begin), *self.holes[high:]))
