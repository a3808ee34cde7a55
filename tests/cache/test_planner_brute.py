"""The planner against the complete closure of its targets, on random small portfolios.

python -m tests.cache.test_planner_brute --count 3000 --seed 1 --most 20000 [--wide-most N] [--clock real]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from ninfer_core.cache.budget import Budget
from ninfer_core.cache.cost import CostModel
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


@dataclass
class Figures:
    default: list[float] = field(default_factory=list)
    none: list[float] = field(default_factory=list)
    wide: list[float] = field(default_factory=list)
    outcomes: Counter = field(default_factory=Counter)
    stops: Counter = field(default_factory=Counter)
    targets: list[int] = field(default_factory=list)
    worst: tuple[float, int] = (0.0, 0)


def check(seed: int, problem: Problem, naive: Naive, ways: dict, figures: Figures, wide: bool, real: bool) -> None:
    truth = enumerate_all(problem, naive, ways)
    random_cost = ProblemMaker(seed + 10**6).cost()
    answers = {
        "default": problem.planner().materialize(problem.options, default_budget(real)),
        "none": problem.planner().materialize(problem.options, spent()),
        "other": problem.planner(cost=random_cost).materialize(problem.options, default_budget()),
        "free": problem.planner(cost=CostModel()).materialize(problem.options, spent()),
    }
    if wide:
        answers["wide"] = problem.planner().materialize(problem.options, unlimited())
    kinds = {a.readiness if a.node is None else "admissible" for a in answers.values()}
    assert len(kinds) == 1, f"what fits depends on cost or budget: {kinds}"
    figures.outcomes[str(kinds.pop())] += 1
    if truth.best is None:
        assert all(a.node is None for a in answers.values())
        assert answers["default"].readiness is why_none(problem)
        return
    for name, answer in answers.items():
        assert answer.node is not None, "an admissible request is never blocked"
        if name in ("other", "free"):
            found = WorldProgram(problem.world).assess(answer.node.target)
            assert found.projection.feasible and naive.publishable(
                answer.node.option, dict(answer.node.target.outcomes)
            )
            continue
        value = verified(problem, naive, answer)
        assert value is not None
        if name == "none":
            span = truth.maximal
            if span is not None and span.value > truth.best.value + 1e-6:
                figures.none.append((value - truth.best.value) / (span.value - truth.best.value))
            continue
        share = regret(value, truth)
        if share is not None:
            (figures.default if name == "default" else figures.wide).append(share)
            if name == "default" and share > figures.worst[0]:
                figures.worst = (share, seed)
    figures.stops[answers["default"].stop.value] += 1
    figures.targets.append(answers["default"].targets)


@pytest.mark.req(
    "PLAN-3", "PLAN-6", "PLAN-7", "PLAN-11", "TGT-1", "TGT-2", "TGT-6", "INV-12", "INV-13", "VAL-6", "VAL-8"
)
def test_small_portfolios_against_the_complete_closure() -> None:
    figures = Figures()
    stream = problems(0, 150)
    for _ in range(120):
        check(*next(stream), figures, wide=True, real=False)
    assert max(figures.wide) <= 1e-9, "an unlimited budget finds the best"
    assert sum(figures.default) / len(figures.default) <= 0.02
    assert max(figures.default) <= 0.25
    assert len(figures.outcomes) == 3, "admissible, blocked and infeasible requests were among them"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=int, default=0, help="targets in a closure, at least")
    parser.add_argument("--most", type=int, default=2000, help="targets in a closure, at most")
    parser.add_argument(
        "--wide-most", type=int, default=400, help="largest closure that is also searched without budget"
    )
    parser.add_argument("--clock", choices=["simulated", "real"], default="simulated")
    args = parser.parse_args()
    figures, done, total = Figures(), 0, 0
    for seed, problem, naive, ways in problems(args.seed, args.most):
        size = naive.size(ways)
        if size < args.least:
            continue
        try:
            check(seed, problem, naive, ways, figures, size <= args.wide_most, args.clock == "real")
        except AssertionError as error:
            raise SystemExit(f"seed {seed}: {error}") from error
        done, total = done + 1, total + size
        if done == args.count:
            break
    for name, shares in (("default", figures.default), ("no budget", figures.none), ("unlimited", figures.wide)):
        if shares:
            mean, ordered = sum(shares) / len(shares), sorted(shares)
            print(
                f"{name:10} {len(shares):6} problems: mean {mean:.3%}, p99 {ordered[int(len(ordered) * 0.99)]:.2%}, "
                f"worst {ordered[-1]:.2%}"
            )
    print(f"{done} portfolios, {total} targets enumerated; {dict(figures.outcomes)}; stops {dict(figures.stops)}")
    if figures.targets:
        print(f"targets assessed: mean {sum(figures.targets) / len(figures.targets):.1f}, most {max(figures.targets)}")
    print(f"worst default seed {figures.worst[1]}")


if __name__ == "__main__":
    main()
