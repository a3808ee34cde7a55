"""What Program refuses to seal, what proves nothing, and that a choice reserves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.contract.plans import Readiness
from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.program.identity import encode
from ninfer_core.program.ledger.objects import Replicas
from ninfer_core.program.planning.outcome import EVICTED, Outcome, Step, identity, without_checkpoint
from ninfer_core.program.planning.target import Activation, Capture, Source, SourceMode, Target
from tests.program.test_program import begin, finished, make, run, step, tap, work


@pytest.mark.req("TGT-2", "TGT-4", "TGT-6", "INV-7", "DEF-1")
def test_an_illegal_target_is_not_sealed() -> None:
    program = make(device=10, pages=20)
    owner, other = finished(program, 130), finished(program, 130)
    runner = program.sequence(begin(program, [1] * 20)).owner
    world = program.world
    anchor, _, endpoint = world.owners[owner].checkpoints
    foreign = world.owners[other].checkpoints[0]
    request = work([i % 60 for i in range(64)] + [9])
    retained = program.activation(program.source(owner, anchor, SourceMode.RETAIN), request)
    start = identity(world.owners[owner], world.replicas)
    longer = Source(owner, anchor, SourceMode.CONSUME, (anchor, endpoint))
    refused = {
        "gone": Target(None, {OwnerId(999): EVICTED}),
        "active: it is no victim": Target(None, {runner: EVICTED}),
        "selected source": Target(retained, {owner: EVICTED}),
        "keeps a checkpoint that it has not": Target(None, {owner: Outcome.in_place((foreign,), Replicas())}),
        "other replicas": Target(None, {owner: Outcome(start.kept, Replicas(), start.needs)}),
        "something else than what it keeps": Target(None, {owner: Outcome(start.kept, Replicas(), (0, 0))}),
        "the source, checkpoint": Target(Activation(Source(owner, foreign, SourceMode.RETAIN), (5,))),
        "no lineage": Target(Activation(Source(owner, anchor, SourceMode.RETAIN, (anchor,)), (5,))),
        "no further": Target(Activation(longer, (5,))),
        "captures and is not active": Target(Capture(owner, True, False, (0,))),
    }
    for reason, target in refused.items():
        with pytest.raises(ValueError, match=reason):
            program.seal(target, request)
    assert program.world is world
    tap_owner = begin(program, [i % 60 for i in range(130)])
    tap(program, tap_owner, 64)
    run(program, tap_owner)
    active = program.owner_of(tap_owner)
    with pytest.raises(ValueError, match="cannot be consumed"):
        program.seal(Target(Activation(Source(active.id, active.checkpoints[0], SourceMode.CONSUME), (5,))), request)
    program.transition(step(program, other, Step.DEMOTE_IMAGE))
    back = identity(world.owners[other], world.replicas)
    with pytest.raises(ValueError, match="back on Device"):
        program.seal(Target(None, {other: back}))


@pytest.mark.req("CKP-1", "INV-6")
def test_tokens_and_pages_alone_are_no_hit() -> None:
    program = make(device=6, pages=16)
    owner = finished(program, 130, taps=(64,))
    anchor, endpoint = program.world.owners[owner].checkpoints
    prompt = [i % 60 for i in range(64)] + [9] * 6
    asked = program.identity(work(prompt))
    assert program.verify(owner, anchor.ref, asked) == anchor
    assert program.verify(owner, anchor.ref, replace(asked, media=((10, 20, b"another picture"),))) is None
    assert program.verify(owner, anchor.ref, replace(asked, media=((65, 66, b"behind the frontier"),))) == anchor
    assert program.verify(owner, CheckpointRef(10**6), asked) is None
    assert program.verify(OwnerId(10**6), anchor.ref, asked) is None
    world = program.world
    deleted = without_checkpoint(identity(world.owners[owner], world.replicas), anchor.ref)
    assert program.transition(Target(None, {owner: deleted})).ending is Ending.COMMITTED
    assert not anchor.page_mask & ~program.world.replicas.device_pages, "every page of the prefix is still there"
    assert encode(prompt[:64]) == program.record(endpoint.ref).identity.tokens[: 4 * 64], "and so are its tokens"
    assert program.verify(owner, anchor.ref, asked) is None, "without the state of that frontier it is no source"
    assert program.verify(owner, endpoint.ref, asked) is None


@pytest.mark.req("INV-17", "CAN-10", "TXN-3")
def test_choosing_reserves_nothing_and_is_proved_again() -> None:
    program = make(device=3, host=0, pages=10)
    owner = finished(program, 64, taps=())
    endpoint = program.world.owners[owner].checkpoints[-1]
    request = work([*(i % 60 for i in range(64)), 5], 64 * 4)
    world = program.world
    assert program.verify(owner, endpoint.ref, program.identity(request)) == endpoint
    target = Target(program.activation(program.source(owner, endpoint, SourceMode.RETAIN), request))
    assert program.session().assess(target).readiness is Readiness.READY
    plan = program.seal(target, request)
    assert program.world is world and program.world.used() == world.used()
    rival = begin(program, [1] * 64 * 7, 64)
    stale = program.start(plan)
    assert isinstance(stale, ResourceResult) and stale.ending is Ending.ABORTED
    assert program.assess(target).readiness is Readiness.TEMPORARILY_BLOCKED
    with pytest.raises(ValueError, match="infeasible"):
        program.seal(target, request)
    program.discard(rival)
    assert program.assess(target).readiness is Readiness.READY


@pytest.mark.req("INV-15", "ACT-4", "RET-4")
def test_a_lane_ends_although_nothing_can_be_captured() -> None:
    """No slot for a checkpoint and none of the cache to give: the capture is skipped, finish takes no new capacity."""
    program = make(device=1, host=0, pages=4)
    handle = begin(program, [1] * 100, most_new=150)
    for on_device in (True, False):
        target = Target(program.capture_demand(handle, 100, on_device))
        assert program.assess(target).readiness is Readiness.TEMPORARILY_BLOCKED
    while len(program.sequence(handle).ledger) < 250:
        run(program, handle)
    program.end(handle)
    assert program.world.used().pages == (4,)
    owner = program.finish(handle)
    assert [c.frontier for c in program.world.owners[owner].checkpoints] == [249]
    second = begin(program, [2] * 10, outcomes={owner: EVICTED})
    program.discard(second)
    assert not program.world.owners and not program.world.used()
