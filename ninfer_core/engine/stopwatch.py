"""Stopwatch: the one thing of calibration that is not reproducible, behind an interface."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from ninfer_core.cache.fitting import Measured, Work
from ninfer_core.program.planning.work import Copies, Prefill


class Stopwatch(Protocol):
    def ns(self, work: Copies | Prefill, run: Callable[[], None]) -> float:
        """Nanoseconds of run, which does work."""


class WallClock:
    """Waits for the device's queue before it looks."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def ns(self, work: Copies | Prefill, run: Callable[[], None]) -> float:
        self._settle()
        start = time.perf_counter_ns()
        run()
        self._settle()
        return float(time.perf_counter_ns() - start)

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def medians(works: Sequence[Work], rounds: Sequence[Sequence[float]]) -> list[Measured[Work]]:
    """Of every work's timings, one per round: a slow moment of the machine costs one round, not one work."""
    return [Measured(work, statistics.median(times[i] for times in rounds)) for i, work in enumerate(works)]
