"""Slots: who sits in which of n equal places. Lowest free place first, so that histories are reproducible."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Holder = TypeVar("Holder", bound=int)


class Slots(Generic[Holder]):
    """Places 0..n-1, each held by at most one holder and each holder in at most one place."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = list(range(size))
        self._place: dict[Holder, int] = {}

    def __contains__(self, holder: Holder) -> bool:
        return holder in self._place

    def __len__(self) -> int:
        return len(self._place)

    def of(self, holder: Holder) -> int:
        """Raises KeyError when holder has no place."""
        return self._place[holder]

    def take(self, holder: Holder) -> int:
        """Give holder the lowest free place.

        Raises:
            RuntimeError: no place is free, or holder has one: the caller's capacity check was wrong.
        """
        if not self._free or holder in self._place:
            raise RuntimeError(f"no place for {holder} behind a passed capacity check")
        place = heapq.heappop(self._free)
        self._place[holder] = place
        return place

    def give(self, holder: Holder) -> None:
        """holder leaves its place. Raises KeyError when it has none."""
        heapq.heappush(self._free, self._place.pop(holder))

    def holders(self) -> set[Holder]:
        return set(self._place)
