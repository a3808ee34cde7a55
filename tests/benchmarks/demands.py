"""What a benchmark demands of its figures, and the exit status that tells whether it got it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

EPILOG = "Exit status: 0 when every demand is met, 1 when one is not or could not be measured, 2 for wrong options."


def parser(text: str | None) -> argparse.ArgumentParser:
    """For a benchmark that demands something. text: its docstring, shown as it is written."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=text, epilog=EPILOG, formatter_class=raw)


@dataclass(frozen=True)
class Demand:
    """
    Attributes:
        what: is measured, in words.
        figure: what was found; not a number where nothing was.
        bound: the most that it may be, with `least` the least.
        unit: of both, with its space if it has one.
    """

    what: str
    figure: float
    bound: float
    unit: str = ""
    least: bool = False

    @property
    def met(self) -> bool:
        return self.figure >= self.bound if self.least else self.figure <= self.bound

    def __str__(self) -> str:
        side, state = "at least" if self.least else "at most", "met" if self.met else "NOT met"
        found, bound = (f"{value:.4g}{self.unit}" for value in (self.figure, self.bound))
        return f"{state}: {self.what}: {found}, demanded: {side} {bound}"


def judged(demands: Sequence[Demand]) -> int:
    """Print each demand in a line, those that are not met last. Returns the exit status; without a demand nothing was
    measured, and that is 1, too."""
    for demand in sorted(demands, key=lambda demand: not demand.met):
        print(demand, flush=True)
    if not demands:
        print("NOT met: nothing was measured", flush=True)
    return 0 if demands and all(demand.met for demand in demands) else 1


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value at or below which so large a share of all lies (nearest rank); not a number of none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else math.nan
