"""Every legal target of a small problem, enumerated and judged naively: what the planner is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ninfer_core.cache.budget import Budget
from ninfer_core.cache.planner import Choice
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.plans import Readiness
from ninfer_core.program.planning.outcome import EVICTED
from tests.support.naive_value import Judged, Naive
from tests.support.portfolios import Problem, ProblemMaker, WorldProgram

LIMITS = CacheLimits(private_cells=8, shared_cells=8, long_anchors=2, automatic_anchors=0)
ASSESSMENT_NS = 150_000
"""What one assessed target takes on the clock of the proof, with all that leads to it: pessimistic, so that the time
budget counts."""


class Simulated(Budget):
    """On a clock on which every optional target takes ASSESSMENT_NS, and nothing else any time."""

    def __init__(self, targets: int, ns: int | None, runnable: int = 0) -> None:
        self._now = 0
        super().__init__(targets, ns, runnable, lambda: self._now)

    def spent(self, owners: int = 1) -> None:
        self._now += ASSESSMENT_NS
        super().spent(owners)


def default_budget(real: bool = False) -> Budget:
    return (Budget if real else Simulated)(LIMITS.planning_targets, LIMITS.planning_ns)


def spent() -> Budget:
    return Budget(0, 0)


def unlimited() -> Budget:
    return Budget(None, None)


@dataclass
class Truth:
    """What enumeration says.

    Attributes:
        best: the best adoptable target of all.
        maximal: root with everybody else evicted; where that does not fit, of the shallowest source that does: a
            source may take fewer pages than root, and J_maximal of the regret is what would be left of a spent budget.
    """

    best: Judged | None
    maximal: Judged | None
    targets: int


def problems(seed: int, most: int, *, capture: bool = False) -> Iterator[tuple[int, Problem, Naive, dict]]:
    """Problems whose closure has at most so many targets."""
    while True:
        seed += 1
        problem = ProblemMaker(seed, capture=capture).problem()
        if problem is None or (capture and len(problem.options) != 1):
            continue
        naive = Naive(problem)
        ways = {owner: naive.reachable(owner) for owner in problem.eligible}
        if 2 < naive.size(ways) <= most:
            yield seed, problem, naive, ways


def enumerate_all(problem: Problem, naive: Naive, ways: dict) -> Truth:
    best, count = None, 0
    for option in problem.options:
        for outcomes in naive.closure(option, ways):
            count += 1
            judged = naive.judged(option, outcomes)
            if judged is not None and (best is None or judged.value < best.value):
                best = judged
    evicted = (
        naive.judged(option, {owner: EVICTED for owner in problem.eligible if owner != option.source_owner})
        for option in reversed(problem.options)
    )
    return Truth(best, next((judged for judged in evicted if judged is not None), None), count)


def why_none(problem: Problem) -> Readiness:
    """What a request is told for which no target fits: whether root alone would."""
    alone = problem.options[-1].demand.lifetime_pages
    capacity = problem.world.geometry.capacity
    impossible = capacity.device_images < 1 or any(a > b for a, b in zip(alone, capacity.pages, strict=True))
    return Readiness.PERMANENTLY_INFEASIBLE if impossible else Readiness.TEMPORARILY_BLOCKED


def verified(problem: Problem, naive: Naive, choice: Choice) -> float | None:
    """J of the answer, worked out naively. Asserts that it is feasible and can be published."""
    if choice.node is None:
        return None
    target = choice.node.target
    found = WorldProgram(problem.world).assess(target)
    assert found.readiness in (Readiness.READY, Readiness.NEEDS_TRANSFER)
    assert found.readiness is choice.readiness
    assert choice.node.option.source_owner not in target.outcomes, "the source is no victim (PLAN-14)"
    assert set(target.outcomes) <= set(problem.eligible)
    judged = naive.judged(choice.node.option, dict(target.outcomes))
    assert judged is not None, "adoptable"
    assert choice.node.value == pytest.approx(judged.value, rel=1e-9, abs=1e-6), "J as the requirements say it"
    return judged.value


def regret(value: float, truth: Truth) -> float | None:
    """(J - J*) / (J_maximal - J*); None where the denominator is 0: the answer must be exact then."""
    assert truth.best is not None
    lost = value - truth.best.value
    assert lost >= -1e-6 * max(1.0, abs(value)), "better than the best: the enumeration is not complete"
    span = None if truth.maximal is None else truth.maximal.value - truth.best.value
    if span is None or span <= 1e-9 * max(1.0, abs(truth.best.value)):
        assert lost <= 1e-6 * max(1.0, abs(value)), "exact where nothing can be lost"
        return None
    return max(0.0, lost) / span
