"""Random small planning problems on a real World: aliases, tight capacities, Host geometry, demands, candidates."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ninfer_core.cache.catalog import CellId, Entry
from ninfer_core.cache.contents import Contents
from ninfer_core.cache.cost import CostModel, PrefillCost, TransferCost
from ninfer_core.cache.demand import Demand, DemandWindow
from ninfer_core.cache.domain import Domain, Eligible, Option
from ninfer_core.cache.objective import Objective
from ninfer_core.cache.paths import PathIndex
from ninfer_core.cache.planner import Choice, Planner
from ninfer_core.cache.retention import Retention
from ninfer_core.cache.shelf import Shelf
from ninfer_core.cache.steps import whole
from ninfer_core.cache.value import Portfolio
from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, Generation, ImageId, LogicalPage, OwnerId
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.ledger.arena import Arena
from ninfer_core.program.ledger.bits import mask_of, members
from ninfer_core.program.ledger.geometry import Geometry, Vector
from ninfer_core.program.ledger.objects import Checkpoint, Extent, Lane, Owner, Replicas, Role
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.assessment import Assessment, AssessmentSession, judge
from ninfer_core.program.planning.outcome import Outcome, identity
from ninfer_core.program.planning.pressure import sole
from ninfer_core.program.planning.projection import Projection, project
from ninfer_core.program.planning.target import Activation, Capture, Source, SourceMode, Target
from ninfer_core.program.planning.work import ImmediateWork, immediate
from ninfer_core.program.summary import summarise
from tests.support.ids import Ids

PAGE_BYTES, PLANES, IMAGE_BYTES = (100, 60), (2, 1), 1000


class Decided:
    """A planner whose steps are gone through at once."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner

    def materialize(self, *asked: Any) -> Choice:
        return whole(self.planner.materialize(*asked))

    def capture(self, *asked: Any) -> Choice:
        return whole(self.planner.capture(*asked))


