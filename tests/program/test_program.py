"""Program by hand: literal pages, slots and frontiers for each requirement that the random histories prove at large."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ninfer_core.contract.ids import Frontier, OwnerId
from ninfer_core.contract.plans import Readiness, RequestWork, SequenceHandle
from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt
from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.statistics import Placement, SourceKind
from ninfer_core.program.identity import Identity, encode
from ninfer_core.program.ledger.bits import members
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.assessment import AssessmentSession
from ninfer_core.program.planning.outcome import EVICTED, Step, identity, successors, without_checkpoint
from ninfer_core.program.planning.projection import project
from ninfer_core.program.planning.target import SourceMode, Target
from ninfer_core.program.planning.work import Copies, Prefill, Recipe, immediate, recipe_from
from ninfer_core.program.program import Program
from ninfer_core.program.transactions.running import CopyError, Phase
from tests.support.ledger_model import LedgerModel

GREEDY = SamplingParams(temperature=0)
PAGE = 64 * 4 * 2
"""Bytes of one page of the ledger model."""


def work(tokens: list[int], most_new: int = 16, cuts: tuple[int, ...] = ()) -> RequestWork:
    n = Frontier(len(tokens))
    bounds = Boundaries(None, None, (), n, n, tuple(map(Frontier, cuts)), reproduces_history=False)
    return RequestWork(PreparedPrompt(tuple(tokens), bounds, OutputStart.ANSWER), len(tokens) + most_new, GREEDY)


def make(device: int = 4, host: int = 2, pages: int = 12, host_pages: int = 8, lease: int | None = None) -> Program:
    program = Program(LedgerModel(), Vector(device, host, (pages,), host_pages * PAGE), lease)
    program.physical.checking = True
    return program


def begin(program: Program, tokens: list[int], most_new: int = 16, source=None, outcomes=None) -> SequenceHandle:
    request = work(tokens, most_new)
    handle = program.materialize(Target(program.activation(source, request), outcomes or {}), request)
    assert isinstance(handle, SequenceHandle), handle
    return handle


def run(program: Program, handle: SequenceHandle, count: int = 1 << 20) -> int | None:
    pending = program.execute([(handle, count)])
    pending.commit([handle])
    return pending.rows[0].token


def tap(program: Program, handle: SequenceHandle, frontier: int, on_device: bool = True) -> None:
    result = program.transition(Target(program.capture_demand(handle, frontier, on_device)))
    assert result.grant is not None
    program.arm(handle, Frontier(frontier), SourceKind.LONG_ANCHOR, result.grant)


def finished(program: Program, length: int = 130, taps: tuple[int, ...] = (64, 100)) -> OwnerId:
    handle = begin(program, [i % 60 for i in range(length)])
    for frontier in taps:
        tap(program, handle, frontier)
    run(program, handle)
    program.end(handle)
    owner = program.finish(handle)
    assert owner is not None
    return owner


def step(program: Program, owner: OwnerId, which: Step, number: int = 0) -> Target:
    world = program.world
    chosen = [s for s in successors(identity(world.owners[owner], world.replicas)) if s.step is which]
    return Target(None, {owner: chosen[number].outcome})


# --- admission and the guarantee ----------------------------------------------------------------------------------
@pytest.mark.req("PLAN-11")
def test_outcomes_of_an_assessment() -> None:
    program = make(device=1, host=0, pages=4)

    def readiness(tokens: int) -> Readiness:
        return program.assess(Target(program.activation(None, work([1] * tokens)))).readiness

    assert readiness(300) is Readiness.PERMANENTLY_INFEASIBLE
    assert readiness(100) is Readiness.READY
    handle = begin(program, [1] * 100)
    assert readiness(1) is Readiness.TEMPORARILY_BLOCKED
    program.discard(handle)
    assert readiness(1) is Readiness.READY


@pytest.mark.req("ACT-1", "PRO-4", "INV-8")
def test_the_whole_life_is_reserved_and_no_other_request_gets_it() -> None:
    program = make(pages=4)
    handle = begin(program, [3] * 10, most_new=200)
    assert program.world.reserved().pages == (4,) and program.world.allocated().pages == (0,)
    assert program.assess(Target(program.activation(None, work([1])))).readiness is Readiness.TEMPORARILY_BLOCKED
    for _ in range(200):
        run(program, handle)
        program.audit()
    assert program.world.reserved().pages == (0,) and program.world.allocated().pages == (4,)
    with pytest.raises(RuntimeError, match="promised"):
        program.physical.map_pages(program.sequence(handle).owner, 0, 1)


@pytest.mark.req("ACT-2")
def test_truncate_keeps_the_capacity_promised() -> None:
    program = make(pages=4)
    handle = begin(program, [3] * 10, most_new=200)
    run(program, handle)
    program.physical.map_pages(program.sequence(handle).owner, 0, 2)
    program.truncate(handle)
    assert program.world.allocated().pages == (1,) and program.world.reserved().pages == (3,)
    program.audit()


@pytest.mark.req("ACT-3")
def test_a_lease_grows_at_round_boundaries_or_not_at_all() -> None:
    program = make(pages=4, lease=64)
    first = begin(program, [3] * 64, most_new=500)
    assert program.world.reserved().pages == (2,)
    second = begin(program, [4] * 60, most_new=500)
    assert program.world.reserved().pages == (4,)
    for _ in range(64):
        run(program, first)
    assert not program.extend_lease(first), "the other's window is not borrowed: finish with length"
    program.discard(second)
    assert program.extend_lease(first)
    assert program.world.used().pages == (3,)
    run(program, first)


@pytest.mark.req("ACT-4", "TXN-2")
def test_reservation_stays_until_finish_and_a_stale_handle_is_refused() -> None:
    program = make()
    handle = begin(program, [3] * 60)
    run(program, handle)
    used = program.world.used()
    program.end(handle)
    assert program.world.used() == used
    with pytest.raises(RuntimeError, match="terminal_pending"):
        program.execute([(handle, 1)])
    owner = program.finish(handle)
    assert program.world.used().pages == (1,), "the endpoint keeps its page, the growth is free"
    with pytest.raises(RuntimeError, match="stale"):
        program.finish(handle)
    program.release(owner)
    assert not program.world.used()


def test_a_sequence_that_computed_nothing_leaves_nothing() -> None:
    program = make()
    handle = begin(program, [3] * 60)
    program.end(handle)
    assert program.finish(handle) is None and not program.world.used()


# --- revision and stale plans -------------------------------------------------------------------------------------
@pytest.mark.req("CAP-10")
def test_what_moves_the_revision_and_what_does_not() -> None:
    program = make()
    seen = [program.revision]

    def moved() -> bool:
        seen.append(program.revision)
        return seen[-1] == seen[-2] + 1 or (seen[-1] != seen[-2] and pytest.fail("more than one step"))

    handle = begin(program, [3] * 100)
    assert moved()
    run(program, handle, 64)
    run(program, handle)
    run(program, handle)
    assert not moved(), "mapping, frontiers and content are the sequence's own"
    tap(program, handle, 102)
    assert moved(), "room was taken from the free capacity"
    run(program, handle)
    assert moved(), "a checkpoint was published"
    program.end(handle)
    assert not moved()
    owner = program.finish(handle)
    assert moved()
    program.transition(step(program, owner, Step.DEMOTE_IMAGE))
    assert moved(), "one step for a whole transition"
    program.release(owner)
    assert moved()


@pytest.mark.req("TXN-3", "INV-10")
def test_a_stale_or_used_plan_changes_nothing() -> None:
    program = make()
    request = work([1] * 20)
    target = Target(program.activation(None, request))
    plan, other = program.seal(target, request), program.seal(target, request)
    transaction = program.start(plan)
    blocked = program.start(other)
    assert isinstance(blocked, ResourceResult) and "open" in blocked.reason
    while program.advance(transaction, plan) is None:
        pass
    world = program.world
    for late in (plan, other):
        refused = program.start(late)
        assert isinstance(refused, ResourceResult) and refused.ending is Ending.ABORTED
    assert program.world is world


@pytest.mark.req("TXN-3", "INV-10")
def test_start_counts_again_what_a_session_counted_for_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealed from a session, a plan starts only if the world of now gives the same projection, counted from nothing."""
    program = make(device=3, host=0)
    request = work([1] * 20)
    target = Target(program.activation(None, request))
    session = program.session()
    plan, late = program.seal(target, request), program.seal(target, request)
    assert plan.projection == session.assess(target).projection == project(program.world, target)
    before = program.world
    changed = replace(before, held=Vector(1, 0, (0,), 0))  # at the same revision: only a recount can see it
    program.physical.publish(changed)
    assert session.assess(target).projection != plan.projection
    refused = program.start(late)
    assert isinstance(refused, ResourceResult) and refused.reason == "the plan is stale"
    assert program.world is changed
    program.physical.publish(before)
    monkeypatch.setattr(AssessmentSession, "project", None)
    with pytest.raises(TypeError):
        program.seal(target, request)
    assert not isinstance(program.start(plan), ResourceResult), "seal asks the session, start does not"


