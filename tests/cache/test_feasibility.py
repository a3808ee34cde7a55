"""What fits depends on no price and no budget: both at random and together, against the complete closure of targets.

python -m tests.cache.test_feasibility --count 2000 --seed 1 --most 2000
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from msgspec import structs

from ninfer_core.cache.budget import WORK_OF_A_TARGET, Budget
from ninfer_core.cache.cost import SATURATED_NS, CostModel, PrefillCost, TransferCost
from ninfer_core.cache.planner import Choice
from ninfer_core.contract.plans import Readiness
from ninfer_core.program.planning.target import Target
from tests.support.closure import ASSESSMENT_NS, Simulated, problems, verified, why_none
from tests.support.naive_value import Naive
from tests.support.portfolios import Problem, ProblemMaker, WorldProgram

DRAWS = 6
"""Pairs of a cost model and a budget that each problem is planned with."""

MANY = 10**6
"""Targets that a budget is not short of."""


# --- what is drawn -----------------------------------------------------------------------------------------------
def worked_out(rng: random.Random) -> Budget:
    """Targets and time are left, but its work is spent."""
    budget = Budget(targets := rng.randint(2, 50), None)
    budget.spent(WORK_OF_A_TARGET * targets)
    return budget


def no_time(rng: random.Random) -> Budget:
    return Simulated(MANY, 0)


def little_time(rng: random.Random) -> Budget:
    """From less than one look takes to a few of them, shared with up to seven others."""
    return Simulated(MANY, rng.randint(1, 30 * ASSESSMENT_NS), rng.randint(0, 7))


def few_targets(rng: random.Random) -> Budget:
    return Simulated(rng.randint(2, 6), rng.choice([None, 20 * ASSESSMENT_NS]))


def asks_too_much(rng: random.Random) -> Budget:
    """No target promises as much as it asks for."""
    return Budget(MANY, None, least_gain=10 ** rng.uniform(9, 18))


BUDGETS: dict[str, Callable[[random.Random], Budget]] = {
    "nothing": lambda rng: Budget(0, 0),
    "one target": lambda rng: Budget(1, None),
    "few targets": few_targets,
    "no time": no_time,
    "little time": little_time,
    "work exhausted": worked_out,
    "a gain that nothing promises": asks_too_much,
}


def machine(rng: random.Random) -> CostModel:
    """As machines are, from fast links with slow compute to the reverse."""
    return ProblemMaker(rng.randrange(1 << 30)).cost()


def any_coefficients(rng: random.Random) -> CostModel:
    """From nothing at all to the largest that there are."""

    def price() -> float:
        return rng.choice([0.0, rng.random(), 10 ** rng.uniform(0, 18), SATURATED_NS])

    to_host, to_device, on_device = (TransferCost(price(), price(), price()) for _ in range(3))
    return CostModel(to_host, to_device, on_device, PrefillCost(price(), price(), price()))


# --- what is true ------------------------------------------------------------------------------------------------
def fits_somehow(problem: Problem, naive: Naive, ways: dict) -> bool:  # type: ignore[type-arg]
    """Whether any target of the closure is feasible and can be published. Knows no price."""
    return any(naive.fits(option, outcomes) for option in problem.options for outcomes in naive.closure(option, ways))


@dataclass
class Seen:
    outcomes: Counter[str] = field(default_factory=Counter)
    budgets: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)


def fits(problem: Problem, naive: Naive, choice: Choice) -> None:
    """Asserts that what was chosen is one of the closure's targets, whatever it costs."""
    assert choice.node is not None
    target, option = choice.node.target, choice.node.option
    assert choice.readiness is WorldProgram(problem.world).assess(target).readiness
    assert choice.readiness in (Readiness.READY, Readiness.NEEDS_TRANSFER)
    assert set(target.outcomes) <= set(problem.eligible) - {option.source_owner}
    assert naive.fits(option, dict(target.outcomes))


def check_request(seed: int, problem: Problem, naive: Naive, ways: dict, seen: Seen) -> None:  # type: ignore[type-arg]
    rng, truth = random.Random(seed), fits_somehow(problem, naive, ways)
    for _ in range(DRAWS):
        kind = rng.choice([*BUDGETS])
        # With the ranking only the least recent may go (PLAN-5): that decides who goes, never whether it fits.
        ranking = rng.sample(problem.eligible, len(problem.eligible)) if rng.random() < 0.25 else None
        choice = problem.planner(cost=rng.choice([machine, any_coefficients])(rng)).materialize(
            problem.options, BUDGETS[kind](rng), ranking
        )
        assert (choice.node is not None) is truth, f"with budget {kind!r}: {choice.readiness}, {choice.reason}"
        if truth:
            fits(problem, naive, choice)
        else:
            assert choice.readiness is why_none(problem), kind
        seen.outcomes["admissible" if truth else choice.readiness.value] += 1
        seen.budgets[kind] += 1
        seen.stops[choice.stop.value] += 1


