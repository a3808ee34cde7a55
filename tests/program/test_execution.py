"""What a pass, a plan and an ended request may do: used once, all or nothing, and nothing left behind."""

from __future__ import annotations

import pytest
import torch

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.planning.outcome import Step
from ninfer_core.program.planning.target import SourceMode, Target
from tests.program.test_program import begin, finished, make, run, step, tap, work


@pytest.mark.req("TXN-1", "TXN-3")
def test_a_plan_is_used_once_even_when_it_changed_nothing() -> None:
    program = make()
    request = work([1] * 20)
    plan = program.seal(Target(program.activation(None, request)), request)
    transaction = program.start(plan)
    transaction.cancel()
    while (done := program.advance(transaction, plan)) is None:
        pass
    assert done.ending is Ending.ABORTED and program.revision == plan.revision, "nothing has changed"
    again = program.start(plan)
    assert isinstance(again, ResourceResult) and again.reason == "the plan was used already"


@pytest.mark.req("TXN-10")
def test_a_row_that_is_not_accepted_can_only_be_discarded() -> None:
    program = make()
    kept, lost = begin(program, [1] * 20), begin(program, [2] * 20)
    program.execute([(kept, 20), (lost, 20)]).commit([kept])
    assert program.sequence(lost).frontier == 0 and program.sequence(kept).frontier == 20
    with pytest.raises(RuntimeError, match="failed, not active"):
        program.execute([(lost, 20)])
    with pytest.raises(RuntimeError, match="finish follows end"):
        program.finish(lost)
    program.discard(lost)
    assert run(program, kept) == program.model.greedy([1] * 20, 2)[1]
    program.audit()


@pytest.mark.req("TXN-11")
def test_a_pass_that_raises_fails_its_own_rows_and_nobody_else() -> None:
    program = make()
    inside, outside = begin(program, [1] * 20), begin(program, [2] * 20)
    program.model.fault = lambda batch: (_ for _ in ()).throw(RuntimeError("a kernel failed"))
    with pytest.raises(RuntimeError, match="a kernel failed"):
        program.execute([(inside, 20)])
    program.model.fault = lambda batch: None
    program.discard(inside)
    assert run(program, outside) == program.model.greedy([2] * 20, 1)[0]
    program.audit()


@pytest.mark.req("TXN-11")
def test_logits_that_are_not_finite_fail_one_row() -> None:
    program = make()
    sick, well = begin(program, [1] * 20), begin(program, [2] * 20)
    honest = program.model.logits

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        out = honest(hidden)
        out[0] = float("nan")
        return out

    program.model.logits = logits
    pending = program.execute([(sick, 20), (well, 20)])
    assert [row.error for row in pending.rows] == ["the model gave no finite logits", None]
    pending.commit([sick, well])
    with pytest.raises(RuntimeError, match="failed"):
        program.execute([(sick, 1)])
    assert program.sequence(well).ledger[-1] == program.model.greedy([2] * 20, 1)[0]
    program.discard(sick)
    program.audit()


def test_a_batch_that_nobody_commits_is_aborted() -> None:
    program = make()
    handle = begin(program, [1] * 20)
    with program.execute([(handle, 20)]) as pending:
        pass
    with pytest.raises(RuntimeError, match="settled already"):
        pending.commit([handle])
    assert program.sequence(handle).status.value == "failed"


@pytest.mark.req("REQ-1", "ACT-4")
def test_discard_leaves_no_owner_no_record_and_no_replica() -> None:
    """What a Disabled request does at its end: root only, and everything goes."""
    program = make()
    handle = begin(program, [1] * 130)
    tap(program, handle, 64)
    run(program, handle)
    assert len(program.owner_of(handle).checkpoints) == 1
    program.discard(handle)
    assert not program.world.owners and not program.world.used() and len(program.records) == 0
    program.audit()


@pytest.mark.req("DEF-4")
def test_an_endpoint_counts_executed_tokens_only() -> None:
    """The last sampled token is in the ledger and not covered; the next turn executes it first."""
    program = make()
    handle = begin(program, [1] * 20)
    reply = [run(program, handle) for _ in range(3)]
    program.end(handle)
    ledger = list(program.sequence(handle).ledger)
    owner = program.finish(handle)
    endpoint = program.world.owners[owner].checkpoints[-1]
    assert ledger == [1] * 20 + reply and endpoint.frontier == 22
    assert program.record(endpoint.ref).identity.frontier == 22


@pytest.mark.req("CAN-6")
def test_a_prompt_of_tokens_has_an_endpoint_and_where_asked_an_anchor_one_before_its_end() -> None:
    """The same prompt again computes one token; the endpoint serves prompt plus reply."""
    program = make()
    prompt = [i % 60 for i in range(100)]
    handle = begin(program, prompt)
    tap(program, handle, 99)
    reply = [run(program, handle) for _ in range(3)]
    program.end(handle)
    owner = program.finish(handle)
    anchor, endpoint = program.world.owners[owner].checkpoints
    whole = program.identity(work(prompt))
    assert program.verify(owner, anchor.ref, whole) == anchor and program.verify(owner, endpoint.ref, whole) is None
    again = begin(program, prompt, source=program.source(owner, anchor, SourceMode.RETAIN))
    assert program.unexecuted(again) == 1 and run(program, again) == reply[0]
    assert program.verify(owner, endpoint.ref, program.identity(work([*prompt, *reply, 5]))) == endpoint


