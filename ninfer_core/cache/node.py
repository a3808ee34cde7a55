"""Node: one assessed target of a planning session."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from ninfer_core.cache.domain import Option
from ninfer_core.cache.graph import Vertex
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.plans import Readiness
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.planning.target import Target

Chosen = Mapping[OwnerId, Vertex]
"""The end state of every owner that a target changes."""


class Node(Struct, eq=False):
    """An assessed target.

    Attributes:
        gap: the publication cell is missing.
        value: J, nanoseconds. Of one that is not adoptable a prediction, where one is needed.
        limit: above it the value may be too small.
        rank: tie-break of PLAN-9; worked out when a tie asks for it.
    """

    option: Option
    chosen: Chosen
    target: Target
    projection: Projection
    readiness: Readiness
    reason: str
    gap: bool
    value: float
    limit: float = -math.inf
    rank: tuple[float, ...] | None = None

    @property
    def fits(self) -> bool:
        """Physically; the rest is logic."""
        return self.readiness in (Readiness.READY, Readiness.NEEDS_TRANSFER)

    @property
    def adoptable(self) -> bool:
        return self.fits and not self.gap


def outcomes_of(chosen: Chosen) -> dict[OwnerId, Outcome]:
    """The same as Program says it."""
    return {owner: vertex.outcome for owner, vertex in chosen.items()}


def key_of(option: Option, chosen: Chosen) -> tuple[int, ...]:
    """Of a target in this session: numbers of vertices say which owner they belong to."""
    return (option.ordinal, *sorted([vertex.number for vertex in chosen.values()])) if chosen else (option.ordinal,)
