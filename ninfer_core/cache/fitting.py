"""Coefficients from timings: least squares of relative errors, none negative (context-cache COST-2, COST-3)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ninfer_core.cache.cost import SATURATED_NS, PrefillCost, TransferCost
from ninfer_core.errors import CalibrationError
from ninfer_core.program.planning.work import Copies, Prefill

Work = TypeVar("Work", Copies, Prefill)
Cost = TypeVar("Cost", TransferCost, PrefillCost)

_MOST_STEPS = 20

_CLEARLY = 1.25
"""How many times smaller a residual must be to be more than noise."""

_LEAST_NS = 1.0
"""A timing of nothing would weigh infinitely."""


@dataclass(frozen=True, slots=True)
class Measured(Generic[Work]):
    """One piece of work, and the nanoseconds that it took."""

    work: Work
    ns: float


@dataclass(frozen=True, slots=True)
class Fitted(Generic[Cost]):
    """Coefficients, and the root mean square of their relative errors on what was measured."""

    cost: Cost
    residual: float


def fit_prefill(samples: Sequence[Measured[Prefill]]) -> Fitted[PrefillCost]:
    """Attention pairs get a price only if the timings are clearly better explained with one: out of noise it would be
    carried from short contexts, where they are few, to long ones, where they are most of the work.

    Raises:
        CalibrationError: fewer than three samples, the number of coefficients.
    """
    _need(len(samples), 3)
    rows = [(1.0, float(s.work.suffix), float(s.work.attention_pairs)) for s in samples]
    ns = [s.ns for s in samples]
    batch, token = _non_negative([row[:2] for row in rows], ns)
    plain, full = (
        Fitted(cost, _residual([cost.price(s.work) for s in samples], samples))
        for cost in (PrefillCost(batch, token, 0.0), PrefillCost(*_non_negative(rows, ns)))
    )
    return full if full.residual * _CLEARLY < plain.residual else plain


def fit_transfer(samples: Sequence[Measured[Copies]]) -> Fitted[TransferCost]:
    """The price is the larger of issuing and moving; which of them binds which sample is part of the answer. Every
    cut through the samples in the order of bytes per operation is a first guess, bettered until it stays.

    Raises:
        CalibrationError: fewer than three samples.
    """
    _need(len(samples), 3)
    ordered = sorted(samples, key=lambda s: (s.work.bytes / s.work.operations, s.work.bytes))
    guesses = [ordered[:k] for k in range(1, len(ordered))]
    return min((_settled(samples, guess) for guess in guesses), key=lambda fitted: fitted.residual)


def _settled(samples: Sequence[Measured[Copies]], issuing: Sequence[Measured[Copies]]) -> Fitted[TransferCost]:
    """Fit each side, see which side binds whom, and again; the best of what was seen."""
    best: Fitted[TransferCost] | None = None
    for _ in range(_MOST_STEPS):
        moving = [s for s in samples if s not in issuing]
        if not issuing or not moving:  # neither side may be free: other work than this will be bound by it
            break
        rows = [(1.0, float(s.work.operations)) for s in issuing]
        batch, operation = _non_negative(rows, [s.ns for s in issuing])
        (byte,) = _non_negative([(float(s.work.bytes),) for s in moving], [s.ns for s in moving])
        cost = TransferCost(batch, operation, byte)
        fitted = Fitted(cost, _residual([cost.price(s.work) for s in samples], samples))
        if best is not None and fitted.residual >= best.residual:
            break
        best = fitted
        issuing = [s for s in samples if batch + s.work.operations * operation > s.work.bytes * byte]
    assert best is not None
    return best


def _non_negative(rows: Sequence[tuple[float, ...]], ns: Sequence[float]) -> list[float]:
    """Least squares of relative errors with no coefficient below 0: with three of them, every subset can be tried."""
    times = np.maximum(np.asarray(ns, dtype=np.float64), _LEAST_NS)
    matrix = np.asarray(rows, dtype=np.float64) / times[:, None]
    scale = np.maximum(matrix.max(axis=0), 1e-300)
    columns = range(matrix.shape[1])
    best, best_error = [0.0] * len(columns), math.inf
    for count in range(1, len(columns) + 1):
        for chosen in itertools.combinations(columns, count):
            solution = _least_squares(matrix[:, chosen] / scale[list(chosen)])
            if (solution < 0).any():
                continue
            error = float(np.square(matrix[:, chosen] / scale[list(chosen)] @ solution - 1.0).sum())
            if error < best_error:
                best, best_error = [0.0] * len(columns), error
                for column, value in zip(chosen, solution / scale[list(chosen)], strict=True):
                    best[column] = min(float(value), SATURATED_NS)
    return best


def _least_squares(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.lstsq(matrix, np.ones(len(matrix)), rcond=None)[0], dtype=np.float64)


def _residual(prices: Sequence[float], samples: Sequence[Measured[Work]]) -> float:
    errors = [price / max(s.ns, _LEAST_NS) - 1.0 for price, s in zip(prices, samples, strict=True)]
    return math.sqrt(sum(error * error for error in errors) / len(errors))


def _need(count: int, least: int) -> None:
    if count < least:
        raise CalibrationError(f"{count} timings are too few for {least} coefficients: give a longer --max-context")