@pytest.mark.req("CAN-7", "ST-2")
def test_an_endpoint_anchor_is_a_host_snapshot_where_no_device_slot_is_free() -> None:
    program = make(device=1, host=1)
    owner = finished(program, 128, taps=())
    endpoint = program.world.owners[owner].checkpoints[-1]
    tokens = [*(i % 60 for i in range(128)), 7, 7]
    handle = begin(program, tokens, source=program.source(owner, endpoint, SourceMode.CONSUME))
    tap(program, handle, 128, on_device=False)
    anchor = program.owner_of(handle).checkpoints[0]
    assert anchor.frontier == 128 and anchor.image_mask & program.world.replicas.host_images
    assert run(program, handle) == program.model.greedy(tokens, 1)[0]
    program.discard(handle)
    assert not program.world.owners


@pytest.mark.req("CAN-8", "ACT-6")
def test_a_consumed_source_takes_what_lies_above_it_and_keeps_itself_when_asked() -> None:
    program = make(device=6, host=0)
    owner = finished(program, 130, taps=(64, 100))
    first, second, endpoint = program.world.owners[owner].checkpoints
    assert program.source(owner, second, SourceMode.CONSUME).lineage == (first, second)
    assert program.source(owner, second, SourceMode.CONSUME, keep=False).lineage == (first,)
    assert program.source(owner, endpoint, SourceMode.CONSUME).lineage == (first, second), "an endpoint goes (DEF-2)"
    assert program.source(owner, first, SourceMode.RETAIN).lineage == ()
    tokens = [i % 60 for i in range(100)] + [9]
    before = program.world.allocated()
    handle = begin(program, tokens, source=program.source(owner, second, SourceMode.CONSUME))
    lane = program.owner_of(handle).lane
    assert program.owner_of(handle).checkpoints == (first, second) and lane.reads == second.image
    # The endpoint's image went and the destination came; the borrowed one is counted once.
    assert program.world.allocated().device_images == before.device_images
    run(program, handle)
    program.audit()


@pytest.mark.req("ST-4", "TXN-10")
@pytest.mark.parametrize("mode", list(SourceMode))
def test_a_borrowed_image_is_counted_once_and_outlives_an_abort(mode: SourceMode) -> None:
    program = make(device=6, host=2)
    owner = finished(program, 130, taps=(64,))
    anchor = program.world.owners[owner].checkpoints[0]
    request = work([i % 60 for i in range(64)] + [9])
    target = Target(program.activation(program.source(owner, anchor, mode), request))
    plan = program.seal(target, request)
    transaction = program.start(plan)
    program.advance(transaction, plan)
    transaction.cancel()
    while (done := program.advance(transaction, plan)) is None:
        pass
    assert done.ending is Ending.ABORTED
    assert anchor in program.world.owners[owner].checkpoints and anchor.image_mask & program.world.replicas.images
    handle = program.materialize(
        Target(program.activation(program.source(owner, anchor, SourceMode.RETAIN), request)), request
    )
    own = program.world.used().device_images
    assert own == len({c.image for o in program.world.owners.values() for c in o.checkpoints}) + 1
    program.discard(handle)
    assert anchor.image_mask & program.world.replicas.images
    program.audit()


@pytest.mark.req("KV-2", "CKP-6")
def test_a_demoted_image_comes_back_only_when_something_starts_from_it() -> None:
    """Placement changes at admission, never by itself: rounds of another sequence leave it on Host."""
    program = make(device=6)
    owner = finished(program, 70, taps=())
    program.transition(step(program, owner, Step.DEMOTE_IMAGE))
    endpoint = program.world.owners[owner].checkpoints[-1]
    other = begin(program, [1] * 20)
    for _ in range(5):
        run(program, other)
    assert not endpoint.image_mask & program.world.replicas.device_images
    begin(program, [i % 60 for i in range(70)] + [3], source=program.source(owner, endpoint, SourceMode.CONSUME))
    assert endpoint.image_mask & program.world.replicas.device_images


def test_a_checkpoint_of_a_passed_frontier_or_a_host_tap_is_refused() -> None:
    program = make()
    handle = begin(program, [1] * 20)
    grants = [program.transition(Target(program.capture_demand(handle, 20, on))).grant for on in (True, False)]
    with pytest.raises(RuntimeError, match="present frontier only"):
        program.arm(handle, Frontier(20), SourceKind.LONG_ANCHOR, grants[1])
    run(program, handle)
    with pytest.raises(RuntimeError, match="cannot be reached"):
        program.arm(handle, Frontier(10), SourceKind.LONG_ANCHOR, grants[0])
    for grant in grants:
        program.drop_grant(handle, grant)
    program.audit()
