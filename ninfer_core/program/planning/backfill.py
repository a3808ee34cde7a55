"""BackfillProof: a younger request may run before the blocked head of the queue without ever delaying it (ACT-5).

Proved in the same ledger as everything else, at the moment that decides: the protected donors have ended and are gone,
the borrower still holds all that it was promised, and the head starts from root.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ninfer_core.contract.ids import OwnerId, Revision
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.world import World, measure
from ninfer_core.program.planning.projection import project
from ninfer_core.program.planning.target import Activation, Target


@dataclass(frozen=True, slots=True)
class BackfillProof:
    """
    Attributes:
        revision: the only one at which the borrower may start on the strength of this proof.
        donors: the active owners whose end the head waits for.
        slack: what would still be free with borrower and head in place, per axis.
    """

    revision: Revision
    donors: frozenset[OwnerId]
    borrower: Activation
    head: Activation
    slack: Vector


def prove_backfill(
    world: World,
    donors: Collection[OwnerId],
    borrower: Activation,
    head: Activation,
    protected: Collection[OwnerId] = (),
) -> BackfillProof | None:
    """The proof, or None when the borrower might hold what the head will need. No completion time is predicted.

    Args:
        donors: active owners; when they have ended, everything exclusive to them is gone or may go.
        borrower: its full reservation. Its source stays: retained, it is leased until the borrower ends.
        head: starts from root here, whatever source it names: that is its guaranteed way.
        protected: inactive owners that may not be released because another request leases them (DEF-1).

    Raises:
        ValueError: a donor is not active.
    """
    if any(donor not in world.owners or world.owners[donor].lane is None for donor in donors):
        raise ValueError("a donor is not an active owner")
    source = borrower.source
    staying = {*protected} if source is None else {*protected, source.owner}
    owners = {
        owner.id: owner
        for owner in world.owners.values()
        if (owner.id in staying if owner.lane is None else owner.id not in donors)
    }
    left = replace(world, owners=owners).collected()
    projection = project(left, Target(borrower))
    if not projection.feasible:
        return None
    geometry = world.geometry
    # What only served the borrower's copies is gone when its materialization has committed; extents are given back
    # with their last page, and the head, starting from root, needs none: host bytes are left as they peaked.
    used = projection.peaks[1] - measure(geometry, projection.disposed, 0)
    used += Vector(1, 0, head.lifetime_pages, 0)
    if used.excess(geometry.capacity):
        return None
    return BackfillProof(world.revision, frozenset(donors), borrower, head, geometry.capacity - used)
