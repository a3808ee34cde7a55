"""Legality: what a target may say at all, before anybody asks whether it fits (context-cache TGT-2, TGT-4, TGT-6)."""

from __future__ import annotations

from itertools import pairwise

from ninfer_core.contract.plans import FinalScheduleIntent
from ninfer_core.program.ledger.bits import minus
from ninfer_core.program.ledger.objects import Owner, Replicas, needs_of
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.target import Capture, Source, SourceMode, Target, source_of


def illegality(world: World, target: Target) -> str:
    """Why a target is none of this world, in a line; empty for a legal one. Mutates nothing."""
    source = source_of(target)
    if source is not None and (reason := _source(world, source)):
        return reason
    if isinstance(target.demand, Capture):
        capturing = world.owners.get(target.demand.owner)
        if capturing is None or capturing.lane is None:
            return f"owner {target.demand.owner} captures and is not active"
    for owner_id, outcome in target.outcomes.items():
        owner = world.owners.get(owner_id)
        if owner is None:
            return f"owner {owner_id} is gone"
        if owner.lane is not None:
            return f"owner {owner_id} is active: it is no victim"
        if source is not None and owner_id == source.owner:
            return f"owner {owner_id} is the selected source: it is no victim"
        if reason := _outcome(owner, outcome, world.replicas):
            return f"owner {owner_id} {reason}"
    return ""


def misplaced(target: Target, schedule: FinalScheduleIntent, end: int) -> str:
    """Why a schedule is none of this target, in a line; empty for one that is.

    Args:
        end: tokens of the prompt.
    """
    source = source_of(target)
    places = (0 if source is None else source.checkpoint.frontier, *schedule.frontiers)
    if any(after <= before for before, after in pairwise(places)):
        return f"frontiers {schedule.frontiers} do not ascend from the reuse base, {places[0]}"
    return f"frontier {places[-1]} is beyond the prompt, {end}" if schedule.frontiers and places[-1] > end else ""


def _source(world: World, source: Source) -> str:
    owner = world.owners.get(source.owner)
    if owner is None or source.checkpoint not in owner.checkpoints:
        return f"the source, checkpoint {source.checkpoint.ref} of owner {source.owner}, is gone"
    if source.mode is SourceMode.RETAIN:
        return "a retained source has no lineage" if source.lineage else ""
    if owner.lane is not None:
        return f"owner {owner.id} is active: it cannot be consumed"
    beyond = any(c not in owner.checkpoints or c.frontier > source.checkpoint.frontier for c in source.lineage)
    return "a lineage goes no further than its source" if beyond else ""


def _outcome(owner: Owner, outcome: Outcome, have: Replicas) -> str:
    if any(checkpoint not in owner.checkpoints for checkpoint in outcome.kept):
        return "keeps a checkpoint that it has not"
    images, pages = needs_of(outcome.kept)
    if outcome.needs != (images, pages):
        return "says that it needs something else than what it keeps"
    wants = outcome.wants
    if wants.images != images or wants.pages != pages:
        return "wants other replicas than those of what it keeps"
    if minus(wants.device_images, have.device_images) or minus(wants.device_pages, have.device_pages):
        return "wants something back on Device: targets only degrade"
    return ""
