"""Summaries: the only way in which the logical side sees a checkpoint."""

from __future__ import annotations

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
