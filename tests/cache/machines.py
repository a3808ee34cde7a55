"""Machines of all kinds for random histories, and a clock that does not depend on the real one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.program.ledger.geometry import Vector

PAGE_BYTES = 64 * 4 * 2


@dataclass(frozen=True)
class Machine:
    capacity: Vector = field(default_factory=lambda: Vector(4, 3, (16,), 10 * PAGE_BYTES))
    lanes: int = 2
    limits: CacheLimits = field(
        default_factory=lambda: CacheLimits(
            private_cells=4, shared_cells=2, long_anchors=2, automatic_anchors=2, planning_targets=16, capture_targets=6
        )
    )


class FakeClock:
    """A microsecond passes at every look."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1_000
        return self.now


def machines(rng: random.Random) -> Machine:
    """With and without a Host tier, catalogs of all sizes, roomy and tight."""
    lanes = rng.randint(1, 4)
    host = rng.choice([0, 12, 20]) * PAGE_BYTES
    capacity = Vector(lanes + rng.randint(0, 3), rng.choice([2, 5]) if host else 0, (rng.randint(9, 20),), host)
    limits = replace(
        Machine().limits,
        private_cells=lanes + rng.randint(0, 4),
        shared_cells=rng.choice([0, 1, 3]),
        long_anchors=rng.choice([0, 1, 3]),
        endpoint_anchors=rng.random() < 0.8,
        prefix_grid=rng.random() < 0.3,
        recency_eviction=rng.random() < 0.2,
        planning_targets=rng.choice([0, 4, 40]),
        enabled=rng.random() < 0.95,
    )
    limits = replace(limits, automatic_anchors=limits.long_anchors)
    return Machine(capacity, lanes, limits)
