"""Inheriting: pressure that a source which fits can use, on worlds small enough to see what the copy is worth."""

from __future__ import annotations

import pytest

from ninfer_core.cache.budget import Budget, Stop
from ninfer_core.cache.cost import CostModel, PrefillCost, TransferCost
from ninfer_core.cache.domain import Option
from ninfer_core.cache.retention import Retention
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.projection import contested
from ninfer_core.program.planning.target import Activation, Source, SourceMode
from tests.cache.test_planner import FREE, Shelf, build, evicted, plenty
from tests.support.portfolios import Problem

ROOM = Vector(9, 0, (9,), 0)
"""For everything that any of these worlds may want."""


def copying(seconds: float) -> CostModel:
    """A second of computing for each token, and so many for the copy of a tail."""
    return CostModel(FREE, FREE, TransferCost(seconds * 1e9, 0.0, 0.0), PrefillCost(0.0, 1e9, 0.0))


def resumed(problem: Problem, mode: SourceMode = SourceMode.CONSUME) -> Problem:
    """The first owner's conversation goes on, ten tokens behind its checkpoint."""
    checkpoint = problem.world.owners[OwnerId(0)].checkpoints[0]
    demand = Activation(Source(OwnerId(0), checkpoint, mode), (3,))
    tokens, dead = checkpoint.frontier, frozenset({checkpoint.ref})
    if mode is SourceMode.RETAIN:
        dead = frozenset()
    problem.options[:] = [Option(0, demand, tokens + 10, OwnerId(0), base_dead=dead, reused=tokens)]
    return problem


def twins(seconds: float, other: Retention = Retention.DISPOSABLE, *, short: int = 4) -> Problem:
    """Two owners hold the same two pages, the second of them a tail where it is short of tokens; a third has others."""
    shelves = [Shelf(2, short=short), Shelf(alias=0, retention=other), Shelf()]
    return resumed(build(shelves, ROOM, [], cost=copying(seconds)))


@pytest.mark.req("PLAN-2", "CAP-8")
def test_who_holds_the_tail_too_lets_go_where_that_costs_less_than_the_copy() -> None:
    """Nothing is missing. The other loses the 124 seconds that its prefix takes to compute; the copy takes more."""
    problem = twins(seconds=200)
    choice = problem.planner().materialize(problem.options, plenty())
    assert evicted(choice) == {1} and choice.node is not None
    assert set(choice.node.target.outcomes) == {OwnerId(1)}, "nobody else is touched"
    assert choice.node.value == (10 + 124) * 1e9
    assert choice.node.projection.source is not None and choice.node.projection.source.taken != (None,)


@pytest.mark.req("PLAN-2", "VAL-6")
@pytest.mark.parametrize(("seconds", "other"), [(100, Retention.DISPOSABLE), (200, Retention.RECENT_PRIVATE)])
def test_and_keeps_it_where_it_costs_more(seconds: float, other: Retention) -> None:
    problem = twins(seconds, other)
    choice = problem.planner().materialize(problem.options, plenty())
    assert choice.node is not None and not choice.node.target.outcomes
    assert choice.node.value == (10 + seconds) * 1e9 and choice.targets == 2, "Program's word is asked, no estimate's"


@pytest.mark.req("PLAN-2", "PLAN-10")
def test_nobody_is_looked_at_where_the_copy_costs_next_to_nothing_or_there_is_none() -> None:
    for problem in (twins(seconds=0.0005), twins(seconds=200, short=0)):
        planner = problem.planner()
        planner.planner._domain._read = lambda: pytest.fail("nobody looks at victims")
        assert planner.materialize(problem.options, plenty()).stop is Stop.NO_PRESSURE


@pytest.mark.req("CAP-8", "CAN-8")
def test_a_source_that_is_retained_keeps_its_tail_itself() -> None:
    problem = resumed(twins(seconds=200), SourceMode.RETAIN)
    choice = problem.planner().materialize(problem.options, plenty())
    assert choice.stop is Stop.NO_PRESSURE and choice.node is not None
    assert choice.node.projection.source is not None and choice.node.projection.source.copied != (None,)
    assert contested(choice.node.target, choice.node.projection) == 0


@pytest.mark.req("PLAN-2", "CAP-8")
def test_what_its_own_lineage_keeps_is_copied_whoever_else_lets_go() -> None:
    problem = twins(seconds=200)
    (option,) = problem.options
    assert isinstance(option.demand, Activation) and option.demand.source is not None
    checkpoint = option.demand.source.checkpoint
    demand = Activation(Source(OwnerId(0), checkpoint, SourceMode.CONSUME, (checkpoint,)), (3,))
    problem.options[:] = [Option(0, demand, option.prompt_tokens, OwnerId(0), reused=option.reused)]
    planner = problem.planner()
    planner.planner._domain._read = lambda: pytest.fail("nobody looks at victims")
    assert planner.materialize(problem.options, plenty()).stop is Stop.NO_PRESSURE


@pytest.mark.req("PLAN-5")
def test_nobody_is_evicted_for_it_whom_recency_protects() -> None:
    """An identity fits: the licence is empty."""
    problem = twins(seconds=200)
    choice = problem.planner().materialize(problem.options, plenty(), [OwnerId(0), OwnerId(1)])
    assert choice.node is not None and not choice.node.target.outcomes


@pytest.mark.req("PLAN-1", "PLAN-2")
@pytest.mark.parametrize("seconds", [0, 50, 200])
def test_a_copy_that_the_best_target_does_not_make_skips_no_candidate(seconds: float) -> None:
    """An image is missing, since the other holds it. A second conversation has less to go on from, and fits."""
    shelves = [Shelf(2, short=4), Shelf(alias=0, shared=True), Shelf(1)]
    problem = resumed(build(shelves, Vector(3, 0, (9,), 0), [], cost=copying(seconds)))
    problem.entries[OwnerId(1)].shared = True
    checkpoint = problem.world.owners[OwnerId(2)].checkpoints[0]
    demand = Activation(Source(OwnerId(2), checkpoint, SourceMode.CONSUME), (3,))
    dead = frozenset({checkpoint.ref})
    problem.options.append(Option(1, demand, 134, OwnerId(2), base_dead=dead, reused=checkpoint.frontier))
    choice = problem.planner().materialize(problem.options, plenty())
    assert choice.node is not None and choice.node.option.ordinal == 0
    assert choice.node.value == 10e9 and evicted(choice) == {1}


@pytest.mark.req("PLAN-3", "PLAN-7")
def test_without_a_budget_the_copy_is_made() -> None:
    problem = twins(seconds=200)
    choice = problem.planner().materialize(problem.options, Budget(0, 0))
    assert choice.node is not None and not choice.node.target.outcomes and choice.stop is Stop.TARGET_BUDGET