# --- captures -----------------------------------------------------------------------------------------------------
@pytest.mark.req("KV-4", "KV-3", "ST-2", "CKP-3")
def test_a_tap_copies_one_tail_page_and_no_full_one() -> None:
    program = make()
    handle = begin(program, [i % 60 for i in range(130)], most_new=40)
    tap(program, handle, 100)
    tap(program, handle, 64)
    run(program, handle)
    aligned, unaligned = program.owner_of(handle).checkpoints
    lane = program.owner_of(handle).lane
    assert (aligned.frontier, unaligned.frontier) == (64, 100)
    assert aligned.pages[0] == lane.pages[0][:1], "at an aligned frontier nothing is copied"
    assert unaligned.pages[0][0] == lane.pages[0][0] and unaligned.pages[0][1] not in lane.pages[0]
    assert members(lane.writable) == sorted(lane.pages[0][1:]), "the writer goes on in its own page"
    assert program.world.allocated().pages == (4,), "three of the sequence, one copied tail"
    assert [unit.cuts for unit in program.sequence(handle).trace] == [(64, 100)], "one pass: no split"
    program.audit()


@pytest.mark.req("ST-1")
def test_device_slots_are_one_pool() -> None:
    program = make(device=3, host=0)
    first = begin(program, [1] * 5)
    owner = finished(program, 20, taps=(10,))
    assert program.world.allocated().device_images == 3
    program.discard(first)
    second = begin(program, [2] * 5)
    images = [c.image for c in program.world.owners[owner].checkpoints] + [program.owner_of(second).lane.image]
    assert sorted(program.physical.images.slot(image) for image in images) == [0, 1, 2]


