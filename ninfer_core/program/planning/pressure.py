"""Pressure: what each owner alone holds in a target's end state, so that the planner can tell which step frees what.

It is guidance for exploration only (PLAN-1): feasibility is the projection's word alone.
"""

from __future__ import annotations

from ninfer_core.program.ledger.objects import NOTHING, Replicas
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.target import Activation, Source, SourceMode, Target


def sole(world: World, target: Target) -> Replicas:
    """The replicas that exactly one survivor of the target wishes, and no running sequence reads."""
    source = target.demand.source if isinstance(target.demand, Activation) else None
    have = world.replicas
    once = twice = _pinned(world, source)
    for owner in world.owners.values():
        if owner.lane is not None:
            continue
        outcome = target.outcomes.get(owner.id)
        if source is not None and owner.id == source.owner and source.mode is SourceMode.CONSUME:
            wants = have.only(*Outcome(source.lineage, NOTHING).needs)
        else:
            wants = have.only(owner.needs_images, owner.needs_pages) if outcome is None else outcome.wants
        twice |= once & wants
        once |= wants
    return once.without(twice)


def _pinned(world: World, source: Source | None) -> Replicas:
    """What no outcome of an inactive owner can free: running sequences' objects and the source's."""
    images = pages = 0
    for owner in world.owners.values():
        if owner.lane is not None:
            images |= owner.needs_images
            pages |= owner.needs_pages
    if source is not None:
        images |= source.checkpoint.image_mask
        pages |= source.checkpoint.page_mask
    return world.replicas.only(images, pages)
