"""A resumed run equals a cold replay of its trace, bit for bit: state, KV and the next tokens, from every source."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.plans import RequestWork, SequenceHandle
from ninfer_core.contract.prompt import OutputStart, PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.demo import demo_model_path
from ninfer_core.models.loader import load_model
from ninfer_core.models.qwen3_5.model import Qwen3_5Model
from ninfer_core.program.ledger.bits import members
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import Checkpoint
from ninfer_core.program.planning.outcome import Step, identity, successors
from ninfer_core.program.planning.target import SourceMode, Target
from ninfer_core.program.program import Program
from ninfer_core.program.replay import Replay
from ninfer_core.program.storage.page_store import PageStore
from tests.support.checkpoints import Tiny

GREEDY = SamplingParams(temperature=0)
PROMPT = [(i * 37 + i // 7) % 250 for i in range(200)]


@pytest.fixture(scope="module", params=["float32", "bfloat16", "demo"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Qwen3_5Model:
    """Tiny random weights, and the trained demo model, whose replies depend on all of their context."""
    if request.param == "demo":
        return load_model(demo_model_path())
    directory: Path = Tiny(dtype=request.param).write(tmp_path_factory.mktemp("exact") / "model")
    return load_model(directory)


@pytest.fixture
def program(model: Qwen3_5Model) -> Program:
    program = Program(model, Vector(6, 4, (40,), 24 * PageStore.bytes_per_page(model.layout)))
    program.physical.checking = True
    return program


def work(tokens: list[int], most_new: int = 64) -> RequestWork:
    prompt = PreparedPrompt(tuple(tokens), None, OutputStart.ANSWER)
    return RequestWork(prompt, len(tokens) + most_new, GREEDY)


def begin(program: Program, tokens: list[int], source=None) -> SequenceHandle:
    request = work(tokens)
    handle = program.materialize(Target(program.activation(source, request)), request)
    assert isinstance(handle, SequenceHandle), handle
    return handle


def run(program: Program, handles: list[SequenceHandle], tokens: int, chunk: int = 1000) -> None:
    """Prefill each, then batched rounds until every sequence has drawn tokens tokens."""
    for handle in handles:
        while program.unexecuted(handle) > 1 or program.sequence(handle).frontier == 0:
            program.execute([(handle, chunk)]).commit([handle])
    for _ in range(tokens):
        program.execute([(handle, 1) for handle in handles]).commit(handles)


def prove(program: Program, handle: SequenceHandle) -> None:
    """State and KV at the frontier, and every token drawn, are those of a cold replay, bit for bit."""
    sequence, lane = program.sequence(handle), program.owner_of(handle).lane
    frontier = sequence.frontier
    replay = Replay(program.model, sequence.ledger, tuple(sequence.trace), frontier)
    image = lane.image if lane.reads is None else lane.reads
    assert torch.equal(program.physical.images.bytes_of(image), replay.state)
    store = program.physical.pools[0]
    for plane, expected in enumerate(replay.kv(frontier)):
        got = [
            store.bytes_of(page, min(64, frontier - 64 * i))[plane]
            for i, page in enumerate(lane.pages[0])
            if 64 * i < frontier
        ]
        assert torch.equal(torch.cat(got), expected.flatten())
    drawn = [f for f in replay.hidden if sequence.prompt_tokens <= f < len(sequence.ledger)]
    # The head's product too has the row count that it had; which rows share it does not matter.
    rows = {unit.start + unit.length: len(unit.rows) for unit in sequence.trace}
    tokens = [int(program.model.logits(replay.hidden[f].repeat(rows[f], 1))[0].argmax()) for f in drawn]
    assert tokens and tokens == [sequence.ledger[f] for f in drawn]


def tap(program: Program, handle: SequenceHandle, frontier: int, kind=SourceKind.LONG_ANCHOR) -> None:
    result = program.transition(Target(program.capture_demand(handle, frontier, on_device=True)))
    assert result.grant is not None
    program.arm(handle, Frontier(frontier), kind, result.grant)


def conversation(program: Program, frontiers: tuple[int, ...]) -> tuple[int, tuple[Checkpoint, ...]]:
    """A finished one with checkpoints at frontiers; returns its owner and all checkpoints."""
    handle = begin(program, PROMPT)
    for frontier in frontiers:
        tap(program, handle, frontier)
    run(program, [handle], 3, chunk=90)
    prove(program, handle)
    program.end(handle)
    owner = program.finish(handle)
    assert owner is not None
    return owner, program.world.owners[owner].checkpoints


def demote(program: Program, owner: int, step: Step, which: int = 0) -> None:
    outcome = identity(program.world.owners[owner], program.world.replicas)
    chosen = [s.outcome for s in successors(outcome) if s.step is step]
    result = program.transition(Target(None, {owner: chosen[min(which, len(chosen) - 1)]}))
    assert result.ending.value == "committed"
    program.audit()


PLACEMENTS = {
    "device": (),
    "host image": ((Step.DEMOTE_IMAGE, 0), (Step.DEMOTE_IMAGE, 0), (Step.DEMOTE_IMAGE, 0)),
    "host pages": ((Step.DEMOTE_PAGES, 0),),
    "mixed pages": ((Step.DEMOTE_PAGES, 1),),
    "host": ((Step.DEMOTE_PAGES, 0), (Step.DEMOTE_IMAGE, 0), (Step.DEMOTE_IMAGE, 0), (Step.DEMOTE_IMAGE, 0)),
}


@pytest.mark.req("ID-4", "ST-2", "KV-5", "CAP-8", "CKP-5", "CKP-6", "DEF-2", "DEF-5")
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("mode", list(SourceMode))
@pytest.mark.parametrize("at", [0, 1, 2], ids=["unaligned tap", "aligned tap", "endpoint"])
def test_every_source_and_placement(program: Program, placement: str, mode: SourceMode, at: int) -> None:
    owner, checkpoints = conversation(program, (77, 128))
    for step, which in PLACEMENTS[placement]:
        demote(program, owner, step, which)
    chosen = checkpoints[at]
    tokens = [int(t) for t in memoryview(program.record(chosen.ref).identity.tokens).cast("I")] + [5, 6, 7]
    source = program.source(owner, chosen, mode)
    handle = begin(program, tokens, source)
    program.audit()
    if mode is SourceMode.CONSUME:
        lane = program.owner_of(handle).lane
        moved = at == 2
        assert (lane.image == chosen.image) == moved, "an endpoint moves, a checkpoint that stays forks"
    run(program, [handle], 32)
    prove(program, handle)
    program.audit()


@pytest.mark.req("ID-4", "PRO-2")
@pytest.mark.parametrize("tail", [1, 2, 31, 62, 63, 64, 65])
def test_tails_after_the_frontier(program: Program, tail: int) -> None:
    for frontier in (64, 100):
        owner, checkpoints = conversation(program, (frontier,))
        tokens = PROMPT[:frontier] + [9] * tail
        handle = begin(program, tokens, program.source(owner, checkpoints[0], SourceMode.RETAIN))
        run(program, [handle], 32)
        prove(program, handle)
        program.discard(handle)
        program.release(owner)


def test_batched_rounds_replay_with_their_row_count(program: Program) -> None:
    owner, checkpoints = conversation(program, (128,))
    source = program.source(owner, checkpoints[0], SourceMode.RETAIN)
    handles = [begin(program, [*PROMPT[:128], i, i + 1], source) for i in range(3)]
    run(program, handles, 20)
    for handle in handles:
        prove(program, handle)
    assert {len(unit.rows) for unit in program.sequence(handles[0]).trace} == {1, 3}


@pytest.mark.req("CKP-2", "CKP-4")
def test_forked_in_the_middle_and_back(program: Program) -> None:
    """Conversation A, B forked from A's middle, then A again: both equal their cold replays."""
    owner, checkpoints = conversation(program, (100,))
    b = begin(program, PROMPT[:100] + [3] * 40, program.source(owner, checkpoints[0], SourceMode.RETAIN))
    run(program, [b], 20)
    prove(program, b)
    end = checkpoints[-1]
    again = [int(t) for t in memoryview(program.record(end.ref).identity.tokens).cast("I")] + [8, 8]
    a = begin(program, again, program.source(owner, end, SourceMode.CONSUME))
    run(program, [a], 20)
    for handle in (a, b):
        prove(program, handle)
    program.audit()


