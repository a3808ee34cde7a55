"""RunningTransaction: the one global transition in progress (context-cache TXN-1, TXN-5, TXN-6, TXN-10).

It moves through the phases of TXN-6 and then, for an activation or capture, two more. Between any two calls of
`advance` the world is stable and within capacity, every surviving checkpoint is valid, and decode rounds may run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum

from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, ImageId, LogicalPage, OwnerId
from ninfer_core.contract.results import Ending, Grant, OwnerSummary, ResourceResult
from ninfer_core.contract.statistics import Transfer
from ninfer_core.program.ledger.bits import mask_of, members
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import STEP_PAGES, Checkpoint, Lane, Owner, Replicas, Role
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.plan import ResourcePlan
from ninfer_core.program.planning.target import Activation, Capture, SourceMode, source_of
from ninfer_core.program.storage.physical import Physical
from ninfer_core.program.summary import summarise
from ninfer_core.program.transactions.shrinking import Shrinking


class Phase(Enum):
    HOST_RELEASES = "host_releases"
    COPY_PREPARATION = "copy_preparation"
    COPIES_IN_FLIGHT = "copies_in_flight"
    COPY_PUBLICATION = "copy_publication"
    ACTIVATION_PREPARATION = "activation_preparation"
    ACTIVATION_COPIES = "activation_copies"
    COMMITTED = "committed"
    ABORTED = "aborted"


class CopyError(RuntimeError):
    """A copy did not complete. The transaction aborts; nothing that was valid before is lost."""


class RunningTransaction:
    """Created by Program.start after the preflight. `advance` until `result` is there."""

    def __init__(self, physical: Physical, plan: ResourcePlan, fault: Callable[[Phase], None] | None = None) -> None:
        self.phase = Phase.HOST_RELEASES
        self.aborted_in: Phase | None = None
        self.result: ResourceResult | None = None
        self.waiting = False
        """Whether the last advance found copies that have not landed, and did nothing."""
        self._physical = physical
        self._plan = plan
        self._fault = fault or (lambda phase: None)
        self._cancelled = False
        self._began = time.perf_counter()
        self._copied = 0
        self._claimed = self._claims()
        self._replicas = self._world.replicas
        self._images: list[ImageId] = []
        self._pages: list[LogicalPage] = []
        self._restored_to: list[LogicalPage] = []
        self._moved_image: ImageId | None = None
        self._host_images: list[ImageId] = []
        self._arena_taken = False
        self._shrinking = Shrinking(physical, plan.projection.shrinks)
        self._work = self._run()

    def cancel(self) -> None:
        """Ask for an abort at the next phase boundary. Too late once it has committed."""
        self._cancelled = True

    def advance(self) -> ResourceResult | None:
        """One bounded piece of work: a phase without copies, or one copy. The result once there is one."""
        if self.result is None:
            try:
                next(self._work)
            except StopIteration:
                pass
            except BaseException as error:
                # Every unit of work is either wholly published or not at all, so the way back is the same for an
                # injected fault, a lost device and a full memory. If even that fails, the caller has to give up.
                self._abort(str(error) or type(error).__name__)
        return self.result

    def run(self) -> ResourceResult:
        """Advance to the end."""
        while (result := self.advance()) is None:
            pass
        return result

    # --- the phases -----------------------------------------------------------------------------------------------
    def _run(self) -> Iterator[None]:
        projection = self._plan.projection
        self._release()
        yield
        yield from self._shrinking.run(lambda: self._fault(self.phase))
        if self._stop(Phase.COPY_PREPARATION):
            return
        if projection.demoted:
            self._prepare_demotion()
            yield
            if self._stop(Phase.COPIES_IN_FLIGHT):
                return
            yield from self._copy_to_host()
            yield from self._landed()
        if self._stop(Phase.COPY_PUBLICATION):
            return
        self._publish_demotion()
        yield
        demand = self._plan.target.demand
        if demand is not None:
            if self._stop(Phase.ACTIVATION_PREPARATION):
                return
            self._prepare_demand(demand)
            yield
            if self._stop(Phase.ACTIVATION_COPIES):
                return
            yield from self._copy_to_device(demand)
            yield from self._landed()
            if self._cancelled:
                self._abort("cancelled")
                return
        self._commit()

    def _stop(self, phase: Phase) -> bool:
        """Cross a phase boundary, unless the transaction was cancelled."""
        if self._cancelled:
            self._abort("cancelled")
            return True
        self.phase = phase
        return False

    def _release(self) -> None:
        """Pure releases: victims take their end state, a consumed source loses what lies beside its lineage."""
        world = self._world
        owners = dict(world.owners)
        for owner_id, outcome in self._plan.target.outcomes.items():
            if outcome.kept:
                owners[owner_id] = replace(owners[owner_id], checkpoints=outcome.kept)
            else:
                del owners[owner_id]
        source = source_of(self._plan.target)
        if source is not None and source.mode is SourceMode.CONSUME:
            # The source itself stays valid until the commit: an abort must find it.
            kept = {c.ref: c for c in (*source.lineage, source.checkpoint)}
            ordered = tuple(sorted(kept.values(), key=lambda c: (c.frontier, c.ref)))
            owners[source.owner] = replace(owners[source.owner], checkpoints=ordered)
        released = self._plan.projection.released
        self._publish(replace(world, owners=owners).with_only(world.replicas.without(released)))

    def _prepare_demotion(self) -> None:
        projection, arena = self._plan.projection, self._world.arena
        for extent in projection.extents:
            placed = arena.allocate(extent.size)
            assert placed is not None and placed[0] == extent.offset, "the arena is not what the plan saw"
            arena = placed[1]
        for number in members(projection.demoted.host_images):
            image = ImageId(number)
            self._physical.images.host_slots.take(image)
            self._host_images.append(image)
        self._arena_taken = True
        self._publish(replace(self._world, arena=arena, held=self._world.held + self._making))

    def _copy_to_host(self) -> Iterator[None]:
        for image in self._host_images:
            with self._copy(self._physical.images.image_bytes):
                self._physical.images.copy_to_host(image)
            yield
        for extent in self._plan.projection.extents:
            store = self._physical.pools[extent.pool]
            for first in range(0, len(extent.pages), STEP_PAGES):
                count = min(STEP_PAGES, len(extent.pages) - first)
                with self._copy(count * store.page_bytes):
                    store.copy_to_host(extent, first, count)
                yield

    @contextmanager
    def _copy(self, size: int) -> Iterator[None]:
        """One copy of so many bytes, on the copies' stream."""
        self._fault(self.phase)
        with self._physical.copies.copying():
            yield
        self._copied += size

    def _landed(self) -> Iterator[None]:
        """Until every copy is complete: nothing is published before (TXN-5), and decode rounds may run meanwhile."""
        while not self._physical.copies.landed():
            self.waiting = True
            yield
        self.waiting = False
        self._physical.copies.settle()

    def _publish_demotion(self) -> None:
        """Epoch and coverage are those of now: pages of inactive owners have no writer (TXN-5)."""
        projection, world = self._plan.projection, self._world
        for extent in projection.extents:
            assert not any(extent.mask & (o.lane.writable if o.lane else 0) for o in world.owners.values())
            self._physical.pools[extent.pool].publish(extent)
        extents = tuple(sorted((*world.extents, *projection.extents), key=lambda extent: extent.offset))
        there = replace(world, extents=extents, replicas=world.replicas | projection.demoted)
        if self._arena_taken:
            there = replace(there, held=world.held - self._making)
        self._arena_taken = False
        self._host_images.clear()
        self._publish(there.with_only(there.replicas.without(projection.replaced)))

    def _prepare_demand(self, demand: Activation | Capture) -> None:
        physical, projection = self._physical, self._plan.projection
        if isinstance(demand, Capture):
            self._prepare_capture(demand)
            return
        use, source = projection.source, demand.source
        if use is None or source is None or not use.moves:
            image = physical.new_image()
            physical.images.device_slots.take(image)
            self._images.append(image)
        elif use.image_from_host:
            self._moved_image = source.checkpoint.image
            physical.images.device_slots.take(self._moved_image)
        if use is not None and source is not None:
            for number, pool in enumerate(source.checkpoint.pages):
                self._place_pages(number, pool, use.copied[number])
        self._publish(replace(self._world, held=self._world.held + self._demand))

    def _place_pages(self, number: int, pool: tuple[LogicalPage, ...], copied: LogicalPage | None) -> None:
        physical, restored = self._physical, self._plan.projection.restored
        before: LogicalPage | None = None
        for page in pool:
            if restored >> page & 1:
                physical.pools[number].place(page, before)
                self._restored_to.append(page)
            before = page
        if copied is not None:
            page = physical.new_page(number)
            physical.pools[number].place(page, pool[-2] if len(pool) > 1 else None)
            self._pages.append(page)

    def _prepare_capture(self, demand: Capture) -> None:
        physical = self._physical
        if demand.device_image or demand.host_image:
            image = physical.new_image()
            (physical.images.device_slots if demand.device_image else physical.images.host_slots).take(image)
            self._images.append(image)
        lane = self._world.owners[demand.owner].lane
        assert lane is not None, "only a running sequence captures"
        for number, count in enumerate(demand.tail_pages):
            for _ in range(count):
                page = physical.new_page(number)
                physical.pools[number].place(page, None)
                self._pages.append(page)
        self._publish(replace(self._world, held=self._world.held + self._demand))

    def _copy_to_device(self, demand: Activation | Capture) -> Iterator[None]:
        use = self._plan.projection.source
        if not isinstance(demand, Activation) or demand.source is None or use is None:
            return
        checkpoint, physical = demand.source.checkpoint, self._physical
        if use.image_from_host:
            destination = self._moved_image if self._moved_image is not None else self._images[0]
            with self._copy(physical.images.image_bytes):
                physical.images.copy_to_device(checkpoint.image, destination)
            yield
        for page in self._restored_to:
            store = physical.pool_of(page)
            with self._copy(store.page_bytes):
                store.copy_to_device(page, page)
            yield
        tails = [tail for tail in use.copied if tail is not None]
        for tail, page in zip(tails, self._pages, strict=True):
            store = physical.pool_of(page)
            with self._copy(store.page_bytes):
                store.copy_tail(tail, page, checkpoint.frontier % PAGE_SIZE)
            yield

    def _commit(self) -> None:
        demand, world = self._plan.target.demand, self._world
        grant: Grant | None = None
        if isinstance(demand, Activation):
            world = self._activated(world, demand)
        elif isinstance(demand, Capture):
            world, grant = self._granted(world, demand)
        # Only what this plan disposes of: running sequences may have mapped pages since it was sealed.
        world = world.with_only(world.replicas.without(self._plan.projection.disposed)).collected()
        self._publish(world.advanced())
        self._physical.settle_ids(self._images, self._pages)
        self.phase = Phase.COMMITTED
        owner = self._plan.owner if isinstance(demand, Activation) else None
        self._settle(Ending.COMMITTED, owner, grant, "")

    def _activated(self, world: World, demand: Activation) -> World:
        projection, source = self._plan.projection, demand.source
        use = projection.source
        assert self._plan.owner is not None
        none: tuple[tuple[LogicalPage, ...], ...] = ((),) * len(demand.lifetime_pages)
        pages, writable, promised = list(none), 0, list(projection.growth)
        reads: ImageId | None = None
        lineage: tuple[Checkpoint, ...] = ()
        owners = dict(world.owners)
        copies = iter(self._pages)
        if source is None or use is None:
            image = self._images[0]
        else:
            image = source.checkpoint.image if use.moves else self._images[0]
            reads = None if use.moves or use.image_from_host else source.checkpoint.image
            for number, borrowed in enumerate(use.borrowed):
                taken, copied = use.taken[number], use.copied[number]
                tail: tuple[LogicalPage, ...] = () if taken is None else (taken,)
                if copied is not None:
                    tail = (next(copies),)
                    promised[number] -= 1
                pages[number] = source.checkpoint.pages[number][:borrowed] + tail
                writable |= mask_of(tail)
            if source.mode is SourceMode.CONSUME:
                lineage = source.lineage
                del owners[source.owner]
        lane = Lane(image, reads, tuple(pages), writable, tuple(promised))
        owners[self._plan.owner] = Owner(self._plan.owner, Role.ACTIVE, lineage, lane)
        made = Replicas(device_images=1 << image, device_pages=mask_of(self._restored_to) | mask_of(self._pages))
        held = world.held - self._demand
        return replace(world, owners=owners, replicas=world.replicas | made, held=held)

    def _granted(self, world: World, demand: Capture) -> tuple[World, Grant]:
        owner = world.owners[demand.owner]
        assert owner.lane is not None
        images, pages = mask_of(self._images), mask_of(self._pages)
        lane = replace(
            owner.lane, room_images=owner.lane.room_images | images, room_pages=owner.lane.room_pages | pages
        )
        made = Replicas(images if demand.device_image else 0, images if demand.host_image else 0, pages, 0)
        left = iter(self._pages)
        tails = tuple(next(left) if count else None for count in demand.tail_pages)
        grant = Grant(self._images[0], demand.device_image, tails)
        changed = replace(owner, lane=lane)
        held = world.held - self._demand
        return replace(world, held=held, replicas=world.replicas | made).with_owner(changed), grant

    # --- ends -----------------------------------------------------------------------------------------------------
    def _abort(self, reason: str) -> None:
        """Free every destination that was not published. What was published stays, and is reported (TXN-10)."""
        self._physical.copies.settle()  # a destination is free only when nothing writes it any more
        physical, world = self._physical, self._shrinking.undone(self._world)
        for image in self._host_images:
            physical.images.host_slots.give(image)
        if self._arena_taken:
            arena = world.arena
            for extent in self._plan.projection.extents:
                arena = arena.release(extent.offset, extent.size)
            world = replace(world, arena=arena)
        if self._moved_image is not None:
            physical.images.device_slots.give(self._moved_image)
        for page in self._restored_to:
            physical.pool_of(page).drop_device(page)
        physical.forget_ids(self._images, self._pages)
        world = replace(world, held=world.geometry.zero())
        self._publish(world.advanced() if self._changed() else world)
        self.aborted_in, self.phase = self.phase, Phase.ABORTED
        self._settle(Ending.ABORTED, None, None, reason)

    def _changed(self) -> bool:
        """Whether releases or demotions were published: they are not undone."""
        return bool(self._plan.projection.released) or bool(self._plan.target.outcomes)

    def _settle(self, ending: Ending, owner: OwnerId | None, grant: Grant | None, reason: str) -> None:
        world = self._world
        owners = {}
        for claimed, refs in self._claimed.items():
            now = summarise(world, claimed)
            owners[claimed] = OwnerSummary(claimed, now, refs - {summary.ref for summary in now})
        ms = (time.perf_counter() - self._began) * 1e3
        copied = self._copied + self._shrinking.copied
        transfer = Transfer(copied, ms if copied else 0.0)
        self.result = ResourceResult(ending, world.revision, owner, grant, owners, transfer, reason, self._placed())

    def _placed(self) -> tuple[OwnerSummary, ...]:
        """Inactive owners beside the claimed ones that share objects whose replicas have changed."""
        was, world = self._replicas, self._world
        now, found = world.replicas, []
        images = (was.device_images ^ now.device_images) | (was.host_images ^ now.host_images)
        pages = (was.device_pages ^ now.device_pages) | (was.host_pages ^ now.host_pages)
        for owner in world.owners.values() if images or pages else ():
            shares = owner.needs_images & images or owner.needs_pages & pages
            if shares and owner.lane is None and owner.id not in self._claimed:
                found.append(OwnerSummary(owner.id, summarise(world, owner.id), frozenset()))
        return tuple(found)

    def _claims(self) -> dict[OwnerId, frozenset[CheckpointRef]]:
        """The exact checkpoint sets that the plan may change."""
        claimed = set(self._plan.target.outcomes)
        demand = self._plan.target.demand
        if isinstance(demand, Activation) and demand.source is not None:
            claimed.add(demand.source.owner)
        owners = self._world.owners
        return {owner: frozenset(c.ref for c in owners[owner].checkpoints) for owner in sorted(claimed)}

    @property
    def _world(self) -> World:
        return self._physical.world

    def _publish(self, world: World) -> None:
        self._physical.publish(world)

    @property
    def _making(self) -> Vector:
        projection, pools = self._plan.projection, self._world.geometry.pools
        size = sum(extent.size for extent in projection.extents)
        return Vector(0, projection.demoted.host_images.bit_count(), (0,) * len(pools), size)

    @property
    def _demand(self) -> Vector:
        return self._plan.projection.demand
