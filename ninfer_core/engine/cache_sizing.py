"""The context cache's share of memory, and its logical sizes: pure arithmetic (context-cache CAP-1, OPT-1 to OPT-3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ninfer_core.byte_size import size_text
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.engine.cache_options import ContextCacheOptions
from ninfer_core.errors import CapacityError, UsageError

LEASE_TOKENS = 4096
"""ACT-3: the window of kv_lease_growth."""

FEWEST_SLOTS, MOST_SLOTS = 8, 64
"""Automatic StateImages beside the lanes': a few conversations' ends and anchors, and more than anybody keeps open."""

SLOT_SHARE = 8
"""One part in so many of the device's budget goes to automatic StateImages, a fewest of them allowed twice that."""

SPARE_CONTEXTS = 4
SPARE_SHARE = 4
"""Automatic room for cached prefixes: so many contexts, but at most one part in so many of the device's budget."""

HOST_SHARE = 4
"""One part in so many of main memory's budget goes to each Host store: it is pinned, and nobody else can have it."""
HOST_DEPTH = 4
"""A Host store holds at most so many times what the device holds."""

PRIVATE_CELLS = 64
"""Automatic private continuations beside the running ones."""

SHARED_CELLS = 7
"""EVI-2: as many as one request may propose (CAN-3), or one per lane if that is more."""

LONG_ANCHORS, MOST_LONG_ANCHORS = 4, 16
"""Automatic anchors of one conversation: as many as a quarter of all images, between these. Anchors take spare images
only, and with many of them a change early in a long conversation still finds a message boundary right before it."""

ANCHOR_SHARE = 4


@dataclass(frozen=True, slots=True)
class Budgets:
    """
    Attributes:
        device: bytes that the device's pools may take.
        host: bytes that the Host tier may take; None where the device is the CPU, so that both are one memory.
    """

    device: int
    host: int | None


@dataclass(frozen=True, slots=True)
class Units:
    """Bytes of one KV page over all planes, and of one StateImage."""

    page: int
    image: int


class CacheRoom:
    """Divides a budget. Every method is a pure function of what the constructor was given and its arguments."""

    def __init__(self, options: ContextCacheOptions, units: Units, budgets: Budgets) -> None:
        """
        Raises:
            UsageError: the Host arena could not hold one page.
        """
        self._options = options
        self._units = units
        self._budgets = budgets
        arena = options.host_kv_capacity_bytes
        if options.enabled and arena is not None and 0 < arena < units.page:
            least = size_text(units.page, math.ceil)
            raise UsageError(
                f"host-kv-capacity is {size_text(arena, math.floor)}: it must be 0 or at least {least}, "
                "one page of this model"
            )

    def after_explicit(self, budget: int) -> int:
        """What is left of the device's budget when everything that the options name is set aside.

        Raises:
            CapacityError: it does not fit beside one page of KV. Names the largest number that does.
        """
        options, units = self._options, self._units
        if not options.enabled:
            return budget
        budget = _images("device-state-slots", options.device_state_slots, units, budget - units.page)
        host = budget if self._budgets.host is None else self._budgets.host
        host = _images("host-state-slots", options.host_state_slots, units, host)
        host = _arena("host-kv-capacity", options.host_kv_capacity_bytes, host)
        return (host if self._budgets.host is None else budget) + units.page

    def device_slots(self, free: int) -> int:
        """StateImages beside the lanes'; the automatic number takes at most `free` bytes."""
        if not self._options.enabled:
            return 0
        if self._options.device_state_slots is not None:
            return self._options.device_state_slots
        image = self._units.image
        fair = self._budgets.device // SLOT_SHARE // image
        few = min(FEWEST_SLOTS, 2 * self._budgets.device // SLOT_SHARE // image)
        return max(0, min(MOST_SLOTS, max(fair, few), free // image))

    def automatic_bytes(self, slots: int) -> int:
        """Bytes of device slots that `after_explicit` has not set aside."""
        return 0 if self._options.device_state_slots is not None else slots * self._units.image

    def spare_pages(self, free: int, context_pages: int) -> int:
        """Pages beside the lanes' contexts, for prefixes that nobody runs; at most `free` bytes."""
        if not self._options.enabled:
            return 0
        share = min(self._budgets.device // SPARE_SHARE, free)
        return max(0, min(SPARE_CONTEXTS * context_pages, share // self._units.page))

    def host(self, device_images: int, device_pages: int) -> tuple[int, int]:
        """StateImages and bytes of KV in main memory.

        On a CPU the automatic choice is none: a second pool in the same memory would only copy what the first one
        could keep.
        """
        options, units = self._options, self._units
        if not options.enabled:
            return 0, 0
        share = (self._budgets.host or 0) // HOST_SHARE
        images, arena = options.host_state_slots, options.host_kv_capacity_bytes
        if images is None:
            images = min(HOST_DEPTH * device_images, share // units.image)
        if arena is None:
            arena = min(HOST_DEPTH * device_pages, share // units.page) * units.page
        return images, arena


def _images(name: str, wanted: int | None, units: Units, free: int) -> int:
    """`free` less so many StateImages."""
    if wanted and wanted * units.image > free:
        raise CapacityError(f"{name} is {wanted}: at most {max(0, free) // units.image} fit in memory, lower it")
    return free - (wanted or 0) * units.image


def _arena(name: str, wanted: int | None, free: int) -> int:
    """`free` less so many bytes."""
    if wanted and wanted > free:
        most = size_text(max(0, free), math.floor)
        raise CapacityError(f"{name} is {size_text(wanted, math.ceil)}: at most {most} fit in memory, lower it")
    return free - (wanted or 0)


def cache_limits(options: ContextCacheOptions, lanes: int, images: int = 0) -> CacheLimits:
    """The logical sizes. Disabled leaves cells for running requests alone: nothing can be published.

    Args:
        images: StateImages beside the lanes', on the device and in main memory.
    """
    if not options.enabled:
        return CacheLimits(
            private_cells=lanes,
            shared_cells=0,
            long_anchors=0,
            automatic_anchors=0,
            endpoint_anchors=False,
            shared_candidates=False,
            lanes=lanes,
            enabled=False,
        )
    automatic = max(LONG_ANCHORS, min(MOST_LONG_ANCHORS, images // ANCHOR_SHARE))
    anchors = _given(options.max_long_anchors_per_continuation, automatic)
    limits = CacheLimits(
        private_cells=_given(options.max_private_continuations, PRIVATE_CELLS + lanes),
        shared_cells=_given(options.max_shared_prefixes, max(lanes, SHARED_CELLS)),
        long_anchors=anchors,
        automatic_anchors=_given(options.automatic_private_anchors, anchors),
        endpoint_anchors=options.endpoint_anchors,
        shared_candidates=options.allow_engine_automatic_shared_prefixes,
        prefix_grid=options.allow_engine_prefix_grid,
        recency_eviction=options.recency_eviction,
        lanes=lanes,
    )
    return _with_planning(limits, options)


def _with_planning(limits: CacheLimits, options: ContextCacheOptions) -> CacheLimits:
    if options.planning_targets is not None:
        limits = replace(limits, planning_targets=options.planning_targets)
    if options.planning_ms is not None:
        limits = replace(limits, planning_ns=round(options.planning_ms * 1e6))
    return limits


def _given(value: int | None, automatic: int) -> int:
    return automatic if value is None else value
