"""CacheLimits: the context cache's logical sizes and policies, resolved once at start-up (context-cache OPT-1)."""

from __future__ import annotations

from dataclasses import dataclass

EXPLICIT_MARKERS = 4
"""CAN-3: most explicit markers of one request. Product semantics, not an option."""

DEMAND_WINDOW = 32
"""VAL-1: how many materialized requests the demand window remembers. Product semantics, not an option."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Sizes of the catalogs and of one planning session. Nothing in ResourceManager outgrows them.

    Attributes:
        private_cells: private continuations in the catalog, active ones included.
        shared_cells: shared prefixes in the catalog.
        long_anchors: LongAnchor checkpoints of one continuation.
        automatic_anchors: PrivateLongAnchor candidates at the last so many message boundaries (CAN-5).
        endpoint_anchors: keep a LongAnchor where a consumed endpoint was (CAN-7).
        shared_candidates: the three automatic shared candidates of CAN-3.
        prefix_grid: grid candidates of CAN-4.
        recency_eviction: the recency ladder of PLAN-5.
        planning_targets: targets beyond the mandatory ones that one planning session may assess (PLAN-8).
        planning_ns: time beyond the mandatory work that one admission boundary may take (PLAN-8).
        capture_targets: the fixed target budget of one shared capture (PLAN-8).
        lanes: requests that run at once: captures leave each of them its StateImage.
        enabled: False means root only (OPT-3): no checkpoint is captured or published, cells serve running requests.
    """

    private_cells: int
    shared_cells: int
    long_anchors: int
    automatic_anchors: int
    endpoint_anchors: bool = True
    shared_candidates: bool = True
    prefix_grid: bool = False
    recency_eviction: bool = False
    planning_targets: int = 256
    planning_ns: int = 6_000_000
    capture_targets: int = 8
    lanes: int = 1
    enabled: bool = True