def test_unused_room_goes_back() -> None:
    program = make()
    handle = begin(program, [1] * 70)
    used = program.world.used()
    result = program.transition(Target(program.capture_demand(handle, 70, True)))
    assert program.world.used() == used + Vector(1, 0, (1,), 0)
    program.drop_grant(handle, result.grant)
    assert program.world.used() == used
    program.audit()


@pytest.mark.req("CAN-7", "DEF-2")
def test_an_endpoint_anchor_comes_from_the_reuse_base_without_a_copy() -> None:
    program = make()
    owner = finished(program, 128, taps=())
    endpoint = program.world.owners[owner].checkpoints[-1]
    tokens = [*(i % 60 for i in range(128)), 7, 7]
    handle = begin(program, tokens, source=program.source(owner, endpoint, SourceMode.CONSUME))
    assert program.owner_of(handle).lane.image == endpoint.image, "moved"
    assert program.owner_of(handle).checkpoints == ()
    tap(program, handle, 128)
    anchor = program.owner_of(handle).checkpoints[0]
    assert (anchor.frontier, anchor.image) == (128, endpoint.image), "the endpoint's own image, frozen"
    run(program, handle)
    program.audit()
    later = begin(
        program, [*tokens[:128], 9], source=program.source(program.sequence(handle).owner, anchor, SourceMode.RETAIN)
    )
    run(program, later)
    program.audit()


