"""Projection: the joint post-state of one target, in one pass (context-cache CAP-7, CAP-8, CAP-9, TGT-3).

Nothing is added up per owner. What is alive is the union of what survivors need; where it lies is the union of what
they wish; what is released, copied, moved or forked follows from the difference to the present world. Canonical stages
(DEF-10), with the only two at which occupancy can peak marked:

    release what nobody needs, shrink Host extents -> reserve demotion destinations (peak) -> copy to Host -> release
    their Device replicas -> reserve activation destinations and growth (peak) -> copy to Device, copy tails -> publish,
    dispose of the source
"""

from __future__ import annotations

from operator import add

from msgspec import Struct

from ninfer_core.contract.ids import PAGE_SIZE, LogicalPage
from ninfer_core.program.ledger.bits import minus
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import NOTHING, Extent, Replicas, needs_of
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.census import Survivors
from ninfer_core.program.planning.ground import Ground
from ninfer_core.program.planning.hosting import Shrink, host
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.target import Activation, Capture, Source, SourceMode, Target, source_of


class SourceUse(Struct, frozen=True):
    """How an activation takes its source.

    Attributes:
        moves: the source's image becomes the sequence's own.
        image_from_host: the image has no Device replica: it is restored.
        borrowed: how many of its pages, from the first, the sequence reads and others may keep, per pool.
        taken: tails that become the sequence's own without a copy, per pool.
        copied: tails that are copied because others keep them, per pool.
    """

    moves: bool
    image_from_host: bool
    borrowed: tuple[int, ...]
    taken: tuple[LogicalPage | None, ...]
    copied: tuple[LogicalPage | None, ...]

    @property
    def copied_pages(self) -> int:
        """The copied tails, as a set of pages."""
        pages = 0
        for tail in self.copied:
            pages |= 0 if tail is None else 1 << tail
        return pages


class Projection(Struct, frozen=True):
    """
    Attributes:
        deficit: by how much a peak exceeds the capacity, per axis, over both peaks.
        unplaceable: bytes of Host extents that total free bytes would hold and the arena's geometry does not.
        peaks: occupancy behind the two reserving stages; the first counts what shrinking takes on the way, too.
        released: replicas that go before anything is copied.
        shrinks: Host extents to be replaced by smaller ones before anything is demoted (DEF-8).
        demoted: Host replicas to be made, and released on Device once they are there.
        replaced: Device replicas that go as soon as their Host replica is published.
        restored: Device replicas to be made of pages that are only on Host.
        disposed: replicas that go at the end: what only served as the source of a copy.
        extents: the Host extents to be made.
        source: None without one.
        growth: Device pages promised to the sequence, per pool; copied tails are taken from them.
        demand: everything that the activation or capture takes, per axis.
        final: replicas at the end, the sequence's new objects not counted.
    """

    deficit: Vector
    unplaceable: int
    peaks: tuple[Vector, Vector]
    released: Replicas
    shrinks: tuple[Shrink, ...]
    demoted: Replicas
    replaced: Replicas
    restored: int
    disposed: Replicas
    extents: tuple[Extent, ...]
    source: SourceUse | None
    growth: tuple[int, ...]
    demand: Vector
    final: Replicas

    @property
    def feasible(self) -> bool:
        return not self.deficit and not self.unplaceable


def project(world: World, target: Target) -> Projection:
    """The complete post-state of a target. Mutates nothing; valid at the world's revision."""
    return complete(Ground.of(world), target, _survivors(world, target))


def complete(ground: Ground, target: Target, survivors: Survivors) -> Projection:
    """The projection whose survivors are known already, from whatever counted them."""
    world, geometry, have = ground.world, ground.world.geometry, ground.world.replicas
    source = source_of(target)
    images, pages, wants = survivors
    use = _source_use(world, source, images, pages) if source is not None else None
    needed_device = _needed_pages(source, use)
    restored = minus(needed_device, have.device_pages)
    # A source that is consumed stays in place until its copies are made.
    in_use = _copy_sources(source, use, have, restored)
    demoted = NOTHING
    if wants.host_images or wants.host_pages:
        demoted = Replicas(
            host_images=minus(wants.host_images, have.host_images), host_pages=minus(wants.host_pages, have.host_pages)
        )
    final = wants
    # A retained source's owner stays as it is, and so wishes it where it lies.
    if source is not None and (restored or source.mode is SourceMode.CONSUME or source.owner in target.outcomes):
        # Moved, it becomes the sequence's own; forked, the first pass reads it: either way it stays on Device.
        image = source.checkpoint.image_mask & have.device_images
        final = wants | Replicas(device_images=image, device_pages=needed_device)
    # Most identities of candidates let nothing go: the sets are long, and only those that are needed are made.
    disposed = copying = released = NOTHING
    if final is not have and (leaving := have.without(final)):
        disposed = leaving & in_use
        copying = Replicas(demoted.host_images, 0, demoted.host_pages, 0) & leaving.without(in_use)
        released = leaving.without(copying).without(in_use)

    before = have.without(released) if released else have
    hosting = host(ground, target, demoted.host_pages, before.host_pages)
    first = rest = ground.used(before, hosting.used)
    none = (0,) * len(geometry.pools)
    if demoted:
        after = before.without(copying) | demoted
        first += Vector(0, demoted.host_images.bit_count(), none, hosting.wanted)
        rest = ground.used(after, hosting.used + hosting.wanted)
    if hosting.peak:
        first = first.most(Vector(0, 0, none, hosting.peak))
    growth, demand = _demand(world, target, use, restored)
    second = rest + demand
    deficit = first.most(second).excess(geometry.capacity)
    return Projection(
        deficit=deficit,
        unplaceable=0 if deficit.host_bytes else hosting.unplaceable,  # the total says it already
        peaks=(first, second),
        released=released,
        shrinks=hosting.shrinks,
        demoted=demoted,
        replaced=copying,
        restored=restored,
        disposed=disposed,
        extents=hosting.extents,
        source=use,
        growth=growth,
        demand=demand,
        final=final,
    )