@pytest.mark.req("DEF-5")
def test_the_whole_prompt_again_prefills_nothing(program: Program) -> None:
    first = begin(program, PROMPT)
    tap(program, first, len(PROMPT))
    run(program, [first], 5)
    reply = program.sequence(first).ledger[len(PROMPT) :]
    program.end(first)
    owner = program.finish(first)
    checkpoint = program.world.owners[owner].checkpoints[0]
    second = begin(program, PROMPT, program.source(owner, checkpoint, SourceMode.RETAIN))
    assert program.unexecuted(second) == 0
    pending = program.execute([(second, 10)])
    pending.commit([second])
    assert pending.rows[0].executed == 0 and pending.rows[0].token == reply[0]
    run(program, [second], 4)
    assert program.sequence(second).ledger[len(PROMPT) :] == reply[:5]
    prove(program, second)


@pytest.mark.req("ST-2", "ST-3", "ST-4", "ACT-6")
def test_a_fork_copies_no_image_and_pins_its_source(program: Program) -> None:
    owner, checkpoints = conversation(program, (128,))
    before = program.world.allocated()
    handle = begin(program, [*PROMPT[:128], 1], program.source(owner, checkpoints[0], SourceMode.RETAIN))
    lane = program.owner_of(handle).lane
    assert lane.reads == checkpoints[0].image and lane.image != lane.reads
    assert program.world.allocated().device_images == before.device_images + 1
    program.release(owner)
    assert program.world.replicas.device_images >> checkpoints[0].image & 1, "the pin keeps it until the first commit"
    program.audit()
    run(program, [handle], 1)
    assert not program.world.replicas.device_images >> checkpoints[0].image & 1
    assert members(program.owner_of(handle).needs_images) == [lane.image]
    prove(program, handle)
    program.audit()
