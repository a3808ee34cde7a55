"""The schedule that a plan is sealed with: final, and the only places at which its sequence may be captured."""

from __future__ import annotations

import pytest

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.plans import FinalScheduleIntent, SequenceHandle
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.planning.target import SourceMode, Target
from ninfer_core.program.program import Program
from tests.program.test_program import finished, make, run, work

TOKENS = [i % 60 for i in range(200)]


def schedule(*frontiers: int) -> FinalScheduleIntent:
    return FinalScheduleIntent(tuple(Frontier(frontier) for frontier in frontiers))


def armed(program: Program, handle: SequenceHandle, frontier: int) -> None:
    demand = program.capture_demand(handle, Frontier(frontier), True)
    result = program.transition(Target(demand))
    assert result.grant is not None
    try:
        program.arm(handle, Frontier(frontier), SourceKind.LONG_ANCHOR, result.grant)
    except RuntimeError:
        program.drop_grant(handle, result.grant)
        raise


@pytest.mark.req("PLAN-12", "CAN-10")
@pytest.mark.parametrize(
    ("places", "why"),
    [
        ((64, 64), "do not ascend"),
        ((150, 100), "do not ascend"),
        ((0, 64), "do not ascend from the reuse base, 0"),
        ((64, 201), "beyond the prompt, 200"),
    ],
)
def test_a_schedule_that_is_none_of_the_request_is_not_sealed(places: tuple[int, ...], why: str) -> None:
    program = make()
    request = work(TOKENS)
    before = program.world
    with pytest.raises(ValueError, match=why):
        program.seal(Target(program.activation(None, request)), request, schedule(*places))
    assert program.world is before


@pytest.mark.req("PLAN-12")
def test_nothing_at_or_below_the_reuse_base_is_in_a_schedule() -> None:
    program = make()
    owner = finished(program, 130, taps=(64, 100))
    anchor = program.world.owners[owner].checkpoints[1]
    request = work([i % 60 for i in range(100)] + [7] * 60)
    target = Target(program.activation(program.source(owner, anchor, SourceMode.RETAIN), request))
    for frontier in (64, 100):
        with pytest.raises(ValueError, match="from the reuse base, 100"):
            program.seal(target, request, schedule(frontier, 150))
    assert program.seal(target, request, schedule(150)).schedule == schedule(150)


@pytest.mark.req("PLAN-12", "INV-17")
def test_a_sequence_is_captured_where_its_plan_says_and_nowhere_else() -> None:
    program = make()
    request = work(TOKENS)
    plan = program.seal(Target(program.activation(None, request)), request, schedule(64, 128))
    transaction = program.start(plan)
    handle = None
    while handle is None:
        handle = program.advance(transaction, plan)
    with pytest.raises(RuntimeError, match="frontier 100 is not in the schedule"):
        armed(program, handle, 100)
    armed(program, handle, 64)
    armed(program, handle, 128)
    run(program, handle)
    program.audit()
    assert [c.frontier for c in program.world.owners[program.owner_of(handle).id].checkpoints] == [64, 128]