def _survivors(world: World, target: Target) -> Survivors:
    """What the surviving owners need, and the replicas they wish; a consumed source survives as its lineage."""
    images = pages = 0
    source, changed = source_of(target), []
    for owner in world.owners.values():
        outcome = target.outcomes.get(owner.id)
        if source is not None and owner.id == source.owner and source.mode is SourceMode.CONSUME:
            outcome = lineage(source, world.replicas)
        if outcome is None:
            images |= owner.needs_images
            pages |= owner.needs_pages
        else:  # a running owner needs what its sequence needs, whatever it wishes
            needs = outcome.needs if owner.lane is None else (owner.needs_images, owner.needs_pages)
            changed.append((needs, outcome.wants))
    # Who stays as it is wishes the replicas that there are.
    wants = world.replicas.only(images, pages)
    for needs, wished in changed:
        images |= needs[0]
        pages |= needs[1]
        wants |= wished
    return Survivors(images, pages, wants)


def lineage(source: Source, replicas: Replicas) -> Outcome:
    """What stays of a consumed owner, where it lies now."""
    return Outcome.in_place(source.lineage, replicas)


def contested(target: Target, projection: Projection) -> int:
    """Tails of a consumed source that are copied because others than its own lineage need them, as a set of pages: once
    those let go the sequence takes them as its own."""
    source, use = source_of(target), projection.source
    if source is None or use is None or source.mode is not SourceMode.CONSUME:
        return 0
    pages = use.copied_pages
    return minus(pages, needs_of(source.lineage)[1]) if pages else 0


def _source_use(world: World, source: Source, images: int, pages: int) -> SourceUse:
    """Move or Fork, and what happens to each pool's tail: from the complete post-state alone (CAP-8)."""
    checkpoint, have = source.checkpoint, world.replicas
    moves = source.mode is SourceMode.CONSUME and not images & checkpoint.image_mask
    aligned = checkpoint.frontier % PAGE_SIZE == 0
    borrowed, taken, copied = [], [], []
    for pool in checkpoint.pages:
        tail = None if aligned or not pool else pool[-1]
        kept = tail is not None and bool(pages >> tail & 1)
        borrowed.append(len(pool) - (tail is not None))
        taken.append(None if kept else tail)
        copied.append(tail if kept else None)
    return SourceUse(
        moves=moves,
        image_from_host=not have.device_images & checkpoint.image_mask,
        borrowed=tuple(borrowed),
        taken=tuple(taken),
        copied=tuple(copied),
    )


def _needed_pages(source: Source | None, use: SourceUse | None) -> int:
    """Pages that the sequence reads in place. A tail that is copied need not be on Device itself."""
    if source is None or use is None:
        return 0
    return minus(source.checkpoint.page_mask, use.copied_pages)


def _copy_sources(source: Source | None, use: SourceUse | None, have: Replicas, restored: int) -> Replicas:
    """Replicas that an activation copies from or starts from: they stay until its last stage."""
    if source is None or use is None:
        return NOTHING
    image = source.checkpoint.image_mask
    pages = restored | use.copied_pages
    return Replicas(
        device_images=image & have.device_images,
        host_images=image & have.host_images if use.image_from_host else 0,
        device_pages=pages & have.device_pages,
        host_pages=minus(pages, have.device_pages) & have.host_pages,
    )


def _demand(world: World, target: Target, use: SourceUse | None, restored: int) -> tuple[tuple[int, ...], Vector]:
    """(promised growth, everything that the activation or capture takes on its axes)."""
    geometry = world.geometry
    none = (0,) * len(geometry.pools)
    match target.demand:
        case None:
            return none, geometry.zero()
        case Capture(device_image=device, host_image=host, tail_pages=tails):
            return none, Vector(int(device), int(host), tails, 0)
        case Activation(lifetime_pages=lifetime):
            if use is None:
                return lifetime, Vector(1, 0, lifetime, 0)
            held = [own + (tail is not None) for own, tail in zip(use.borrowed, use.taken, strict=True)]
            growth = tuple([max(0, total - own) for total, own in zip(lifetime, held, strict=True)])
            pages = tuple(map(add, growth, geometry.per_pool(restored))) if restored else growth
            image = 0 if use.moves and not use.image_from_host else 1
            return growth, Vector(image, 0, pages, 0)