class WorldProgram:
    """Program's read-only side over a bare World: what a planner may ask, and no stores behind it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.geometry = world.geometry

    def session(self) -> AssessmentSession:
        return AssessmentSession(lambda: self.world, lambda: "")

    def assess(self, target: Target) -> Assessment:
        return judge(self.world, target, project(self.world, target))

    def domain(self, owners: Iterable[OwnerId]) -> dict[OwnerId, Outcome]:
        return {owner: identity(self.world.owners[owner], self.world.replicas) for owner in owners}

    def sole(self, target: Target) -> Replicas:
        return sole(self.world, target)

    def immediate(self, target: Target, projection: Projection, prompt_tokens: int) -> ImmediateWork:
        activation = target.demand if isinstance(target.demand, Activation) else None
        return immediate(self.geometry, projection, activation, prompt_tokens, lambda page: page)


@dataclass
class Problem:
    """
    Attributes:
        texts: the exact token path of every checkpoint.
        keys: the digest of every checkpoint: one for equal texts.
        eligible: the owners that pressure may change.
        protected: owners that a running request started from.
    """

    world: World
    texts: dict[CheckpointRef, tuple[int, ...]]
    keys: dict[CheckpointRef, bytes]
    entries: dict[OwnerId, Entry]
    shared: frozenset[OwnerId]
    protected: frozenset[OwnerId]
    demands: list[Demand]
    cost: CostModel
    options: list[Option]
    free_cell: bool

    @property
    def eligible(self) -> list[OwnerId]:
        return [owner for owner in self.entries if owner not in self.protected]

    @property
    def cell_owners(self) -> frozenset[OwnerId]:
        """Those whose eviction frees the kind of cell that the publication needs."""
        capture = isinstance(self.options[0].demand, Capture)
        return frozenset(o for o in self.eligible if (o in self.shared) == capture)

    def planner(self, *, cost: CostModel | None = None) -> Decided:
        program, cost = WorldProgram(self.world), cost or self.cost
        paths = PathIndex(lambda a, b: self.texts[b][: len(self.texts[a])] == self.texts[a])
        for ref in self.texts:
            paths.add(ref)
        shelf = Shelf()
        held = {owner: self.world.owners[owner].checkpoints for owner in self.entries}
        for owner, checkpoints in held.items():
            for checkpoint in checkpoints:
                shelf.add(checkpoint.ref, self.keys[checkpoint.ref], b"", owner)
        window = DemandWindow()
        for demand in self.demands:
            window.record(demand)
        contents = Contents(self.entries.get, held.__getitem__, shelf, window, 0, self.world.replicas)
        portfolio = Portfolio(self.world.geometry, cost, paths, contents)
        domain = Domain(
            lambda: Eligible(self.entries, program.domain(self.eligible), self.cell_owners), free_cell=self.free_cell
        )
        objective = Objective(program.immediate, cost, portfolio, domain)
        return Decided(Planner(program, objective, domain))  # type: ignore[arg-type]


class ProblemMaker(Ids):
    """One problem from one seed. The world is legal: nothing uses more than there is."""

    def __init__(self, seed: int, *, owners: int = 5, host: bool | None = None, capture: bool = False) -> None:
        self.rng = rng = random.Random(seed)
        host = rng.random() < 0.5 if host is None else host
        self.images_on_host = rng.randint(1, 4) if host else 0
        arena = rng.choice([0, 400, 900, 1500]) if host else 0
        two_pools = rng.random() < 0.3
        pages = rng.randint(6, 20)
        capacity = Vector(rng.randint(3, 9), self.images_on_host, (pages, rng.randint(6, 20))[: 1 + two_pools], arena)
        pools = len(capacity.pages)
        self.geometry = Geometry.of(capacity, PAGE_BYTES[:pools], PLANES[:pools], IMAGE_BYTES)
        self.owners: dict[OwnerId, Owner] = {}
        self.texts: dict[CheckpointRef, tuple[int, ...]] = {}
        self.images = self.pages = self.refs = self.tokens = 0
        active = capture or rng.random() < 0.35
        for number in range(rng.randint(2, owners + active)):
            self.add_owner(OwnerId(number), active=active and number == 0)
        self.world = self.settle()
        self.capture = capture and OwnerId(0) in self.owners

    # --- the world ------------------------------------------------------------------------------------------------
    def add_owner(self, owner: OwnerId, active: bool) -> None:
        """Grow a path, from nothing or forked from another checkpoint at a page or, as an alias, exactly."""
        rng, before = self.rng, (self.images, self.pages)
        pools = len(self.geometry.pools)
        base: tuple[tuple[LogicalPage, ...], ...] = ((),) * pools
        text: tuple[int, ...] = ()
        others = [c for o in self.owners.values() for c in o.checkpoints]
        made: list[Checkpoint] = []
        if others and rng.random() < 0.5:
            parent = rng.choice(others)
            full = parent.frontier // PAGE_SIZE
            base = tuple(pool[:full] for pool in parent.pages)
            text = self.texts[parent.ref][: full * PAGE_SIZE]
            if rng.random() < 0.5:
                made.append(self.checkpoint(parent.frontier, parent.image, parent.pages, self.texts[parent.ref]))
                text = self.texts[parent.ref]
        for _ in range(rng.randint(0 if active or made else 1, 3 - len(made))):
            grown = rng.choice([1, 30, 64, 65, 128]) if rng.random() < 0.7 else (-len(text)) % 64 or 64
            text = (*text, *range(self.tokens, self.tokens + grown))
            self.tokens += grown
            image, more = (
                self.new_image(),
                [self.new_pages(p, -(-len(text) // 64) - len(base[p])) for p in range(pools)],
            )
            if image is None or any(pages is None for pages in more):
                self.images, self.pages = before
                return
            held = tuple(base[p] + (more[p] or ()) for p in range(pools))
            made.append(self.checkpoint(len(text), image, held, text))
            base = tuple(pool[: len(text) // PAGE_SIZE] for pool in held)
        lane = None
        if active:
            image, tail = self.new_image(), [self.new_pages(p, 1) for p in range(pools)]
            if image is None or any(pages is None for pages in tail):
                self.images, self.pages = before
                return
            held = tuple(base[p] + (tail[p] or ()) for p in range(pools))
            promised = tuple(rng.randint(0, 2) for _ in range(pools))
            lane = Lane(image, None, held, mask_of(p for pool in tail for p in pool or ()), promised)
        if made or lane:
            role = Role.ACTIVE if lane else rng.choice([Role.PRIVATE, Role.PRIVATE, Role.SHARED])
            if role is Role.SHARED:
                made = made[-1:]
            self.owners[owner] = Owner(owner, role, tuple(made), lane)

    def checkpoint(self, frontier: int, image: ImageId, pages: tuple, text: tuple[int, ...]) -> Checkpoint:  # type: ignore[type-arg]
        self.refs += 1
        ref = CheckpointRef(self.refs)
        self.texts[ref] = text
        kind = self.rng.choice([SourceKind.SESSION_ENDPOINT, SourceKind.LONG_ANCHOR, SourceKind.RESPONSE_REPLAY])
        return Checkpoint(ref, kind, frontier, image, pages)

    def settle(self) -> World:
        """A random part lies on Host, some of it twice; extents are placed by the real allocator."""
        rng, world = self.rng, World.empty(self.geometry)
        busy_images = busy_pages = images = pages = 0
        for owner in self.owners.values():
            world = world.with_owner(owner)
            images, pages = images | owner.needs_images, pages | owner.needs_pages
            busy_images, busy_pages = busy_images | owner.device_needs[0], busy_pages | owner.device_needs[1]
        have = [images, 0, pages, 0]
        for image in members(images):
            if rng.random() < 0.4 and have[1].bit_count() < self.images_on_host:
                have[1] |= 1 << image
                if rng.random() < 0.7 and not busy_images >> image & 1:
                    have[0] &= ~(1 << image)
        arena, extents = Arena.empty(self.geometry.capacity.host_bytes), []
        for owner in self.owners.values():
            for checkpoint in owner.checkpoints:
                for number, pool in enumerate(checkpoint.pages):
                    run = tuple(p for p in pool[rng.randint(0, 2) :] if not have[3] >> p & 1)[: rng.randint(1, 3)]
                    indices = [pool.index(p) for p in run]
                    if not run or rng.random() < 0.5 or indices != list(range(indices[0], indices[0] + len(run))):
                        continue
                    size = len(run) * PAGE_BYTES[number]
                    placed = arena.allocate(size)
                    if placed is None:
                        continue
                    arena = placed[1]
                    extents.append(Extent(number, placed[0], size, run))
                    have[3] |= mask_of(run)
                    gone = mask_of(p for p in run if rng.random() < 0.7 and not busy_pages >> p & 1)
                    have[2] &= ~gone
        for extent in list(extents):
            if rng.random() < 0.3 and not extent.mask & ~have[2]:
                extents.remove(extent)  # leaves a hole
                have[3] &= ~extent.mask
                arena = arena.release(extent.offset, extent.size)
        extents.sort(key=lambda extent: extent.offset)
        return World(
            self.geometry, world.owners, Replicas(*have), tuple(extents), arena, self.geometry.zero(), world.revision
        )

    # --- the logical side -----------------------------------------------------------------------------------------
    def problem(self) -> Problem | None:
        """None when the world has nothing that pressure could change."""
        rng, world = self.rng, self.world
        inactive = [o for o in world.owners.values() if o.lane is None]
        if not inactive:
            return None
        living = {c.ref for o in inactive for c in o.checkpoints}
        texts = {ref: text for ref, text in self.texts.items() if ref in living}
        digests: dict[tuple[int, ...], bytes] = {}
        keys = {ref: digests.setdefault(text, b"%d" % ref) for ref, text in texts.items()}
        entries = {o.id: self.entry(o) for o in inactive}
        protected = frozenset(o.id for o in inactive if rng.random() < 0.12)
        strangers = [b"stranger"]
        demands = [
            Demand(b"%d" % at, frozenset(rng.sample([*keys.values(), *strangers], rng.randint(1, min(3, len(keys))))))
            for at in range(rng.choice([0, 2, 8, 32]))
        ]
        shared = frozenset(o.id for o in inactive if o.role is Role.SHARED)
        options = self.captures(protected) if self.capture else self.candidates(inactive, protected, texts)
        return Problem(
            world, texts, keys, entries, shared, protected, demands, self.cost(), options, rng.random() < 0.5
        )

    def entry(self, owner: Owner) -> Entry:
        rng = self.rng
        published = rng.randint(0, 40)
        summaries = summarise(self.world, owner.id)
        hit = rng.randint(published, 41)
        entry = Entry(owner.id, CellId(owner.id), Generation(1), summaries, published, hit)
        entry.retention = rng.choice(list(Retention))
        entry.unreachable = frozenset(s.ref for s in summaries if rng.random() < 0.1)
        if owner.role is Role.SHARED:
            entry.shared = True
            entry.credit_until = 60 if rng.random() < 0.5 else None
            entry.automatic = entry.credit_until is None
        return entry

    def cost(self) -> CostModel:
        """Machines between fast links with slow compute and the reverse."""
        rng = self.rng

        def transfer() -> TransferCost:
            scale = 10 ** rng.uniform(3, 5.5)
            return TransferCost(100.0 * scale, 50.0 * scale, 0.3 * scale)

        scale = 10 ** rng.uniform(3, 5)
        prefill = PrefillCost(rng.choice([0.0, 1000.0]) * scale, 40.0 * scale, 0.05 * scale)
        return CostModel(transfer(), transfer(), transfer(), prefill)

    def captures(self, protected: frozenset[OwnerId]) -> list[Option]:
        rng, pools = self.rng, len(self.geometry.pools)
        device = rng.random() < 0.7 or not self.images_on_host
        demand = Capture(OwnerId(0), device, not device, tuple(rng.randint(0, 1) for _ in range(pools)))
        gain = 10 ** rng.uniform(6, 10)
        blocked = rng.randint(1, 4)
        return [Option(0, demand, needs_cell=rng.random() < 0.5, gain=gain, blocked=blocked)]

    def candidates(
        self, inactive: list[Owner], protected: frozenset[OwnerId], texts: dict[CheckpointRef, tuple[int, ...]]
    ) -> list[Option]:
        """Sources on one random path, each retained or consumed as may be, and root."""
        rng, pools = self.rng, len(self.geometry.pools)
        prompt = texts[rng.choice(list(texts))]
        total = len(prompt) + rng.choice([1, 40, 100, 200])
        lifetime = tuple(-(-(total + rng.choice([1, 60, 200])) // PAGE_SIZE) for _ in range(pools))
        deepest: dict[int, tuple[Owner, Checkpoint]] = {}
        for owner in inactive:
            for checkpoint in owner.checkpoints:
                if prompt[: checkpoint.frontier] == texts[checkpoint.ref] and rng.random() < 0.9:
                    deepest.setdefault(checkpoint.frontier, (owner, checkpoint))
        options: list[Option] = []
        for frontier in sorted(deepest, reverse=True):
            owner, checkpoint = deepest[frontier]
            endpoint = checkpoint.kind is SourceKind.SESSION_ENDPOINT
            consume = owner.role is Role.PRIVATE and owner.id not in protected and rng.random() < 0.6
            lineage: tuple[Checkpoint, ...] = ()
            dead: frozenset[CheckpointRef] = frozenset()
            if consume:
                kept = frontier if not endpoint else frontier - 1
                lineage = tuple(c for c in owner.checkpoints if c.frontier <= kept)
                dead = frozenset(c.ref for c in owner.checkpoints if c not in lineage)
            mode = SourceMode.CONSUME if consume else SourceMode.RETAIN
            activation = Activation(Source(owner.id, checkpoint, mode, lineage), lifetime)
            options.append(
                Option(len(options), activation, total, owner.id, dead, needs_cell=not consume, reused=frontier)
            )
        options.append(Option(len(options), Activation(None, lifetime), total, needs_cell=True))
        return options
