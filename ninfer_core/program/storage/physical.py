"""Physical: the published World and the memory that follows it. One assignment publishes; the stores are then brought
into line with the difference, so that what the ledger says and what memory holds cannot drift apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from ninfer_core.contract.ids import ImageId, LogicalPage, OwnerId
from ninfer_core.models.layout import ModelLayout
from ninfer_core.program.copy_stream import CopyStream
from ninfer_core.program.ledger.bits import lowest_clear, mask_of, members
from ninfer_core.program.ledger.geometry import Geometry, Vector
from ninfer_core.program.ledger.objects import Lane, Owner, Replicas
from ninfer_core.program.ledger.world import World
from ninfer_core.program.storage.image_store import ImageStore
from ninfer_core.program.storage.page_store import PageStore

T = TypeVar("T")


class Physical:
    """
    Attributes:
        world: the published ledger.
        images: memory of StateImages.
        pools: memory of KV pages, one store per typed pool.
        copies: where the copies of a transaction run.
        checking: verify CAP-6 at every publication (tests and stress runs).
    """

    def __init__(self, layout: ModelLayout, capacity: Vector, device: torch.device) -> None:
        self.images = ImageStore(layout, capacity.device_images, capacity.host_images, device)
        self.copies = CopyStream.of(device)
        pinned = device.type == "cuda"
        arena = torch.empty(capacity.host_bytes, dtype=torch.uint8, pin_memory=pinned)
        # Today's models have one typed pool, Main KV; a backend with pages of its own would be another.
        self.pools = (PageStore(layout, capacity.pages[0], arena, device),)
        page_bytes = tuple(max(1, pool.page_bytes) for pool in self.pools)
        planes = tuple(2 * layout.attention_layers for _ in self.pools)
        self.world = World.empty(Geometry.of(capacity, page_bytes, planes, self.images.image_bytes))
        self.checking = False
        self._pending_images = 0
        self._pending_pages = 0

    # --- publication ----------------------------------------------------------------------------------------------
    def publish(self, world: World) -> None:
        """Make world the present one. Every replica that it has and the old one had not must be placed already."""
        if self.checking:
            over = world.used().excess(world.geometry.capacity)
            assert not over, f"a published stage exceeds the capacity by {over}"
        before, self.world = self.world.replicas, world
        self._drop(before.without(world.replicas))
        dead_pages = before.pages & ~world.replicas.pages
        for page in members(dead_pages):
            self.pool_of(LogicalPage(page)).died(LogicalPage(page))

    def _drop(self, gone: Replicas) -> None:
        for image in members(gone.device_images):
            self.images.device_slots.give(ImageId(image))
        for image in members(gone.host_images):
            self.images.host_slots.give(ImageId(image))
        for page in members(gone.device_pages):
            self.pool_of(LogicalPage(page)).drop_device(LogicalPage(page))
        for page in members(gone.host_pages):
            self.pool_of(LogicalPage(page)).drop_host(LogicalPage(page))

    # --- ids ------------------------------------------------------------------------------------------------------
    def new_image(self) -> ImageId:
        """An id for an image to come, not yet in the world: `settle_ids` or `forget_ids` follows."""
        taken = self.world.replicas.images | self._pending_images
        image = ImageId(lowest_clear(taken, self.world.geometry.image_ids))
        assert image >= 0, "more images than slots behind a passed capacity check"
        self._pending_images |= 1 << image
        self.images.born(image)
        return image

    def new_page(self, pool: int) -> LogicalPage:
        """An id for a page to come; see `new_image`."""
        taken = self.world.replicas.pages | self._pending_pages
        page = LogicalPage(lowest_clear(taken, self.world.geometry.pools[pool].mask))
        assert page >= 0, "more pages than places behind a passed capacity check"
        self._pending_pages |= 1 << page
        self.pools[pool].born(page)
        return page

    def settle_ids(self, images: Sequence[ImageId] = (), pages: Sequence[LogicalPage] = ()) -> None:
        """The ids are in the published world now."""
        self._pending_images &= ~mask_of(images)
        self._pending_pages &= ~mask_of(pages)

    def forget_ids(self, images: Sequence[ImageId] = (), pages: Sequence[LogicalPage] = ()) -> None:
        """The objects will not come: their places are free again."""
        for image in images:
            if image in self.images.device_slots:
                self.images.device_slots.give(image)
            if image in self.images.host_slots:
                self.images.host_slots.give(image)
        for page in pages:
            store = self.pool_of(page)
            if page in store.on_device():
                store.drop_device(page)
            store.died(page)
        self.settle_ids(images, pages)

    # --- an active sequence's own progress (no revision: CAP-10) --------------------------------------------------
    def map_pages(self, owner_id: OwnerId, pool: int, count: int) -> None:
        """Map count promised pages of an active sequence.

        Raises:
            RuntimeError: beyond the promise.
        """
        owner = self.world.owners[owner_id]
        lane = _lane(owner)
        if count > lane.promised[pool]:
            raise RuntimeError(f"{count} KV pages needed with {lane.promised[pool]} promised")
        pages = list(lane.pages[pool])
        fresh = []
        for _ in range(count):
            page = self.new_page(pool)
            self.pools[pool].place(page, pages[-1] if pages else None)
            pages.append(page)
            fresh.append(page)
        grown = replace(
            lane,
            pages=_replaced(lane.pages, pool, tuple(pages)),
            writable=lane.writable | mask_of(fresh),
            promised=_replaced(lane.promised, pool, lane.promised[pool] - count),
        )
        world = self.world.with_owner(Owner(owner.id, owner.role, owner.checkpoints, grown))
        self.publish(world.with_replicas(Replicas(device_pages=mask_of(fresh))))
        self.settle_ids(pages=fresh)

    def unmap_pages(self, owner_id: OwnerId, pool: int, keep: int) -> None:
        """Unmap the pages behind the first keep ones; their capacity stays promised (ACT-2).

        Raises:
            RuntimeError: a page to go is not the sequence's own.
        """
        owner = self.world.owners[owner_id]
        lane = _lane(owner)
        gone = lane.pages[pool][keep:]
        mask = mask_of(gone)
        if mask & ~lane.writable:
            raise RuntimeError("a borrowed page cannot be truncated away")
        shorter = replace(
            lane,
            pages=_replaced(lane.pages, pool, lane.pages[pool][:keep]),
            writable=lane.writable & ~mask,
            promised=_replaced(lane.promised, pool, lane.promised[pool] + len(gone)),
        )
        world = self.world.with_owner(Owner(owner.id, owner.role, owner.checkpoints, shorter))
        self.publish(world.with_only(world.replicas.without(Replicas(device_pages=mask))))

    def pool_of(self, page: LogicalPage) -> PageStore:
        number = next(i for i, pool in enumerate(self.world.geometry.pools) if page < pool.first + pool.ids)
        return self.pools[number]


def _lane(owner: Owner) -> Lane:
    if owner.lane is None:
        raise RuntimeError(f"owner {owner.id} is not active")
    return owner.lane


def _replaced(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])
