"""ContextCacheOptions: what a caller may fix of the context cache (context-cache OPT-1 to OPT-3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ninfer_core.errors import UsageError

MOST_COUNT = 1 << 16
"""The largest count that is taken: catalogs, slots and planning storage are allocated once, at start-up."""

MOST_BYTES = 1 << 62
"""The largest size that an address and its offsets can represent."""

MOST_PLANNING_MS = 60_000.0

_COUNTS = (
    "device_state_slots",
    "host_state_slots",
    "max_private_continuations",
    "max_shared_prefixes",
    "max_long_anchors_per_continuation",
    "automatic_private_anchors",
    "planning_targets",
)
_FLAGS = {
    "host_kv_capacity_bytes": "host-kv-capacity",
    "max_long_anchors_per_continuation": "max-long-anchors",
    "automatic_private_anchors": "automatic-anchors",
}
"""What people know a field as, where that is not its name."""


@dataclass(frozen=True, slots=True)
class ContextCacheOptions:
    """Capacities and policies of the context cache. None is automatic: what suits the machine (see `resolve_sizes`).

    Attributes:
        enabled: False means root only: nothing is read or published, and no checkpoint capacity is set aside; the
            other fields are not looked at then.
        device_state_slots: StateImages on the device beside one per lane; 0 to 65,536.
        host_state_slots: StateImages in main memory.
        host_kv_capacity_bytes: bytes of the KV arena in main memory: 0, or room for at least one page of the model.
        max_private_continuations: conversations in the catalog, running requests included: at least max_concurrency.
        max_shared_prefixes: prefixes that every conversation may start from; automatic is max(max_concurrency, 7).
        max_long_anchors_per_continuation: earlier recovery points kept of one conversation; automatic is 4 to
            16, with the images that there are.
        endpoint_anchors: keep such a point where a conversation's end was before it went on (CAN-7).
        allow_engine_automatic_shared_prefixes: propose shared prefixes after tools, after leading instructions and at
            the prompt's end (CAN-3).
        allow_engine_prefix_grid: propose them on a token grid too (CAN-4).
        automatic_private_anchors: propose anchors at the last so many message boundaries; automatic is
            max_long_anchors_per_continuation (CAN-5).
        recency_eviction: evict whole owners only in the order of their last use (PLAN-5).
        kv_lease_growth: promise a running request a window that grows instead of its whole output (ACT-3): more run
            at the same time, and one that cannot grow ends with "length".
        planning_targets: end states that one planning may assess beyond the mandatory ones; 0 is allowed (PLAN-8).
        planning_ms: milliseconds that it may take for that; 0 is allowed.

    Raises:
        UsageError: a value outside its range.
    """

    enabled: bool = True
    device_state_slots: int | None = None
    host_state_slots: int | None = None
    host_kv_capacity_bytes: int | None = None
    max_private_continuations: int | None = None
    max_shared_prefixes: int | None = None
    max_long_anchors_per_continuation: int | None = None
    endpoint_anchors: bool = True
    allow_engine_automatic_shared_prefixes: bool = True
    allow_engine_prefix_grid: bool = False
    automatic_private_anchors: int | None = None
    recency_eviction: bool = False
    kv_lease_growth: bool = False
    planning_targets: int | None = None
    planning_ms: float | None = None

    def __post_init__(self) -> None:
        for name in _COUNTS:
            self._check(name, least=1 if name == "max_private_continuations" else 0, most=MOST_COUNT)
        self._check("host_kv_capacity_bytes", least=0, most=MOST_BYTES)
        ms = self.planning_ms
        if ms is not None and not (math.isfinite(ms) and 0 <= ms <= MOST_PLANNING_MS):
            raise UsageError(f"planning-ms is {ms}: it must be 0 to {MOST_PLANNING_MS:g}")

    def check_covers(self, lanes: int) -> None:
        """Every running request needs a place in the private catalog for its end (RET-4).

        Raises:
            UsageError: the catalog is smaller than the number of lanes.
        """
        cells = self.max_private_continuations
        if self.enabled and cells is not None and cells < lanes:
            raise UsageError(
                f"max-private-continuations is {cells}: it must be at least {lanes}, one for each request that "
                "max-concurrency allows"
            )

    def _check(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if value is not None and not least <= value <= most:
            bound = f"at least {least}" if value < least else f"at most {most}"
            raise UsageError(f"{_FLAGS.get(name, name.replace('_', '-'))} is {value}: it must be {bound}")
