"""Summaries: the only way in which the logical side sees a checkpoint."""

from __future__ import annotations

from ninfer_core.contract.cache_table import AxisUse
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.results import CheckpointSummary
from ninfer_core.contract.statistics import Placement
from ninfer_core.program.ledger.objects import Checkpoint, Replicas
from ninfer_core.program.ledger.world import World


def placement(checkpoint: Checkpoint, replicas: Replicas) -> Placement:
    """Where a checkpoint can be recovered from: all of it on Device, all of it on Host, or some of each."""
    on_device = replicas.device_images & checkpoint.image_mask and not checkpoint.page_mask & ~replicas.device_pages
    if on_device:
        return Placement.DEVICE
    on_host = replicas.host_images & checkpoint.image_mask and not checkpoint.page_mask & ~replicas.host_pages
    return Placement.HOST if on_host else Placement.MIXED


def summarise(world: World, owner_id: OwnerId) -> tuple[CheckpointSummary, ...]:
    """The checkpoints of an owner, ascending; empty when it is gone."""
    owner = world.owners.get(owner_id)
    if owner is None:
        return ()
    return tuple(CheckpointSummary(c.ref, c.kind, c.frontier, placement(c, world.replicas)) for c in owner.checkpoints)


def axes(world: World) -> tuple[AxisUse, ...]:
    """Use, reservations and capacity of every axis (CAP-4)."""
    used, reserved, capacity = world.used(), world.reserved(), world.geometry.capacity
    rows = [
        AxisUse("Device states", "images", used.device_images, reserved.device_images, capacity.device_images),
        AxisUse("Host states", "images", used.host_images, reserved.host_images, capacity.host_images),
    ]
    for number, pages in enumerate(capacity.pages):
        rows.append(AxisUse("Device KV", "pages", used.pages[number], reserved.pages[number], pages))
    rows.append(AxisUse("Host KV", "bytes", used.host_bytes, reserved.host_bytes, capacity.host_bytes))
    return tuple(rows)


def footprint(world: World, owner_id: OwnerId) -> tuple[int, int]:
    """(bytes that would be free if this owner alone went, bytes that it holds together with others) (CAP-5)."""
    owner = world.owners[owner_id]
    alone = _size(world, world.exclusive(owner))
    return alone, _size(world, world.replicas.only(owner.needs_images, owner.needs_pages)) - alone


def _size(world: World, replicas: Replicas) -> int:
    geometry = world.geometry
    images = replicas.device_images.bit_count() + replicas.host_images.bit_count()
    size = images * geometry.image_bytes
    for pool in geometry.pools:
        pages = (replicas.device_pages & pool.mask).bit_count() + (replicas.host_pages & pool.mask).bit_count()
        size += pages * pool.page_bytes
    return size
