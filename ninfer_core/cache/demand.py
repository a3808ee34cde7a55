"""DemandWindow: what the last 32 materialized requests could have used (context-cache VAL-1, DEF-6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ninfer_core.contract.cache_limits import DEMAND_WINDOW


@dataclass(frozen=True, slots=True)
class Demand:
    """Digests only: no prompt, session text or key.

    Attributes:
        domain: the reuse domain.
        keys: digests of prefixes that the request matched exactly, selected or could create.
    """

    domain: bytes
    keys: frozenset[bytes]


class DemandWindow:
    """`epoch` counts materializations ever adopted. A demand is named by the epoch at which it came."""

    def __init__(self) -> None:
        self._demands: deque[Demand] = deque()
        self._showing: dict[bytes, tuple[int, ...]] = {}
        self.epoch = 0

    def __iter__(self) -> Iterator[Demand]:
        return iter(self._demands)

    def record(self, demand: Demand) -> None:
        """A request has become Active."""
        if len(self._demands) == DEMAND_WINDOW:
            for key in self._demands.popleft().keys:
                self._showing[key] = self._showing[key][1:]
                if not self._showing[key]:
                    del self._showing[key]
        self._demands.append(demand)
        for key in demand.keys:
            self._showing[key] = (*self._showing.get(key, ()), self.epoch)
        self.epoch += 1

    @property
    def showing(self) -> Mapping[bytes, tuple[int, ...]]:
        """By key, the demands that show it, ascending. Kept up to date: a planning session reads it in passing."""
        return self._showing

    def at(self, number: int) -> Demand:
        """A demand in the window. Raises IndexError for one that has left it."""
        place = number - self.epoch + len(self._demands)
        if place < 0:
            raise IndexError(number)
        return self._demands[place]

    def domains(self, key: bytes) -> frozenset[bytes]:
        """The distinct reuse domains that have shown a key."""
        return frozenset(self.at(number).domain for number in self._showing.get(key, ()))
