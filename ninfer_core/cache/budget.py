"""Budget: how much optional planning one admission boundary may do (context-cache PLAN-8, PLAN-10)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

Clock = Callable[[], int]
"""Nanoseconds, monotone."""

WORK_OF_A_TARGET = 16
"""Owners that a target changes, for each target of the budget: larger ones take longer to project and to price."""

WORTH = 4
"""Beyond its first window planning may go on for a quarter of what it is expected to save."""

LEAST_GAIN_NS = 1_000_000
"""A difference in J that is not worth another target, also where no clock runs: WORTH times about what looking at one
takes."""


class Stop(Enum):
    """Why planning ended. No reason claims that the result is the best."""

    NO_PRESSURE = "no_pressure"
    QUEUE_EXHAUSTED = "queue_exhausted"
    TARGET_BUDGET = "target_budget"
    EXPANSION_CAPACITY = "expansion_capacity"
    TIME_BUDGET = "time_budget"
    WORK_BUDGET = "work_budget"
    INSUFFICIENT_EXPECTED_GAIN = "insufficient_expected_gain"

    @property
    def early(self) -> bool:
        """Whether something was left that nobody has looked at."""
        return self in (Stop.TARGET_BUDGET, Stop.EXPANSION_CAPACITY, Stop.TIME_BUDGET, Stop.WORK_BUDGET)


class Budget:
    """Targets, work and time are bounded independently; they are looked at between Program's operations, so that one
    may overrun.

    The time is that of planning at one admission boundary: head and backfill inspections share one Budget. It starts as
    a short window, a quarter of the whole, and is extended by what the improvement in sight is worth, up to the whole.
    """

    def __init__(
        self,
        targets: int | None,
        ns: int | None,
        runnable: int = 0,
        clock: Clock = time.perf_counter_ns,
        *,
        least_gain: float = 0.0,
    ) -> None:
        """
        Args:
            targets: optional targets that may be assessed, and with it the work: owners that they change together.
                None: as many as there are.
            ns: optional time; a quarter of it is the first window. None: only targets and work are counted.
            runnable: other requests that could run meanwhile: they share the time.
            least_gain: nanoseconds; what promises no more is not looked at.
        """
        self.least_gain = least_gain
        self._clock = clock
        self._timed = ns is not None
        self._began = self._last = self._paused_at = clock()
        self._slowest = 0
        self._targets: float = math.inf if targets is None else targets
        self._work = WORK_OF_A_TARGET * self._targets
        self._whole = (ns or 0) // (1 + runnable)
        self._window = self._whole // 4

    @property
    def is_unlimited(self) -> bool:
        """Neither targets nor time are bounded: no estimate ends a search then, and what it finds is the best."""
        return not self._timed and self._targets == math.inf

    def stop(self, expected_gain: float) -> Stop | None:
        """Whether the next optional target must not be assessed any more.

        Args:
            expected_gain: predicted improvement over the incumbent in nanoseconds; not positive is no hope.
        """
        if self._targets <= 0:
            return Stop.TARGET_BUDGET
        if self._work <= 0:
            return Stop.WORK_BUDGET
        if not self._timed:
            return None
        elapsed = self._clock() - self._began
        window = min(self._whole, self._window + max(0.0, expected_gain) / WORTH)
        # An indivisible operation that is predicted not to fit is not begun.
        return Stop.TIME_BUDGET if elapsed + self._slowest > window else None

    def spent(self, owners: int = 1) -> None:
        """One optional target was assessed that changes so many owners."""
        now = self._clock()
        self._slowest = max(self._slowest // 2, now - self._last)
        self._last = now
        self._targets -= 1
        self._work -= owners

    @contextmanager
    def running(self) -> Iterator[None]:
        """A piece of the planning: what goes on between two of them takes nothing of its time."""
        away = self._clock() - self._paused_at
        self._began += away
        self._last += away
        try:
            yield
        finally:
            self._paused_at = self._clock()

    @contextmanager
    def mandatory(self) -> Iterator[None]:
        """What is done whatever the budget takes nothing of its time, and is no operation of the search (PLAN-3)."""
        elapsed = self._clock() - self._began
        try:
            yield
        finally:
            self._last = self._clock()
            self._began = self._last - elapsed

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """For a construction that must not be left half done: targets and work are counted, time is not."""
        timed, self._timed = self._timed, False
        try:
            yield
        finally:
            self._timed = timed
