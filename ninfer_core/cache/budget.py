"""Budget: how much optional planning one admission boundary may do (context-cache PLAN-8, PLAN-10)."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

Clock = Callable[[], int]
"""Nanoseconds, monotone."""

WORTH = 4
"""Planning may take as long as a quarter of what it is expected to save."""


class Stop(Enum):
    """Why planning ended. No reason claims that the result is the best."""

    NO_PRESSURE = "no_pressure"
    QUEUE_EXHAUSTED = "queue_exhausted"
    TARGET_BUDGET = "target_budget"
    EXPANSION_CAPACITY = "expansion_capacity"
    TIME_BUDGET = "time_budget"
    WORK_BUDGET = "work_budget"
    INSUFFICIENT_EXPECTED_GAIN = "insufficient_expected_gain"


class Budget:
    """Targets and time are bounded independently; time is looked at between Program's operations, so one may overrun.

    The time is that of an admission boundary: head and backfill inspections share one Budget. It starts as a short
    window, and is extended while the improvement in sight is worth it, up to the whole.
    """

    def __init__(self, targets: int, ns: int, runnable: int = 0, clock: Clock = time.perf_counter_ns) -> None:
        """
        Args:
            targets: optional targets that may be assessed.
            ns: optional time; a quarter of it is the first window.
            runnable: other requests that could run meanwhile: they share the time.
        """
        self._clock = clock
        self._began = clock()
        self._last = self._began
        self._slowest = 0
        self._targets = targets
        self._whole = ns // (1 + runnable)
        self._window = self._whole // 4

    def stop(self, expected_gain: float) -> Stop | None:
        """Whether the next optional target must not be assessed any more.

        Args:
            expected_gain: predicted improvement over the incumbent in nanoseconds; not positive is no hope.
        """
        if self._targets <= 0:
            return Stop.TARGET_BUDGET
        elapsed = self._clock() - self._began
        window = self._window
        if expected_gain > WORTH * self._whole:
            window = self._whole
        # An indivisible operation that is predicted not to fit is not begun.
        return Stop.TIME_BUDGET if elapsed + self._slowest > window else None

    def spent(self) -> None:
        """One optional target was assessed."""
        now = self._clock()
        self._slowest = max(self._slowest // 2, now - self._last)
        self._last = now
        self._targets -= 1

    def resume(self) -> None:
        """Mandatory work was done: it does not count as an operation of the search."""
        self._last = self._clock()
