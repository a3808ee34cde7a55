"""Move: one step down from a target that looks worth a try. Guidance only (PLAN-1)."""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct

from ninfer_core.cache.graph import Vertex
from ninfer_core.cache.lack import Amounts


class Move(Struct, eq=False):
    """One step down.

    Attributes:
        vertex: where it leads.
        before: where it starts.
        price: predicts the loss of an end state by itself.
        relief: what it gives back.
        share: the same as a share of what is missing: kept up to date while a construction covers it.
        most: what it gives back at most, once others that hold the same objects have let go of them (TGT-5): told of
            evictions, and of every step that frees nothing alone where the guide was asked for it.
    """

    vertex: Vertex
    before: Vertex
    price: Callable[[Vertex], float]
    relief: Amounts
    share: float
    most: Amounts
    _change: float | None = None

    @property
    def is_priced(self) -> bool:
        return self._change is not None

    @property
    def change(self) -> float:
        """Predicted loss that it adds: worked out only for steps that may be taken."""
        if self._change is None:
            self._change = self.price(self.vertex) - self.price(self.before)
        return self._change


def by_rate(move: Move) -> tuple[float, float, int]:
    """Order of moves: by predicted loss for what they relieve; a step that relieves nothing by itself comes last
    (TGT-5). At the same loss the oldest gives way.

    PLAN-9 breaks ties between complete targets, among those that were assessed; what is looked at need not follow it.
    Steering by hits, too, made 5 to 10 % more be computed again in a replay of branching conversations: whoever has
    just been published has no hit yet.
    """
    change, share = move.change, move.share
    return change / share if share > 0 else math.inf, change, move.vertex.number
