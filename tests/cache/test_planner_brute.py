"""The planner against the complete closure of its targets, on random small portfolios."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.closure import problems
from tests.support.regrets import Regrets


@pytest.mark.req(
    "PLAN-3", "PLAN-6", "PLAN-7", "PLAN-11", "TGT-1", "TGT-2", "TGT-6", "INV-12", "INV-13", "VAL-6", "VAL-8"
)
def test_small_portfolios_against_the_complete_closure() -> None:
    regrets, stream = Regrets(), problems(0, 150)
    for _ in range(120):
        regrets.add(*next(stream), wide=True)
    assert max(regrets.unlimited) <= 1e-9, "an unlimited budget finds the best"
    assert sum(regrets.default) / len(regrets.default) <= 0.02
    assert max(regrets.default) <= 0.25
    assert len(regrets.outcomes) == 3, "admissible, blocked and infeasible requests were among them"


MOST_OF_ONE_SIZE = 60


@pytest.mark.req("PLAN-6", "PLAN-7", "PLAN-8", "VAL-6", "TGT-4", "TGT-5")
def test_portfolios_of_every_size_up_to_five_owners_against_the_complete_closure() -> None:
    """So many of each: of problems as they come most have two or three."""
    regrets, taken = Regrets(), Counter[int]()
    for seed, problem, naive, ways in problems(20_000, 2000):
        owners = len(problem.eligible)
        if taken[owners] < MOST_OF_ONE_SIZE:
            taken[owners] += 1
            regrets.add(seed, problem, naive, ways, wide=False)
        if all(taken[owners] == MOST_OF_ONE_SIZE for owners in range(1, 6)):
            break
    assert sum(regrets.default) / len(regrets.default) <= 0.02
    assert max(regrets.default) <= 0.25
    assert len(regrets.owners[5]) > MOST_OF_ONE_SIZE / 2, "where something can be lost"
