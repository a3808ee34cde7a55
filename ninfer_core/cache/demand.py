"""DemandWindow: what the last 32 materialized requests could have used (context-cache VAL-1, DEF-6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
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
    """`epoch` counts materializations ever adopted."""

    def __init__(self) -> None:
        self._demands: deque[Demand] = deque(maxlen=DEMAND_WINDOW)
        self.epoch = 0

    def __iter__(self) -> Iterator[Demand]:
        return iter(self._demands)

    def record(self, demand: Demand) -> None:
        """A request has become Active."""
        self._demands.append(demand)
        self.epoch += 1

    def domains(self, key: bytes) -> frozenset[bytes]:
        """The distinct reuse domains that have shown a key."""
        return frozenset(demand.domain for demand in self._demands if key in demand.keys)
