"""Evictions: the eligible owners in the order in which their evictions look cheapest. It only guides (PLAN-1)."""

from __future__ import annotations

from collections.abc import Sequence

from ninfer_core.cache.domain import Domain
from ninfer_core.cache.lack import Amounts, Lack
from ninfer_core.cache.objective import Objective
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.assessment import AssessmentSession


class Evictions:
    """Of one planning session. What the eviction of each owner alone gives back and loses is read once, for every
    option.

    Attributes:
        worths: by owner, quick measures of what its eviction alone loses, in nanoseconds.
    """

    def __init__(self, domain: Domain, objective: Objective, session: AssessmentSession) -> None:
        self.worths = objective.worths()
        given, cells = session.evictions(domain.outcomes), domain.cell_owners
        self._given = {owner: _amounts(freed, owner in cells) for owner, freed in given.items()}
        self._orders: dict[tuple[int, ...], list[OwnerId]] = {}

    def cheapest_first(self, lack: Lack) -> Sequence[OwnerId]:
        """All of them, by what the eviction of each loses for its share of what is missing. Sorted once for the axes on
        which anything is, by the amounts of whichever option asks first: they make little difference."""
        missing = lack.missing
        axes = tuple([axis for axis, _ in missing])
        known = self._orders.get(axes)
        if known is None:
            known = self._orders[axes] = self._sorted(missing)
        return known

    def _sorted(self, missing: Sequence[tuple[int, int]]) -> list[OwnerId]:
        worths, found = self.worths, []
        for number, (owner, given) in enumerate(self._given.items()):
            worth, share = worths[owner], 0.0
            for axis, need in missing:
                share += 1.0 if given[axis] >= need else given[axis] / need
            # Freeing nothing alone is no reason to be left out: together they may (TGT-5).
            found.append((share <= 0, worth / share if share > 0 else worth, number, owner))
        found.sort()
        return [owner for _, _, _, owner in found]


def _amounts(freed: Vector, cell: bool) -> Amounts:
    return (freed.device_images, freed.host_images, freed.host_bytes, int(cell), *freed.pages)
