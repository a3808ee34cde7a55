"""Pressure: what each owner alone holds in a target's end state, so that the planner can tell which step frees what.

It is guidance for exploration only (PLAN-1): feasibility is the projection's word alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from ninfer_core.contract.ids import PAGE_SIZE, OwnerId
from ninfer_core.program.ledger.bits import mask_of, minus
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import Replicas, needs_of
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.target import Source, SourceMode, Target, source_of


class Sole:
    """Answers for many targets of one world. What nobody's degradation changes is counted once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._untouched: Replicas | None = None

    def of(self, target: Target) -> Replicas:
        """See `sole`. Without outcomes and with a source that stays, counted once for all targets."""
        if target.outcomes:
            return sole(self._world, target)
        source = source_of(target)
        if source is None:
            return self.untouched
        if source.mode is SourceMode.CONSUME:
            return sole(self._world, target)
        return self.untouched.without(_read(source))

    @property
    def untouched(self) -> Replicas:
        """As things are."""
        if self._untouched is None:
            self._untouched = sole(self._world, Target(None))
        return self._untouched

    def evictions(self, owners: Iterable[OwnerId]) -> dict[OwnerId, Vector]:
        """What the eviction of each owner alone would free as things are (CAP-5); of Host bytes those of its pages."""
        alone, geometry, held, found = self.untouched, self._world.geometry, self._world.owners, {}
        device_images, device_pages = alone.device_images, alone.device_pages
        on_host = alone.host_images or alone.host_pages
        for owner in owners:
            state = held[owner]
            images, pages = state.needs_images, state.needs_pages
            host_images = host_bytes = 0
            if on_host:
                host_images = (alone.host_images & images).bit_count()
                host_bytes = geometry.bytes_of(alone.host_pages & pages)
            found[owner] = Vector(
                (device_images & images).bit_count(), host_images, geometry.per_pool(device_pages & pages), host_bytes
            )
        return found

    def staying(self, target: Target, victims: Iterable[OwnerId]) -> Replicas:
        """What no outcome of these owners frees, together or alone, on any tier (TGT-5): what running sequences hold,
        the source's that stay, and what every other owner keeps; of a consumed source that is its lineage (CAN-8)."""
        world, source = self._world, source_of(target)
        images, pages = _running(world)
        for other in world.owners.keys() - set(victims):
            owner = world.owners[other]
            if owner.lane is not None:
                continue  # counted with what is pinned
            needs = (owner.needs_images, owner.needs_pages)
            if source is not None and other == source.owner and source.mode is SourceMode.CONSUME:
                needs = needs_of(source.lineage)
            images |= needs[0]
            pages |= needs[1]
        staying = Replicas(images, images, pages, pages)
        return staying if source is None else staying | _read(source)


def sole(world: World, target: Target) -> Replicas:
    """The replicas that exactly one survivor of the target wishes, and no running sequence reads."""
    source = source_of(target)
    have, changed = world.replicas, []
    once_images, once_pages = _running(world)
    twice_images, twice_pages = once_images, once_pages
    # Who stays as it is wishes the replicas that there are: two sets say it, whatever the tiers.
    for owner in world.owners.values():
        if owner.lane is not None:
            continue
        if source is not None and owner.id == source.owner and source.mode is SourceMode.CONSUME:
            changed.append(have.only(*needs_of(source.lineage)))
        elif owner.id in target.outcomes:
            changed.append(target.outcomes[owner.id].wants)
        else:
            images, pages = owner.needs_images, owner.needs_pages
            twice_images |= once_images & images
            once_images |= images
            if both := once_pages & pages:
                twice_pages |= both
            once_pages |= pages
    once, twice = have.only(once_images, once_pages), have.only(twice_images, twice_pages)
    for wants in changed:
        twice |= once & wants
        once |= wants
    alone = once.without(twice)
    return alone if source is None else alone.without(_read(source))


def _running(world: World) -> tuple[int, int]:
    """(images, pages) of running sequences: no outcome of an inactive owner can free them, on any tier."""
    images = pages = 0
    for owner in world.owners.values():
        if owner.lane is not None:
            images |= owner.needs_images
            pages |= owner.needs_pages
    return images, pages


def _read(source: Source) -> Replicas:
    """What a sequence keeps of its source: on Device, where it reads; a copy on Host is its owners' matter."""
    moved_image, moved_pages = _movable(source)
    return Replicas(
        device_images=minus(source.checkpoint.image_mask, moved_image),
        device_pages=minus(source.checkpoint.page_mask, moved_pages),
    )


def _movable(source: Source) -> tuple[int, int]:
    """The image and tails of a consumed source: they need no copies once whoever else holds them has let go (CAP-8)."""
    checkpoint = source.checkpoint
    if source.mode is not SourceMode.CONSUME:
        return 0, 0
    tails = [pool[-1] for pool in checkpoint.pages if pool] if checkpoint.frontier % PAGE_SIZE else []
    return checkpoint.image_mask, mask_of(tails)
