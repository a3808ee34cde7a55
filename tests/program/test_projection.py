"""Projection against the brute ledger, on random portfolios with aliases, Host geometry and tight capacities."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, LogicalPage, OwnerId
from ninfer_core.contract.plans import Readiness
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.ledger.arena import Arena
from ninfer_core.program.ledger.bits import mask_of, members
from ninfer_core.program.ledger.geometry import Geometry, Vector
from ninfer_core.program.ledger.objects import Checkpoint, Extent, Lane, Owner, Replicas, Role
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.assessment import AssessmentSession, judge
from ninfer_core.program.planning.outcome import identity, successors
from ninfer_core.program.planning.plan import seal
from ninfer_core.program.planning.projection import project
from ninfer_core.program.planning.target import Activation, Capture, Source, SourceMode, Target
from tests.program.brute_ledger import Replay
from tests.support.ids import Ids

PAGE_BYTES = (100, 60)


class Maker(Ids):
    """Builds a random legal world: owners that fork from one another, some replicas on Host, a fragmented arena.

    Args:
        wasteful: long extents on a small Host, many of whose pages have died in them.
    """

    def __init__(self, seed: int, *, wasteful: bool = False) -> None:
        self.wasteful = wasteful
        self.rng = random.Random(seed)
        rng = self.rng
        capacity = Vector(rng.randint(3, 9), rng.randint(0, 5), (rng.randint(6, 24), rng.randint(6, 24)), 0)
        capacity = Vector(capacity.device_images, capacity.host_images, capacity.pages, rng.choice([0, 900, 2000]))
        if wasteful:
            capacity = Vector(9, 5, (24, 24), rng.choice([700, 1000, 1300]))
        self.geometry = Geometry.of(capacity, PAGE_BYTES, (2, 1), 1000)
        self.owners: dict[OwnerId, Owner] = {}
        self.refs = 0
        for number in range(rng.randint(1, 5)):
            self.add_owner(OwnerId(number), active=number == 0 and rng.random() < 0.5)
        self.world = self.settle()

    def add_owner(self, owner: OwnerId, active: bool) -> None:
        rng, images, pages = self.rng, self.images, self.pages
        base: tuple[tuple[LogicalPage, ...], ...] = ((), ())
        others = [c for o in self.owners.values() for c in o.checkpoints]
        checkpoints: list[Checkpoint] = []
        frontier = 0
        if others and rng.random() < 0.6:
            parent = rng.choice(others)
            full = parent.frontier // PAGE_SIZE
            base, frontier = tuple(pool[:full] for pool in parent.pages), full * PAGE_SIZE
            if rng.random() < 0.4:
                checkpoints.append(Checkpoint(self.ref(), parent.kind, parent.frontier, parent.image, parent.pages))
                frontier = parent.frontier
        for _ in range(rng.randint(0 if active or checkpoints else 1, 2)):
            frontier += (
                rng.choice([1, 30, 64, 65, 300 if self.wasteful else 128])
                if rng.random() < 0.7
                else (-frontier) % 64 or 64
            )
            image, grown = self.new_image(), []
            for pool in range(2):
                need = -(-frontier // PAGE_SIZE) - len(base[pool])
                grown.append(self.new_pages(pool, need))
            if image is None or any(g is None for g in grown):
                self.images, self.pages = images, pages
                return
            held = tuple(base[i] + grown[i] for i in range(2))
            checkpoints.append(Checkpoint(self.ref(), SourceKind.LONG_ANCHOR, frontier, image, held))
            base = tuple(pool[: frontier // PAGE_SIZE] for pool in held)
        lane = None
        if active:
            image, tail = self.new_image(), self.new_pages(0, 1)
            if image is None or tail is None:
                self.images, self.pages = images, pages
                return
            lane = Lane(image, None, (base[0] + tail, base[1]), 1 << tail[0], (rng.randint(0, 2), 0))
        if checkpoints or lane:
            role = Role.ACTIVE if lane else Role.PRIVATE
            self.owners[owner] = Owner(owner, role, tuple(sorted(checkpoints, key=lambda c: c.frontier)), lane)

    def ref(self) -> CheckpointRef:
        self.refs += 1
        return CheckpointRef(self.refs)

    def settle(self) -> World:
        """Put a random part on Host, some of it twice."""
        rng, world = self.rng, World.empty(self.geometry)
        for owner in self.owners.values():
            world = world.with_owner(owner)
        images = mask_of(i for o in self.owners.values() for i in members(o.needs_images))
        pages = mask_of(p for o in self.owners.values() for p in members(o.needs_pages))
        busy_images = mask_of(i for o in self.owners.values() for i in members(o.device_needs[0]))
        busy_pages = mask_of(p for o in self.owners.values() for p in members(o.device_needs[1]))
        device_images, host_images, device_pages, host_pages = images, 0, pages, 0
        for image in members(images):
            if rng.random() < 0.4 and host_images.bit_count() < self.geometry.capacity.host_images:
                host_images |= 1 << image
                if rng.random() < 0.7 and not busy_images >> image & 1:
                    device_images &= ~(1 << image)
        arena, extents = Arena.empty(self.geometry.capacity.host_bytes), []
        for owner in self.owners.values():
            for checkpoint in owner.checkpoints:
                for number, pool in enumerate(checkpoint.pages):
                    run = tuple(p for p in pool[rng.randint(0, 2) :] if not host_pages >> p & 1)[
                        : rng.randint(2, 6) if self.wasteful else rng.randint(1, 3)
                    ]
                    indices = [pool.index(p) for p in run]
                    if not run or rng.random() < 0.5 or indices != list(range(indices[0], indices[0] + len(run))):
                        continue
                    size = len(run) * PAGE_BYTES[number]
                    placed = arena.allocate(size)
                    if placed is None:
                        continue
                    arena = placed[1]
                    extents.append(Extent(number, placed[0], size, run))
                    host_pages |= mask_of(run)
                    for page in run:
                        if rng.random() < (0.2 if self.wasteful else 0.7) and not busy_pages >> page & 1:
                            device_pages &= ~(1 << page)
        for extent in list(extents):
            if rng.random() < 0.2 and not extent.mask & ~device_pages:
                extents.remove(extent)
                host_pages &= ~extent.mask
                arena = arena.release(extent.offset, extent.size)
        wasted = 0.7 if self.wasteful else 0.1
        for at, extent in enumerate(extents):
            # Dead in their extent; a page that is on Device may have come back to Host in another extent since.
            dead = mask_of(p for p in extent.pages if device_pages >> p & 1 and rng.random() < wasted)
            if dead and dead != extent.mask:
                extents[at] = replace(extent, mask=extent.mask & ~dead)
                host_pages &= ~dead
        for page in members(pages & ~host_pages):
            number = next(i for i, pool in enumerate(self.geometry.pools) if pool.mask >> page & 1)
            placed = arena.allocate(PAGE_BYTES[number]) if rng.random() < 0.1 else None
            if placed is not None:
                arena = placed[1]
                extents.append(Extent(number, placed[0], PAGE_BYTES[number], (LogicalPage(page),)))
                host_pages |= 1 << page
        extents.sort(key=lambda extent: extent.offset)
        replicas = Replicas(device_images, host_images, device_pages, host_pages)
        return World(self.geometry, world.owners, replicas, tuple(extents), arena, self.geometry.zero(), world.revision)

    def target(self) -> Target:
        rng, world = self.rng, self.world
        private = [o for o in world.owners.values() if o.role is not Role.ACTIVE and o.checkpoints]
        active = [o for o in world.owners.values() if o.lane is not None]
        source = None
        demand: Activation | Capture | None = None
        if private and rng.random() < 0.6:
            owner = rng.choice(private)
            at = rng.randrange(len(owner.checkpoints))
            mode = rng.choice(list(SourceMode))
            lineage = owner.checkpoints[: at + rng.randint(0, 1)] if mode is SourceMode.CONSUME else ()
            source = Source(owner.id, owner.checkpoints[at], mode, lineage)
        if source is not None or rng.random() < 0.4:
            have = len(source.checkpoint.pages[0]) if source else 0
            total = have + rng.randint(0, 8)
            demand = Activation(source, (total, total))
        elif active and rng.random() < 0.7:
            device = rng.random() < 0.5
            demand = Capture(active[0].id, device, not device, (rng.randint(0, 1), rng.randint(0, 1)))
        outcomes = {}
        for owner in private:
            if source is not None and owner.id == source.owner:
                continue
            outcome = identity(owner, world.replicas)
            for _ in range(rng.randint(0, 4)):
                steps = list(successors(outcome))
                if not steps:
                    break
                outcome = rng.choice(steps).outcome
            if outcome != identity(owner, world.replicas):
                outcomes[owner.id] = outcome
        return Target(demand, outcomes)


@pytest.mark.req("CAP-4", "CAP-6", "CAP-7", "CAP-8", "CAP-9", "TGT-3", "INV-3", "INV-4", "INV-5", "DEF-8", "DEF-10")
@settings(deadline=None, max_examples=600)
@given(st.integers(0, 2**40), st.booleans())
def test_projection_equals_the_brute_ledger(seed: int, wasteful: bool) -> None:
    maker = Maker(seed, wasteful=wasteful)
    world, target = maker.world, maker.target()
    replay, projection = Replay(world, target), project(world, target)
    assert projection.feasible == replay.fits()
    peak = projection.peaks[0].most(projection.peaks[1])
    assert peak.device_images == replay.peak["device_images"]
    assert peak.host_images == replay.peak["host_images"]
    assert peak.pages == (replay.peak["pages", 0], replay.peak["pages", 1])
    if not projection.unplaceable:
        assert peak.host_bytes == replay.peak["host_bytes"]
    shrunk = [((s.extent.offset, s.extent.size), [(e.offset, e.size) for e in s.into]) for s in projection.shrinks]
    assert shrunk == replay.shrunk, "the replaced extents and where their living pages go (DEF-8)"
    if projection.source is not None:
        assert projection.source.moves == replay.moved
    final = projection.final
    assert set(members(final.device_pages)) <= replay.device_pages
    for owner in world.owners.values():
        if owner.id in target.outcomes:
            for checkpoint in target.outcomes[owner.id].kept:
                assert final.images & checkpoint.image_mask, "a surviving checkpoint keeps its image (RET-1, CKP-5)"
                assert not checkpoint.page_mask & ~final.pages, "and every page"


@pytest.mark.req("TGT-3", "TGT-6", "CAP-10")
@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**40), st.booleans())
def test_a_session_judges_exactly_as_a_fresh_projection(seed: int, wasteful: bool) -> None:
    """Whatever was assessed before: unrelated targets, successors of the last one, and the last one again."""
    maker = Maker(seed, wasteful=wasteful)
    world, rng = maker.world, maker.rng
    session = AssessmentSession(lambda: world, lambda: "")
    target = maker.target()
    for _ in range(8):
        choice = rng.random()
        if choice < 0.4:
            target = maker.target()
        elif choice < 0.9 and target.outcomes:
            owner = rng.choice(list(target.outcomes))
            steps = list(successors(target.outcomes[owner]))
            outcomes = {**target.outcomes, owner: rng.choice(steps).outcome} if steps else dict(target.outcomes)
            if rng.random() < 0.3:
                del outcomes[rng.choice(list(outcomes))]
            target = Target(target.demand, outcomes)
        projection = project(world, target)
        assert session.assess(target) == judge(world, target, projection)


@pytest.mark.req("TXN-1", "TXN-3", "PLAN-7")
@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**40), st.booleans())
def test_a_plan_is_the_same_whoever_counted_its_projection(seed: int, wasteful: bool) -> None:
    """Sealed from a session that has looked at other targets before, or from nothing: one plan, or one refusal."""
    maker = Maker(seed, wasteful=wasteful)
    world = maker.world
    session = AssessmentSession(lambda: world, lambda: "")
    for target in (maker.target() for _ in range(4)):
        session.assess(maker.target())
        found = []
        for count in (session.project, partial(project, world)):
            try:
                plan = seal(world, target, OwnerId(99), count)
                found.append((plan.revision, plan.target, plan.projection, plan.owner))
            except ValueError as refused:
                found.append(str(refused))
        assert found[0] == found[1]


def test_a_session_ends_with_its_revision() -> None:
    worlds = [Maker(7).world]
    session = AssessmentSession(lambda: worlds[-1], lambda: "a transition is open" if len(worlds) == 2 else "")
    target = Target(None)
    assert session.assess(target).readiness is Readiness.READY
    worlds.append(replace(worlds[0], held=Vector(1, 0, (0, 0), 0)))
    blocked = session.assess(target)
    assert (blocked.readiness, blocked.reason) == (Readiness.TEMPORARILY_BLOCKED, "a transition is open")
    assert blocked.projection == project(worlds[-1], target), "counted anew in a world that moved inside its revision"
    worlds.append(worlds[0].advanced())
    with pytest.raises(RuntimeError, match="stale"):
        session.assess(target)
