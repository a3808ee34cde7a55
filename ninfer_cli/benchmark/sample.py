"""Sample: one measurement; Summary: several of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """One repetition of one test.

    Attributes:
        tokens_per_s: of all sequences together.
        ttft_ms: submission to the first token, the slowest sequence's; None where nothing was generated.
        step_ms: a decode step of the same reply; None where it is not compared with ttft_ms.
    """

    tokens_per_s: float
    ttft_ms: float | None
    reused_tokens: int
    prefill_tokens: int
    step_ms: float | None = None

    @property
    def ttft_steps(self) -> float | None:
        """Time to the first token, in decode steps."""
        return self.ttft_ms / self.step_ms if self.ttft_ms and self.step_ms else None


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, sample standard deviation (null for a single value) and the values themselves."""
    return {
        "mean": _rounded(statistics.fmean(values)) if values else None,
        "std": _rounded(statistics.stdev(values)) if len(values) > 1 else None,
        "samples": [_rounded(value) for value in values],
    }


def _rounded(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
