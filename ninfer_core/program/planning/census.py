"""Census: what all surviving owners together need and wish, counted while a planner tries targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.ledger.objects import Replicas
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.outcome import Outcome

MOST_SETS = 256
"""Sets of changed owners whose complements are remembered."""


class Survivors(NamedTuple):
    """
    Attributes:
        images, pages: what some replica must hold.
        wants: the replicas that survivors wish; the world's own object where that is all there are.
    """

    images: int
    pages: int
    wants: Replicas


class Census:
    """Unions over the owners of one world. What is not changed is counted once for every set of changed owners: targets
    that a planner tries one after the other change the same few in different ways."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._others: dict[frozenset[OwnerId], tuple[int, int]] = {}
        self._everyone: Survivors | None = None

    def survivors(self, outcomes: Mapping[OwnerId, Outcome]) -> Survivors:
        """The union with these outcomes in place of their owners' present state; all others stay as they are."""
        if outcomes:
            return self._with(outcomes)
        if self._everyone is None:
            images, pages, wants = self._with({})
            have = self._world.replicas
            # The very same object where everything is wished for: a projection sees at once that nothing goes.
            self._everyone = Survivors(images, pages, have if wants == have else wants)
        return self._everyone

    def _with(self, outcomes: Mapping[OwnerId, Outcome]) -> Survivors:
        images, pages = self._all_but(frozenset(outcomes))
        # Who stays as it is wishes the replicas that there are.
        wants = self._world.replicas.only(images, pages)
        for owner_id, outcome in outcomes.items():
            owner = self._world.owners.get(owner_id)
            if owner is None:
                continue
            # A running owner needs what its sequence needs, whatever else it wishes.
            needs = outcome.needs if owner.lane is None else (owner.needs_images, owner.needs_pages)
            images |= needs[0]
            pages |= needs[1]
            if outcome.wants:
                wants |= outcome.wants
        return Survivors(images, pages, wants)

    def _all_but(self, changed: frozenset[OwnerId]) -> tuple[int, int]:
        known = self._others.get(changed)
        if known is None:
            images = pages = 0
            for owner_id, owner in self._world.owners.items():
                if owner_id not in changed:
                    images |= owner.needs_images
                    pages |= owner.needs_pages
            if len(self._others) >= MOST_SETS:
                self._others.clear()
            known = self._others[changed] = (images, pages)
        return known
