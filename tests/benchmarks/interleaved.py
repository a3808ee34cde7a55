"""Interleaved pairs: two ways of doing the same, in turns, so that whatever else the machine does slows both alike."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """
    Attributes:
        median: of (with / without) over all pairs.
        low, high: its 95 % bootstrap interval.
        spread: interquartile range of the plain side over its median: how noisy the machine was.
    """

    median: float
    low: float
    high: float
    spread: float

    def __str__(self) -> str:
        interval = f"[{self.low:.4f}, {self.high:.4f}]"
        return f"median ratio {self.median:.4f}, 95 % interval {interval}, plain side spreads {100 * self.spread:.0f} %"


def compare(plain: Callable[[], float], other: Callable[[], float], pairs: int) -> Ratio:
    """Run both `pairs` times, each first in every second pair.

    Args:
        plain, other: do the work once and return its seconds.
    """
    ratios, base = [], []
    for number in range(pairs):
        if number % 2:
            second, first = other(), plain()
        else:
            first, second = plain(), other()
        ratios.append(second / first)
        base.append(first)
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=pairs)) for _ in range(4000))
    quarters = statistics.quantiles(base, n=4) if pairs > 1 else [base[0]] * 3
    spread = (quarters[2] - quarters[0]) / quarters[1]
    return Ratio(statistics.median(ratios), medians[100], medians[-101], spread)
