"""Publisher: zero-stage transitions that a running sequence's own reservation covers (context-cache TXN-2, KV-4)."""

from __future__ import annotations

from dataclasses import replace

from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, Frontier, ImageId, LogicalPage
from ninfer_core.contract.results import Grant
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.identity import trace_until
from ninfer_core.program.ledger.bits import mask_of
from ninfer_core.program.ledger.objects import Checkpoint, Lane, Owner, Role
from ninfer_core.program.ledger.world import World
from ninfer_core.program.records import Records
from ninfer_core.program.sequence import ArmedCapture, Sequence
from ninfer_core.program.storage.page_store import pages_for
from ninfer_core.program.storage.physical import Physical


class Publisher:
    """Publishes checkpoints of running sequences. Each verb is one step from stable world to stable world."""

    def __init__(self, physical: Physical, records: Records) -> None:
        self._physical = physical
        self._records = records

    def capture(self, sequence: Sequence, armed: ArmedCapture) -> CheckpointRef:
        """Publish the checkpoint whose image a tap has just written.

        Full pages of the sequence become immutable where they are; of an unaligned tail the checkpoint gets the granted
        page with a copy, so that exactly one page is copied and the writer goes on in its own (KV-4).
        """
        owner, _ = self._lane(sequence)
        return self._checkpoint(sequence, owner, armed, armed.grant.image)

    def freeze(self, sequence: Sequence, kind: SourceKind, grant: Grant) -> CheckpointRef:
        """Publish the present state: its image becomes the checkpoint's, the granted one the next writer (ST-2).

        No image is copied on Device: the next pass reads the frozen one. A Host grant is a snapshot instead.
        """
        owner, lane = self._lane(sequence)
        frontier = Frontier(sequence.frontier)
        if lane.reads is not None:
            # The frontier is the source's own: its image is shared, nothing has been written yet.
            image = lane.reads
        elif grant.on_device:
            image = lane.image
            lane = replace(lane, image=grant.image, reads=image)
        else:
            image = grant.image
            self._physical.images.snapshot(lane.image, image)
        return self._checkpoint(sequence, replace(owner, lane=lane), ArmedCapture(frontier, kind, grant), image)

    def drop_grant(self, sequence: Sequence, grant: Grant) -> None:
        """Unused room goes back."""
        owner, lane = self._lane(sequence)
        pages = mask_of(page for page in grant.tails if page is not None)
        lane = replace(lane, room_images=lane.room_images & ~(1 << grant.image), room_pages=lane.room_pages & ~pages)
        self._publish(self._physical.world.with_owner(replace(owner, lane=lane)).collected())

    def finish(self, sequence: Sequence) -> CheckpointRef:
        """The sequence becomes a private continuation with its endpoint; what it was promised is free again."""
        owner, lane = self._lane(sequence)
        frontier = Frontier(sequence.frontier)
        image = lane.image if lane.reads is None else lane.reads
        held = tuple(pool[: pages_for(frontier)] for pool in lane.pages)
        ref = self._record(sequence, frontier)
        checkpoint = Checkpoint(ref, SourceKind.SESSION_ENDPOINT, frontier, image, held)
        self._cover(checkpoint, lane)
        ended = Owner(owner.id, Role.PRIVATE, (*owner.checkpoints, checkpoint))
        self._publish(self._physical.world.with_owner(ended).collected())
        return ref

    def settle_fork(self, sequence: Sequence) -> None:
        """The first state-writing commit: from now on the sequence reads what it writes (ST-3, ST-4)."""
        owner, lane = self._lane(sequence)
        if lane.reads is not None:
            world = self._physical.world.with_owner(replace(owner, lane=replace(lane, reads=None)))
            # The source survives with its owner; if that is gone, nobody needs it any more.
            self._physical.publish(world.collected())

    def extend_lease(self, sequence: Sequence, tokens: int) -> bool:
        """Promise pages for tokens tokens, all or nothing."""
        owner, lane = self._lane(sequence)
        world = self._physical.world
        missing = tuple(
            max(0, pages_for(tokens) - len(pages) - promised)
            for pages, promised in zip(lane.pages, lane.promised, strict=True)
        )
        if not any(missing):
            return True
        promised = tuple(a + b for a, b in zip(lane.promised, missing, strict=True))
        grown = world.with_owner(replace(owner, lane=replace(lane, promised=promised)))
        if grown.used().excess(world.geometry.capacity):
            return False
        self._physical.publish(grown.advanced())
        return True

    # --- parts ----------------------------------------------------------------------------------------------------
    def _checkpoint(self, sequence: Sequence, owner: Owner, armed: ArmedCapture, image: ImageId) -> CheckpointRef:
        """Copy the granted tails, publish the checkpoint with its image, and take the used room off the lane."""
        lane = owner.lane
        assert lane is not None
        held, tails = self._pages_at(lane, armed.frontier, armed.grant)
        for (number, source), page in zip(tails, (t for t in armed.grant.tails if t is not None), strict=True):
            self._physical.pools[number].copy_tail(source, page, armed.frontier % PAGE_SIZE)
        ref = self._record(sequence, armed.frontier)
        checkpoint = Checkpoint(ref, armed.kind, armed.frontier, image, held)
        self._cover(checkpoint, lane)
        granted = mask_of(page for page in armed.grant.tails if page is not None)
        lane = replace(
            lane,
            writable=lane.writable & ~checkpoint.page_mask,
            room_images=lane.room_images & ~(1 << armed.grant.image),
            room_pages=lane.room_pages & ~granted,
        )
        self._publish(self._with_checkpoint(owner, lane, checkpoint))
        return ref

    def _lane(self, sequence: Sequence) -> tuple[Owner, Lane]:
        owner = self._physical.world.owners[sequence.owner]
        assert owner.lane is not None
        return owner, owner.lane

    @staticmethod
    def _pages_at(
        lane: Lane, frontier: int, grant: Grant
    ) -> tuple[tuple[tuple[LogicalPage, ...], ...], list[tuple[int, LogicalPage]]]:
        """(the checkpoint's pages per pool, (pool, tail) pairs to copy)."""
        held, tails = [], []
        full = frontier // PAGE_SIZE
        for number, pool in enumerate(lane.pages):
            granted = grant.tails[number]
            if granted is None:
                held.append(pool[: pages_for(frontier)])
            else:
                held.append((*pool[:full], granted))
                tails.append((number, pool[full]))
        return tuple(held), tails

    def _record(self, sequence: Sequence, frontier: Frontier) -> CheckpointRef:
        return self._records.add(sequence.identity(frontier), trace_until(tuple(sequence.trace), frontier))

    def _cover(self, checkpoint: Checkpoint, lane: Lane) -> None:
        """Note how many tokens of each page the checkpoint protects: what a replica must hold (KV-7)."""
        for number, pool in enumerate(checkpoint.pages):
            for i, page in enumerate(pool):
                if lane.writable >> page & 1:
                    covered = min(PAGE_SIZE, checkpoint.frontier - i * PAGE_SIZE)
                    self._physical.pools[number].cover(page, covered)

    def _with_checkpoint(self, owner: Owner, lane: Lane, checkpoint: Checkpoint) -> World:
        ordered = tuple(sorted((*owner.checkpoints, checkpoint), key=lambda c: (c.frontier, c.ref)))
        return self._physical.world.with_owner(Owner(owner.id, owner.role, ordered, lane)).collected()

    def _publish(self, world: World) -> None:
        self._physical.publish(world.advanced())
