"""From options and memory to fixed sizes: device, dtype, context length and the capacity vector (CAP-1, OPT-2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.engine.cache_sizing import LEASE_TOKENS, Budgets, CacheRoom, Units, cache_limits
from ninfer_core.engine.options import DEFAULT_MAX_CONTEXT, EngineOptions
from ninfer_core.errors import CapacityError, ContextTooLong, NoRoomForContext, UsageError
from ninfer_core.models.layout import ModelLayout
from ninfer_core.models.memory import available_memory
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.storage.image_store import ImageStore
from ninfer_core.program.storage.page_store import PageStore, pages_for

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

HEADROOM = 0.8
"""Share of the available memory that pools may take: prefill needs workspace beside them."""

_UNKNOWN_MEMORY = 4 << 30
"""Assumed free where the system does not say."""


def resolve_device(name: str) -> torch.device:
    """auto is the CPU until the CUDA kernels are there.

    Raises:
        UsageError: a CUDA device is asked for that this machine, or this version, does not have.
    """
    if name in ("auto", "cpu"):
        return torch.device("cpu")
    raise UsageError(f"device {name}: this version runs on the CPU only, use --device cpu")


def resolve_dtype(name: str, checkpoint: torch.dtype, weight_elements: int) -> torch.dtype:
    """The checkpoint's dtype where the CPU multiplies it natively, else float32 if it fits.

    Args:
        name: an EngineOptions.dtype.
        checkpoint: the dtype of the weights on disk.
        weight_elements: how many there are, to see whether float32 fits.
    """
    if name != "auto":
        return DTYPES[name]
    native = {torch.float32: True, torch.bfloat16: _multiplies_bf16(), torch.float16: _multiplies_fp16()}
    fits = weight_elements * 4 < _main_memory()
    return checkpoint if native.get(checkpoint, False) or not fits else torch.float32


def _multiplies_bf16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _multiplies_fp16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def measured_budgets(device: torch.device) -> Budgets:
    """What the pools may take now, after the weights are in place."""
    if device.type == "cpu":
        return Budgets(device=_main_memory(), host=None)
    free, _ = torch.cuda.mem_get_info(device)
    return Budgets(device=int(free * HEADROOM), host=_main_memory())


def _main_memory() -> int:
    free = available_memory()
    return int((_UNKNOWN_MEMORY if free is None else free) * HEADROOM)


@dataclass(frozen=True, slots=True)
class Sizes:
    """
    Attributes:
        max_context: tokens of the longest sequence.
        capacity: the capacity vector.
        limits: the context cache's logical sizes and policies.
        lease: tokens that a running sequence is promised beyond its frontier; None promises its whole life.
    """

    max_context: int
    capacity: Vector
    limits: CacheLimits
    lease: int | None


def resolve_sizes(options: EngineOptions, layout: ModelLayout, budgets: Budgets) -> Sizes:
    """Fix the longest sequence and the pools.

    Every lane gets a whole context where that fits; where it does not, fewer contexts at once; where not even one
    fits, a shorter context, unless max_context or kv_capacity asked for more than there is. What the context cache
    was given explicitly is set aside first; its automatic parts come out of what one whole context leaves, so that
    they shrink to nothing before max_context does.

    Args:
        budgets: bytes that the pools may take, from `measured_budgets`.

    Raises:
        UsageError: max_context is beyond the model's (ContextTooLong); a Host arena too small for one page.
        CapacityError: what was asked for does not fit in memory (NoRoomForContext). Names what to lower.
    """
    if options.max_context is not None and options.max_context > layout.max_positions:
        raise ContextTooLong(options.max_context, layout.max_positions)
    lanes, cache = options.max_concurrency, options.cache
    units = Units(page=max(1, PageStore.bytes_per_page(layout)), image=ImageStore.bytes_per_image(layout))
    room = CacheRoom(cache, units, budgets)
    budget = room.after_explicit(budgets.device - lanes * units.image)
    wanted, pages = _contexts(options, layout, budget, units.page)
    context_pages = pages_for(wanted)
    if options.kv_capacity is not None:
        slots = room.device_slots(budget - pages * units.page)
    else:
        # Images first, from what one context leaves: few bytes, and without them no page can be reused. Then lanes'
        # contexts, then prefixes that wait for their conversation; the pool is one, so idle lanes' pages serve too.
        slots = room.device_slots(budget - context_pages * units.page)
        budget -= room.automatic_bytes(slots)
        pages = min(pages, budget // units.page)
        pages += room.spare_pages(budget - pages * units.page, context_pages)
    host_images, host_bytes = room.host(lanes + slots, pages)
    return Sizes(
        max_context=wanted,
        capacity=Vector(lanes + slots, host_images, (pages,), host_bytes),
        limits=cache_limits(cache, lanes, slots + host_images),
        lease=LEASE_TOKENS if cache.enabled and cache.kv_lease_growth else None,
    )


def _contexts(options: EngineOptions, layout: ModelLayout, budget: int, page_bytes: int) -> tuple[int, int]:
    """max_context, and the pages of all lanes' contexts as far as they fit the budget.

    Raises:
        CapacityError: see `resolve_sizes`.
    """
    affordable = max(0, budget) // page_bytes
    if affordable < 1:
        raise CapacityError("no memory is left for a context beside the weights: lower --max-concurrency or --dtype")
    wanted = options.max_context or min(layout.max_positions, DEFAULT_MAX_CONTEXT)
    if options.kv_capacity is not None:
        pages = pages_for(options.kv_capacity)
        wanted = min(wanted, pages * PAGE_SIZE) if options.max_context is None else wanted
    else:
        pages = min(pages_for(wanted) * options.max_concurrency, max(affordable, pages_for(wanted)))
    if options.max_context is None and pages > affordable and options.kv_capacity is None:
        pages = affordable
        wanted = pages * PAGE_SIZE
    if pages_for(wanted) > pages:
        raise NoRoomForContext(
            f"kv-capacity holds {pages * PAGE_SIZE} tokens, fewer than max-context {wanted}: raise it"
        )
    if pages > affordable:
        raise NoRoomForContext(
            f"{pages * PAGE_SIZE} tokens of KV need {_gib(pages * page_bytes)} and {_gib(affordable * page_bytes)} "
            "are free: lower --max-context, --kv-capacity or --max-concurrency"
        )
    return wanted, pages


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