def check_capture(seed: int, problem: Problem, naive: Naive, ways: dict, seen: Seen) -> None:  # type: ignore[type-arg]
    """A capture is optional, and whether it is worth it depends on prices. But what does not fit is never taken; what
    fits as it is, and is worth it, is never lost to a budget; and neither changes what is said of one."""
    (option,) = problem.options
    rng, truth = random.Random(seed), fits_somehow(problem, naive, ways)
    as_it_is = WorldProgram(problem.world).assess(Target(option.demand)).readiness
    for _ in range(DRAWS):
        kind, extreme = rng.choice([*BUDGETS]), rng.random() < 0.3
        wanted = structs.replace(option, gain=option.gain * 10 ** rng.uniform(-6, 0))
        priced = replace(problem, cost=(any_coefficients if extreme else machine)(rng), options=[wanted])
        choice = priced.planner().capture(wanted, BUDGETS[kind](rng))
        seen.budgets[kind] += 1
        seen.stops[choice.stop.value] += 1
        if choice.node is None:
            assert choice.readiness is as_it_is, kind
        else:
            assert truth, "no target of the closure fits"
            fits(problem, naive, choice)
        if extreme:
            continue  # prices may be beyond what can be compared: nothing is taken then (VAL-7)
        worth = Naive(priced).judged(wanted, {})
        worth_it = worth is not None and worth.value < 0
        assert choice.node is not None or not worth_it, f"lost to a budget: {kind}"
        if choice.node is not None:
            assert (verified(priced, Naive(priced), choice) or 0.0) < 0, "only a strictly positive net gain"
        gives_way = choice.node is not None and bool(choice.node.target.outcomes)
        why = "impossible" if not truth else "not worth it" if worth is not None else "not found, or not worth it"
        seen.outcomes[why if choice.node is None else "others give way" if gives_way else "as it is"] += 1


# --- the proof ---------------------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-3", "PLAN-5", "PLAN-7", "PLAN-8", "PLAN-11", "PLAN-13", "TGT-6", "COST-4", "INV-12", "INV-13")
def test_what_a_request_is_told_depends_on_no_price_and_no_budget() -> None:
    seen, stream = Seen(), problems(10_000, 150)
    for _ in range(350):
        check_request(*next(stream), seen)
    told = {Readiness.PERMANENTLY_INFEASIBLE.value, Readiness.TEMPORARILY_BLOCKED.value, "admissible"}
    assert seen.outcomes.keys() == told and min(seen.outcomes.values()) >= 50, seen.outcomes
    assert seen.budgets.keys() == BUDGETS.keys() and min(seen.budgets.values()) >= 50, seen.budgets
    assert {"target_budget", "time_budget", "work_budget", "no_pressure"} <= seen.stops.keys(), seen.stops


@pytest.mark.req("PLAN-4", "PLAN-7", "PLAN-8", "TGT-6", "VAL-7", "INV-13", "INV-16")
def test_which_captures_can_be_had_depends_on_no_price_and_no_budget() -> None:
    seen, stream = Seen(), problems(20_000, 150, capture=True)
    for _ in range(350):
        check_capture(*next(stream), seen)
    assert seen.outcomes.keys() >= {"impossible", "not worth it", "others give way", "as it is"}, seen.outcomes
    assert seen.budgets.keys() == BUDGETS.keys() and min(seen.budgets.values()) >= 50, seen.budgets
    assert {"target_budget", "time_budget", "work_budget", "no_pressure"} <= seen.stops.keys(), seen.stops


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="problems of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=2000, help="targets in a closure, at most")
    args = parser.parse_args()
    for name, check, capture in (("requests", check_request, False), ("captures", check_capture, True)):
        seen, stream = Seen(), problems(args.seed, args.most, capture=capture)
        for _ in range(args.count):
            seed, *rest = next(stream)
            try:
                check(seed, *rest, seen)
            except AssertionError as error:
                raise SystemExit(f"{name}, seed {seed}: {error}") from error
        print(f"{name}: {args.count} problems, each planned {DRAWS} times, as the closure says")
        for counted in (seen.outcomes, seen.budgets, seen.stops):
            print(f"  {dict(sorted(counted.items()))}")


if __name__ == "__main__":
    main()
