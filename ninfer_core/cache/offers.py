"""Offers: what the moves known together cost for what is missing. An estimate for the order of a search (PLAN-1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ninfer_core.cache.lack import Lack
from ninfer_core.cache.move import Move
from ninfer_core.contract.ids import OwnerId


def priced(moves: Sequence[Move], lack: Lack) -> list[tuple[Move, float]]:
    """Each move with what covering the axes that it leaves open may cost: that of the dearest axis, covered by the
    cheapest offers; what no single step offers is priced like the dearest step."""
    dearest = max((move.change for move in moves), default=0.0)
    offers = [Offers.on(axis, moves) if need > 0 else None for axis, need in enumerate(lack.need)]
    found = []
    for move in moves:
        rest = 0.0
        for offer, need, given in zip(offers, lack.need, move.relief, strict=True):
            if need > given:
                left = (need - given) / max(need, abs(given))
                rest = max(rest, left * dearest if offer is None else offer.cover(need - given, move, dearest))
        found.append((move, rest))
    return found


class Offers:
    """What single steps give back on one axis, the cheapest owner first: (price of one, most, owner)."""

    def __init__(self, axis: int, offers: list[tuple[float, int, OwnerId]]) -> None:
        self._axis = axis
        self._offers = offers

    @classmethod
    def on(cls, axis: int, moves: Sequence[Move]) -> Offers:
        best: dict[OwnerId, tuple[float, int]] = {}
        for move in moves:
            given = max(move.relief[axis], move.most[axis])
            if given > 0:
                rate, most = best.get(move.vertex.owner, (math.inf, 0))
                best[move.vertex.owner] = (min(rate, max(0.0, move.change) / given), max(most, given))
        return cls(axis, sorted((rate, most, owner) for owner, (rate, most) in best.items()))

    def cover(self, need: int, move: Move, dearest: float) -> float:
        """The least price of what is still needed once the move is made."""
        total, left = 0.0, need
        for rate, most, owner in self._offers:
            if left <= 0:
                return total
            part = min(left, most if owner != move.vertex.owner else max(0, most - max(0, move.relief[self._axis])))
            total += rate * part
            left -= part
        return total + dearest * left / need