# --- sources ------------------------------------------------------------------------------------------------------
@pytest.mark.req("CAN-8", "CAP-8")
def test_two_slots_hold_endpoint_and_anchor_and_a_branch_rewrites_from_the_anchor() -> None:
    """The example of CAN-8 with C = 1 and H = 1."""
    program = make(device=2, host=0)
    owner = finished(program, 130, taps=(100,))
    anchor = program.world.owners[owner].checkpoints[0]
    tokens = [i % 60 for i in range(100)] + [9, 9]
    request = work(tokens)
    retain = program.source(owner, anchor, SourceMode.RETAIN)
    assert not project(program.world, Target(program.activation(retain, request))).feasible
    consume = program.source(owner, anchor, SourceMode.CONSUME)
    assert [c.frontier for c in consume.lineage] == [100]
    handle = begin(program, tokens, source=consume)
    lane = program.owner_of(handle).lane
    assert lane.reads == anchor.image and lane.image != anchor.image, "the anchor stays, so the state forks"
    assert owner not in program.world.owners
    run(program, handle)
    program.end(handle)
    continued = program.finish(handle)
    assert [c.frontier for c in program.world.owners[continued].checkpoints] == [100, 102]


@pytest.mark.req("CAN-1", "ID-1", "ID-2", "CAN-10")
def test_only_an_exactly_equal_prefix_is_verified() -> None:
    program = make()
    owner = finished(program, 130)
    base = program.world.owners[owner].checkpoints[1]
    tokens = [i % 60 for i in range(130)]

    def verified(prompt: list[int], cuts: tuple[int, ...] = (), mode: tuple = ()) -> bool:
        asked = Identity(encode(prompt), tuple(map(Frontier, cuts)), mode)
        return program.verify(owner, base.ref, asked) is not None

    assert verified(tokens)
    assert verified(tokens[:100])
    assert not verified(tokens[:99]), "too short"
    assert not verified([5, *tokens[1:]]), "another token"
    assert not verified(tokens, cuts=(50,)), "cut elsewhere"
    assert verified(tokens, cuts=(120,)), "cuts behind the frontier are not compared"
    assert not verified(tokens, mode=(("template", "x"),)), "another mode"
    digest = program.record(base.ref).digest
    assert digest == Identity(encode(tokens[:100]), (), ()).digest() != Identity(encode(tokens[:99]), (), ()).digest()


@pytest.mark.req("ID-3")
def test_accepted_output_joins_the_identity_with_its_tokens_alone() -> None:
    program = make()
    handle = begin(program, [1] * 20)
    for _ in range(3):
        run(program, handle)
    said = list(program.sequence(handle).ledger)
    program.end(handle)
    owner = program.finish(handle)
    assert owner is not None
    endpoint = program.world.owners[owner].checkpoints[-1]
    record = program.record(endpoint.ref)
    assert endpoint.frontier == 22 == len(said) - 1, "the last drawn token is not executed (DEF-4)"
    assert record.identity == Identity(encode(said[:22]), (), ())
    assert record.digest == record.identity.digest(), "committed with it"

    def goes_on(prompt: list[int], cuts: tuple[int, ...] = ()) -> bool:
        asked = Identity(encode(prompt), tuple(map(Frontier, cuts)), ())
        return program.verify(owner, endpoint.ref, asked) is not None

    assert goes_on([*said, 5, 6], cuts=(24,)), "the next reply opens behind it"
    assert not goes_on([*said[:20], said[20] + 1, *said[21:], 5]), "rewritten output is another identity"
    assert not goes_on([*said, 5], cuts=(21,)), "so is output that history divides"


# --- pressure -----------------------------------------------------------------------------------------------------
@pytest.mark.req("CAP-5", "CAP-7", "TGT-5", "INV-4")
def test_the_last_two_references_release_an_allocation_together() -> None:
    program = make(device=6, pages=12)
    owner = finished(program, 128, taps=(64,))
    base = program.world.owners[owner].checkpoints[0]
    branch = begin(
        program, [i % 60 for i in range(64)] + [9] * 64, source=program.source(owner, base, SourceMode.RETAIN)
    )
    run(program, branch)
    program.end(branch)
    fork = program.finish(branch)
    world = program.world
    shared = base.page_mask
    assert not world.exclusive(world.owners[owner]).device_pages & shared
    assert not world.exclusive(world.owners[fork]).device_pages & shared

    def freed(*owners: OwnerId) -> int:
        projection = project(world, Target(None, dict.fromkeys(owners, EVICTED)))
        return world.used().pages[0] - projection.peaks[1].pages[0]

    assert freed(owner) == 1 and freed(fork) == 1
    assert freed(owner, fork) == 3, "not the sum: the shared page goes with the last"


