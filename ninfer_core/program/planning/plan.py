"""ResourcePlan: one sealed target. Immutable, bound to a revision, used once (context-cache TXN-1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ninfer_core.contract.ids import OwnerId, Revision
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.legality import illegality
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.planning.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class ResourcePlan:
    """
    Attributes:
        revision: the only one at which it may start.
        owner: the id of the sequence to come (activation) or the capturing one; None for an explicit release.
    """

    revision: Revision
    target: Target
    projection: Projection
    owner: OwnerId | None


def seal(world: World, target: Target, owner: OwnerId | None, project: Callable[[Target], Projection]) -> ResourcePlan:
    """Fix a legal, feasible target as a plan.

    Args:
        project: counts the post-state of a target of this world: from nothing, or in an assessment session.

    Raises:
        ValueError: the target is none of this world, or does not fit; its projection says where.
    """
    if reason := illegality(world, target):
        raise ValueError(f"an illegal target cannot be sealed: {reason}")
    projection = project(target)
    if not projection.feasible:
        raise ValueError(f"an infeasible target cannot be sealed: {projection.deficit}")
    return ResourcePlan(world.revision, target, projection, owner)
