"""Machine work as plain numbers: what a plan does now, and what recovering a checkpoint would take later.

Program says how much it is; it never prices (context-cache COST, VAL-2). An operation is one contiguous copy (DEF-9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ninfer_core.contract.ids import LogicalPage, PageId
from ninfer_core.program.ledger.bits import mask_of, minus
from ninfer_core.program.ledger.geometry import Geometry
from ninfer_core.program.ledger.objects import STEP_PAGES, Checkpoint, Replicas
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.planning.target import Activation


class Copies(Struct, frozen=True):
    """A batch of copies of one stage and direction; an empty one costs nothing."""

    operations: int = 0
    bytes: int = 0

    def __add__(self, other: Copies) -> Copies:
        return Copies(self.operations + other.operations, self.bytes + other.bytes)


NO_COPIES = Copies()


class Prefill(Struct, frozen=True):
    """suffix tokens computed behind base reused ones."""

    base: int
    suffix: int

    @property
    def attention_pairs(self) -> int:
        """COST-3."""
        return self.base * self.suffix + self.suffix * (self.suffix + 1) // 2


class ImmediateWork(Struct, frozen=True):
    """COST-1: ordered transfer phases, then the remaining prefill. `on_host` is what shrinking extents copies."""

    to_host: Copies
    to_device: Copies
    on_device: Copies
    prefill: Prefill
    on_host: Copies = Copies()


class Recipe(Struct, frozen=True):
    """One way to a checkpoint's state: restore from Host what is not on Device, then prefill."""

    restore: Copies
    prefill: Prefill


Places = Callable[[LogicalPage], PageId]
"""Where a page lies on Device: contiguous places make one operation."""


def immediate(
    geometry: Geometry, projection: Projection, demand: Activation | None, prompt_tokens: int, places: Places
) -> ImmediateWork:
    """What executing a projected target does, and what is left to prefill then."""
    on_host = Copies()
    for shrink in projection.shrinks:
        for extent in shrink.into:
            steps = -(-len(extent.pages) // STEP_PAGES)
            on_host += Copies(steps * geometry.pools[extent.pool].planes, extent.size)
    images = projection.demoted.host_images.bit_count()
    to_host = Copies(images, images * geometry.image_bytes)
    for extent in projection.extents:
        pool = geometry.pools[extent.pool]
        runs = _copies_to_host(extent.pages, places)
        to_host += Copies(runs * pool.planes, extent.size)
    to_device, on_device, base = Copies(), Copies(), 0
    source = demand.source if demand is not None else None
    use = projection.source
    if source is not None and use is not None:
        base = source.checkpoint.frontier
        to_device = _fetch(geometry, source.checkpoint, projection.restored, use.image_from_host)
        for number, tail in enumerate(use.copied):
            if tail is not None:
                pool = geometry.pools[number]
                on_device += Copies(pool.planes, pool.page_bytes)
    return ImmediateWork(to_host, to_device, on_device, Prefill(base, max(0, prompt_tokens - base)), on_host)


def _copies_to_host(pages: Sequence[LogicalPage], places: Places) -> int:
    """Per plane: contiguous runs of places, divided where a step of the transition ends."""
    at = [places(page) for page in pages]
    return sum(1 for i, place in enumerate(at) if i % STEP_PAGES == 0 or place != at[i - 1] + 1)


def _fetch(geometry: Geometry, checkpoint: Checkpoint, pages: int, image: bool) -> Copies:
    """Copies that bring the given pages, and the image, of a checkpoint to Device: page by page, so that what they take
    is known before their places are."""
    copies = Copies(1, geometry.image_bytes) if image else Copies()
    wanted = pages & checkpoint.page_mask
    if not wanted:
        return copies
    several = len(checkpoint.pages) > 1
    for pool, held in zip(geometry.pools, checkpoint.pages, strict=True):
        count = (wanted & mask_of(held) if several else wanted).bit_count()
        copies += Copies(count * pool.planes, count * pool.page_bytes)
    return copies


def restore_of(geometry: Geometry, survivor: Checkpoint, replicas: Replicas) -> Copies:
    """What brings a survivor to Device, with the given replicas."""
    missing = minus(survivor.page_mask, replicas.device_pages)
    image = not survivor.image_mask & replicas.device_images
    return _fetch(geometry, survivor, missing, image) if missing or image else NO_COPIES


def recipe_from(geometry: Geometry, frontier: int, survivor: Checkpoint, replicas: Replicas) -> Recipe:
    """The way to the state at frontier from a survivor at or below it, with the given replicas (DEF-11)."""
    restore = restore_of(geometry, survivor, replicas)
    return Recipe(restore, Prefill(survivor.frontier, frontier - survivor.frontier))
