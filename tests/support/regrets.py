"""What the planner's answers lose against the complete closure of their targets, problem by problem."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ninfer_core.cache.cost import CostModel
from tests.support.closure import (
    default_budget,
    enumerate_all,
    regret,
    spent,
    unlimited,
    verified,
    why_none,
)
from tests.support.naive_value import Naive
from tests.support.portfolios import Problem, ProblemMaker, WorldProgram


@dataclass
class Regrets:
    """Of many problems. A share is (J - J*) / (J_maximal - J*); no problem without a denominator is among them.

    Attributes:
        default, none, unlimited: shares at the default budget, with none, and without a bound.
        owners: shares at the default budget by the number of owners that could give way.
        worst: of the default budget, with its seed.
        outcomes: what became of the requests.
        targets: assessed at the default budget.
        enumerated: targets, of all problems.
    """

    default: list[float] = field(default_factory=list)
    none: list[float] = field(default_factory=list)
    unlimited: list[float] = field(default_factory=list)
    owners: dict[int, list[float]] = field(default_factory=dict)
    worst: tuple[float, int] = (0.0, 0)
    outcomes: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    targets: list[int] = field(default_factory=list)
    enumerated: int = 0

    def add(self, seed: int, problem: Problem, naive: Naive, ways: dict, *, wide: bool, real: bool = False) -> None:
        """Compare the answers to one problem with the best of all.

        Args:
            wide: also search without any bound.
            real: by the machine's own clock.

        Raises:
            AssertionError: what fits depends on a cost model or a budget; an answer that does not fit, or whose J is
                not what the requirements say; one that is not exact where nothing can be lost.
        """
        truth = enumerate_all(problem, naive, ways)
        self.enumerated += truth.targets
        random_cost = ProblemMaker(seed + 10**6).cost()
        answers = {
            "default": problem.planner().materialize(problem.options, default_budget(real)),
            "none": problem.planner().materialize(problem.options, spent()),
            "other": problem.planner(cost=random_cost).materialize(problem.options, default_budget()),
            "free": problem.planner(cost=CostModel()).materialize(problem.options, spent()),
        }
        if wide:
            answers["unlimited"] = problem.planner().materialize(problem.options, unlimited())
        kinds = {a.readiness.value if a.node is None else "admissible" for a in answers.values()}
        assert len(kinds) == 1, f"what fits depends on cost or budget: {kinds}"
        self.outcomes[kinds.pop()] += 1
        if truth.best is None:
            assert all(a.node is None for a in answers.values())
            assert answers["default"].readiness is why_none(problem)
            return
        for name, answer in answers.items():
            assert answer.node is not None, "an admissible request is never blocked"
            if name in ("other", "free"):
                found = WorldProgram(problem.world).assess(answer.node.target)
                chosen = dict(answer.node.target.outcomes)
                assert found.projection.feasible and naive.publishable(answer.node.option, chosen)
                continue
            value = verified(problem, naive, answer)
            assert value is not None
            if name == "none":
                span = truth.maximal
                if span is not None and span.value > truth.best.value + 1e-6:
                    self.none.append((value - truth.best.value) / (span.value - truth.best.value))
                continue
            share = regret(value, truth)
            if share is None:
                continue
            if name == "unlimited":
                self.unlimited.append(share)
                continue
            self.default.append(share)
            self.owners.setdefault(len(problem.eligible), []).append(share)
            self.worst = max(self.worst, (share, seed))
        self.stops[answers["default"].stop.value] += 1
        self.targets.append(answers["default"].targets)
