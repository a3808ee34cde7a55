"""Aliases: checkpoints that share image and pages with one that exists. Nothing is computed or copied for them."""

from __future__ import annotations

from dataclasses import replace

from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.ledger.objects import Checkpoint, Owner, Role
from ninfer_core.program.records import Records
from ninfer_core.program.storage.physical import Physical


class Aliases:
    """Zero-stage transitions between stable worlds (context-cache TXN-2); each advances the revision."""

    def __init__(self, physical: Physical, records: Records) -> None:
        self._physical = physical
        self._records = records

    def share(self, owner: OwnerId, ref: CheckpointRef, shared: OwnerId) -> CheckpointRef:
        """Publish an existing checkpoint as a shared prefix of its own (CAN-9: promotion without prefill).

        Args:
            shared: the new owner's id.

        Raises:
            KeyError: the checkpoint is gone.
        """
        made = self._alias(self._checkpoint(owner, ref), SourceKind.SHARED_STABLE_PREFIX)
        self._physical.publish(self._physical.world.with_owner(Owner(shared, Role.SHARED, (made,))).advanced())
        return made.ref

    def separate(self, owner: OwnerId, ref: CheckpointRef, shared: OwnerId) -> CheckpointRef:
        """Like `share`, and the owner keeps nothing of it: what was captured for the public alone."""
        made = self._alias(self._checkpoint(owner, ref), SourceKind.SHARED_STABLE_PREFIX)
        world = self._physical.world.with_owner(Owner(shared, Role.SHARED, (made,)))
        self._physical.publish(world.with_owner(_without(world.owners[owner], ref)).advanced())
        return made.ref

    def add(self, source: OwnerId, ref: CheckpointRef, owner: OwnerId, kind: SourceKind) -> CheckpointRef:
        """Give an owner a checkpoint that another one has, too.

        Raises:
            KeyError: the checkpoint or the owner is gone.
        """
        world = self._physical.world
        made = self._alias(self._checkpoint(source, ref), kind)
        found = world.owners[owner]
        ordered = tuple(sorted((*found.checkpoints, made), key=lambda c: (c.frontier, c.ref)))
        self._physical.publish(world.with_owner(replace(found, checkpoints=ordered)).advanced())
        return made.ref

    def drop(self, owner: OwnerId, ref: CheckpointRef) -> None:
        """Delete one checkpoint; what nobody else needs is free. The last one of an inactive owner takes it along.

        Raises:
            KeyError: it is gone already.
        """
        self._checkpoint(owner, ref)
        world = self._physical.world
        left = _without(world.owners[owner], ref)
        if not left.checkpoints and left.lane is None:
            self._physical.publish(world.without_owner(owner).advanced())
        else:
            self._physical.publish(world.with_owner(left).collected().advanced())

    def _checkpoint(self, owner: OwnerId, ref: CheckpointRef) -> Checkpoint:
        for checkpoint in self._physical.world.owners[owner].checkpoints:
            if checkpoint.ref == ref:
                return checkpoint
        raise KeyError(ref)

    def _alias(self, checkpoint: Checkpoint, kind: SourceKind) -> Checkpoint:
        record = self._records[checkpoint.ref]
        return replace(checkpoint, ref=self._records.add(record.identity, record.trace), kind=kind)


def _without(owner: Owner, ref: CheckpointRef) -> Owner:
    return replace(owner, checkpoints=tuple(c for c in owner.checkpoints if c.ref != ref))