@pytest.mark.req("TGT-4", "RET-1")
def test_successors_only_degrade_and_keep_survivors_whole() -> None:
    program = make()
    owner = finished(program)
    world = program.world
    start = identity(world.owners[owner], world.replicas)
    seen, left = {start}, [start]
    while left:
        outcome = left.pop()
        for successor in successors(outcome):
            after = successor.outcome
            assert len(after.kept) <= len(outcome.kept)
            assert not after.wants.device_images & ~outcome.wants.device_images, "nothing comes back to Device"
            assert not after.wants.device_pages & ~outcome.wants.device_pages
            images, pages = after.needs
            assert after.wants.images == images and after.wants.pages == pages
            if after not in seen:
                seen.add(after)
                left.append(after)
    assert EVICTED in seen and len(seen) > 50
    kinds = {s.step for outcome in seen for s in successors(outcome)}
    assert kinds == set(Step) - {Step.DROP_HOST_COPY, Step.DROP_DEVICE_COPY}


@pytest.mark.req("CAP-2", "KV-6", "DEF-8", "INV-5")
def test_total_free_bytes_do_not_place_an_extent() -> None:
    program = make(device=8, pages=16, host_pages=5)
    owners = [finished(program, 65, taps=()) for _ in range(2)]
    for owner in owners:
        assert program.transition(step(program, owner, Step.DEMOTE_PAGES)).ending is Ending.COMMITTED
    program.release(owners[0])
    assert [(hole.offset // PAGE, hole.size // PAGE) for hole in program.world.arena.holes] == [(0, 2), (4, 1)]
    large = finished(program, 129, taps=())
    target = step(program, large, Step.DEMOTE_PAGES)
    projection = project(program.world, target)
    assert program.world.arena.free == 3 * PAGE and projection.unplaceable == 3 * PAGE
    assert not projection.feasible and not projection.deficit
    program.audit()


@pytest.mark.req("CAP-9")
def test_a_copy_before_release_peak_is_not_hidden() -> None:
    program = make(device=3, host=1)
    owner = finished(program, 20, taps=(10,))
    world = program.world
    first, second = world.owners[owner].checkpoints
    outcome = identity(world.owners[owner], world.replicas)
    both = [s.outcome for s in successors(outcome) if s.step is Step.DEMOTE_IMAGE]
    twice = next(s.outcome for s in successors(both[0]) if s.step is Step.DEMOTE_IMAGE)
    assert project(world, Target(None, {owner: both[0]})).feasible
    assert project(world, Target(None, {owner: twice})).deficit.host_images == 1
    del first, second


@pytest.mark.req("TXN-5", "TXN-6", "TXN-10", "INV-11")
@pytest.mark.parametrize("after", range(6))
def test_cancelled_at_every_phase_boundary(after: int) -> None:
    program = make(device=4, host=2, pages=8)
    victim, source = finished(program, 130, taps=()), finished(program, 70, taps=(64,))
    program.transition(step(program, source, Step.DEMOTE_IMAGE))
    base = program.world.owners[source].checkpoints[0]
    tokens = [i % 60 for i in range(64)] + [5]
    request = work(tokens, 200)
    chosen = program.source(source, base, SourceMode.RETAIN)
    world = program.world
    demotion = [
        s.outcome for s in successors(identity(world.owners[victim], world.replicas)) if s.step is Step.DEMOTE_PAGES
    ]
    plan = program.seal(Target(program.activation(chosen, request), {victim: demotion[0]}), request)
    transaction = program.start(plan)
    for _ in range(after):
        program.advance(transaction, plan)
        assert not program.world.used().excess(program.world.geometry.capacity)
    transaction.cancel()
    while (done := program.advance(transaction, plan)) is None:
        pass
    assert isinstance(done, ResourceResult) and done.ending is Ending.ABORTED and done.reason == "cancelled"
    assert program.world.owners[source].checkpoints[0] == base
    assert not program.world.held
    placement = done.owners[victim].checkpoints[0].placement
    assert placement is program.summaries(victim)[0].placement
    assert done.owners[victim].deleted == frozenset()
    program.audit()
    again = begin(program, tokens, 16, source=chosen)
    run(program, again)


@pytest.mark.req("TXN-10", "TXN-11")
@pytest.mark.parametrize("error", [CopyError, MemoryError, RuntimeError])
@pytest.mark.parametrize("phase", [Phase.COPIES_IN_FLIGHT, Phase.ACTIVATION_COPIES])
def test_a_failing_copy_is_local_to_its_request(phase: Phase, error: type[Exception]) -> None:
    program = make(device=4, host=2, pages=8)
    source = finished(program, 70, taps=())
    other = finished(program, 40, taps=())
    program.transition(step(program, source, Step.DEMOTE_IMAGE))
    endpoint = program.world.owners[source].checkpoints[-1]

    def fault(at: Phase) -> None:
        if at is phase:
            raise error("the device is gone")

    program.fault = fault
    request = work([i % 60 for i in range(70)] + [1])
    target = Target(
        program.activation(program.source(source, endpoint, SourceMode.CONSUME), request),
        step(program, other, Step.DEMOTE_IMAGE).outcomes,
    )
    done = program.materialize(target, request)
    assert isinstance(done, ResourceResult) and done.reason == "the device is gone"
    program.audit()
    program.fault = None
    target = Target(program.activation(program.source(source, endpoint, SourceMode.CONSUME), request))
    assert isinstance(program.materialize(target, request), SequenceHandle)


@pytest.mark.req("TXN-11", "INV-12")
def test_a_program_without_a_stable_state_says_so() -> None:
    program = make()
    request = work([1] * 20)
    plan = program.seal(Target(program.activation(None, request)), request)
    transaction = program.start(plan)

    def broken(reason: str) -> None:
        raise AssertionError("the ledger is not what it was")

    transaction._abort = broken
    transaction.cancel()
    with pytest.raises(AssertionError):
        while program.advance(transaction, plan) is None:
            pass
    with pytest.raises(RuntimeError, match="start a new Engine"):
        program.assess(Target(program.activation(None, request)))


@pytest.mark.req("TXN-8", "TXN-9")
def test_a_result_holds_absolute_ends_and_the_exact_deletions() -> None:
    program = make()
    owner = finished(program)
    refs = [c.ref for c in program.world.owners[owner].checkpoints]
    world = program.world
    outcome = without_checkpoint(identity(world.owners[owner], world.replicas), refs[1])
    result = program.transition(Target(None, {owner: outcome}))
    assert result.owners[owner].deleted == {refs[1]}
    assert [s.ref for s in result.owners[owner].checkpoints] == [refs[0], refs[2]]
    gone = program.transition(Target(None, {owner: EVICTED}))
    assert gone.owners[owner].gone and gone.owners[owner].deleted == {refs[0], refs[2]}
    assert not program.world.used()


@pytest.mark.req("KV-5", "CKP-5", "CKP-6")
def test_state_and_kv_are_placed_independently() -> None:
    program = make()
    owner = finished(program, 128, taps=())
    seen = [program.summaries(owner)[0].placement]
    for which in (Step.DEMOTE_PAGES, Step.DEMOTE_IMAGE):
        result = program.transition(step(program, owner, which))
        seen.append(result.owners[owner].checkpoints[0].placement)
        program.audit()
    assert seen == [Placement.DEVICE, Placement.MIXED, Placement.HOST]
    endpoint = program.world.owners[owner].checkpoints[0]
    request = work([i % 60 for i in range(128)] + [1])
    target = Target(program.activation(program.source(owner, endpoint, SourceMode.RETAIN), request))
    assert program.assess(target).readiness is Readiness.NEEDS_TRANSFER
    handle = program.materialize(target, request)
    run(program, handle)
    both = program.world.replicas.device_pages & program.world.replicas.host_pages
    assert both == endpoint.page_mask, "restored pages stay beside their Host replicas"
    program.audit()


@pytest.mark.req("COST-1", "COST-3", "DEF-9", "DEF-11", "TGT-3")
def test_immediate_and_recovery_work() -> None:
    program = make()
    owner = finished(program, 130, taps=(64,))
    geometry, places = program.world.geometry, program.physical.pools[0].device_page
    target = step(program, owner, Step.DEMOTE_PAGES)
    now = immediate(geometry, project(program.world, target), None, 0, places)
    assert now.to_host == Copies(2, 3 * PAGE), "one run, two planes"
    program.transition(target)
    program.transition(step(program, owner, Step.DEMOTE_IMAGE, 1))
    anchor, endpoint = program.world.owners[owner].checkpoints
    request = work([i % 60 for i in range(130)] + [1, 2])
    activation = program.activation(program.source(owner, endpoint, SourceMode.RETAIN), request)
    now = immediate(geometry, project(program.world, Target(activation)), activation, 132, places)
    assert now.to_device == Copies(1 + 2 * 2, geometry.image_bytes + 2 * PAGE), "page by page, in two planes"
    assert now.on_device == Copies(2, PAGE), "the tail is copied, from Host"
    assert now.prefill == Prefill(130, 2) and now.prefill.attention_pairs == 130 * 2 + 3
    ways = [recipe_from(geometry, 130, survivor, program.world.replicas) for survivor in (anchor, endpoint)]
    assert ways == [
        Recipe(Copies(2, PAGE), Prefill(64, 66)),
        Recipe(Copies(1 + 3 * 2, geometry.image_bytes + 3 * PAGE), Prefill(130, 0)),
    ]


@pytest.mark.req("DEF-9", "COST-1", "COST-2")
def test_an_operation_is_a_copy_that_is_issued(monkeypatch: pytest.MonkeyPatch) -> None:
    program = make(pages=60, host_pages=60)
    owner = finished(program, 40 * 64 + 10, taps=())
    issued, copy = [0], torch.Tensor.copy_

    def counted(self: torch.Tensor, *arguments: object, **options: object) -> torch.Tensor:
        issued[0] += 1
        return copy(self, *arguments, **options)

    def done(target: Target, request: RequestWork | None = None, prompt: int = 0) -> tuple[int, int]:
        """Predicted and issued."""
        activation = target.demand if request is not None else None
        places = program.physical.pools[0].device_page
        now = immediate(program.world.geometry, project(program.world, target), activation, prompt, places)
        predicted = now.to_host.operations + now.to_device.operations + now.on_device.operations
        issued[0] = 0
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "copy_", counted)
            program.transition(target) if request is None else program.materialize(target, request)
        return predicted, issued[0]

    pages = done(step(program, owner, Step.DEMOTE_PAGES))
    assert pages == (6, 6), "41 pages in steps of 16, two planes"
    assert done(step(program, owner, Step.DEMOTE_IMAGE)) == (1, 1)
    (endpoint,) = program.world.owners[owner].checkpoints
    request = work([i % 60 for i in range(40 * 64 + 10)] + [1, 2])
    target = Target(program.activation(program.source(owner, endpoint, SourceMode.RETAIN), request))
    assert done(target, request, 40 * 64 + 12) == (1 + 2 * 40 + 2, 1 + 2 * 40 + 2), "image, full pages, the tail"


@pytest.mark.req("CAP-1", "KV-1")
def test_the_capacity_vector_is_fixed_and_typed() -> None:
    program = make(device=3, host=1, pages=7, host_pages=2)
    geometry = program.world.geometry
    assert geometry.capacity == Vector(3, 1, (7,), 2 * PAGE)
    assert geometry.pools[0].page_bytes == PAGE and geometry.pools[0].planes == 2
    assert geometry.pools[0].ids == 9 and geometry.image_ids == 0b1111
    assert program.physical.pools[0].planes.keys[0].shape == (7, 64, 1, 1), "a page holds 64 tokens"


@pytest.mark.req("ST-3", "TXN-7")
def test_decode_goes_on_beside_an_open_transition() -> None:
    program = make(device=5, pages=12)
    runner = begin(program, [1] * 10, most_new=100)
    owner = finished(program, 130)
    plan = program.seal(step(program, owner, Step.DEMOTE_PAGES))
    transaction = program.start(plan)
    reply = []
    while program.advance(transaction, plan) is None:
        reply += [run(program, runner) for _ in range(70)] if not reply else []
    expected = program.model.greedy([1] * 10, len(reply))
    assert reply == expected and program.owner_of(runner).lane.pages[0][1:], "it even mapped a page"
    program.audit()
