"""ResourcePlan: one sealed target. Immutable, bound to a revision, used once (context-cache TXN-1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ninfer_core.contract.ids import OwnerId, Revision
from ninfer_core.contract.plans import FinalScheduleIntent
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.legality import illegality, misplaced
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.planning.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class ResourcePlan:
    """
    Attributes:
        revision: the only one at which it may start.
        owner: the id of the sequence to come (activation) or the capturing one; None for an explicit release.
        schedule: the only frontiers at which the sequence to come may be captured, its first one aside; None where
            nobody has fixed them.
    """

    revision: Revision
    target: Target
    projection: Projection
    owner: OwnerId | None
    schedule: FinalScheduleIntent | None = None


def seal(
    world: World,
    target: Target,
    owner: OwnerId | None,
    project: Callable[[Target], Projection],
    schedule: FinalScheduleIntent | None = None,
    end: int = 0,
) -> ResourcePlan:
    """Fix a legal, feasible target as a plan, with the schedule of the sequence to come (PLAN-12).

    Args:
        project: counts the post-state of a target of this world: from nothing, or in an assessment session.
        end: tokens of the prompt, where there is a schedule.

    Raises:
        ValueError: the target is none of this world, or does not fit; its projection says where.
    """
    if reason := illegality(world, target):
        raise ValueError(f"an illegal target cannot be sealed: {reason}")
    if schedule is not None and (reason := misplaced(target, schedule, end)):
        raise ValueError(f"a schedule cannot be sealed: {reason}")
    projection = project(target)
    if not projection.feasible:
        raise ValueError(f"an infeasible target cannot be sealed: {projection.deficit}")
    return ResourcePlan(world.revision, target, projection, owner, schedule)
