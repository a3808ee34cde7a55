"""Pressure: what each owner alone holds in a target's end state, so that the planner can tell which step frees what.

It is guidance for exploration only (PLAN-1): feasibility is the projection's word alone.
"""

from __future__ import annotations

from ninfer_core.program.ledger.bits import minus
from ninfer_core.program.ledger.objects import NOTHING, Replicas
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.target import Activation, Source, SourceMode, Target


class Sole:
    """Answers for many targets of one world: those that degrade nobody differ by what their source pins."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._untouched: Replicas | None = None

    def of(self, target: Target) -> Replicas:
        """See `sole`."""
        source = target.demand.source if isinstance(target.demand, Activation) else None
        if target.outcomes or (source is not None and source.mode is SourceMode.CONSUME):
            return sole(self._world, target)
        if self._untouched is None:
            self._untouched = sole(self._world, Target(None))
        if source is None:
            return self._untouched
        images, pages = source.checkpoint.image_mask, source.checkpoint.page_mask
        return self._untouched.without(Replicas(images, images, pages, pages))


def sole(world: World, target: Target) -> Replicas:
    """The replicas that exactly one survivor of the target wishes, and no running sequence reads."""
    source = target.demand.source if isinstance(target.demand, Activation) else None
    have = world.replicas
    once_images, once_pages = _pinned(world, source)
    # Pages are long sets: plain numbers, and no set operation for a tier that holds nothing.
    once = [have.device_images & once_images, have.host_images & once_images]
    once += [have.device_pages & once_pages, have.host_pages & once_pages]
    twice = list(once)
    for owner in world.owners.values():
        if owner.lane is not None:
            continue
        outcome = target.outcomes.get(owner.id)
        if source is not None and owner.id == source.owner and source.mode is SourceMode.CONSUME:
            wants = have.only(*Outcome(source.lineage, NOTHING).needs)
        else:
            wants = have.only(owner.needs_images, owner.needs_pages) if outcome is None else outcome.wants
        sets = (wants.device_images, wants.host_images, wants.device_pages, wants.host_pages)
        for at, held in enumerate(sets):
            if held:
                both = once[at] & held
                if both:
                    twice[at] |= both
                once[at] |= held
    return Replicas(*(minus(a, b) for a, b in zip(once, twice, strict=True)))


def _pinned(world: World, source: Source | None) -> tuple[int, int]:
    """What no outcome of an inactive owner can free: running sequences' objects and the source's."""
    images = pages = 0
    for owner in world.owners.values():
        if owner.lane is not None:
            images |= owner.needs_images
            pages |= owner.needs_pages
    if source is not None:
        images |= source.checkpoint.image_mask
        pages |= source.checkpoint.page_mask
    return images, pages
