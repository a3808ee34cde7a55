"""The backfill proof against the truth: what it supposes is really done, then the head is admitted or not."""

from __future__ import annotations

import random

import pytest

from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.plans import RequestWork, SequenceHandle
from ninfer_core.program.planning.backfill import BackfillProof
from ninfer_core.program.planning.target import Activation, Source, SourceMode, Target
from ninfer_core.program.program import Program
from tests.program.choices import Choices
from tests.program.history import History, capacities, drive
from tests.program.test_program import begin, finished, make, run, work


class Case:
    """A random Program with some running sequences, a borrower from any candidate, a head. Equal for equal seeds."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        capacity, lanes = capacities(rng)
        self.history: History = drive(seed, rng.randint(5, 60), history=History(capacity, lanes + 1))
        self.program: Program = self.history.program
        running = list(self.history.expected)
        self.donors = [handle for handle in running if rng.random() < 0.6]
        choices = Choices([rng.randrange(998) for _ in range(20)])
        self.source, prompt = self.history._candidate(choices)
        self.borrower_work: RequestWork = self.history._work(prompt or [1], rng.randint(1, 200))
        self.borrower: Activation = self.program.activation(self.source, self.borrower_work)
        self.head_work = work([1] * rng.randint(1, 64 * capacity.pages[0]), 1)
        self.head = self.program.activation(None, self.head_work)
        idle = [owner for owner in self.history._idle() if self.source is None or owner != self.source.owner]
        self.protected: list[OwnerId] = [owner for owner in idle if rng.random() < 0.2]

    def proof(self) -> BackfillProof | None:
        return self.program.backfill_proof(self.donors, self.borrower, self.head, self.protected)

    def end_donors(self) -> None:
        for donor in self.donors:
            self.program.discard(donor)

    def release_cache(self, source: Source | None) -> None:
        for owner in self.history._idle():
            if owner not in self.protected and (source is None or owner != source.owner):
                self.program.release(owner)

    def start(self) -> bool:
        target = Target(self.borrower)
        if not self.program.assess(target).projection.feasible:
            return False
        return isinstance(self.program.materialize(target, self.borrower_work), SequenceHandle)

    def head_starts(self) -> bool:
        return self.program.assess(Target(self.head)).projection.feasible


@pytest.mark.req("ACT-5", "INV-8", "INV-12")
def test_the_proof_says_what_really_happens() -> None:
    proved = refused = passed = 0
    for seed in range(250):
        case = Case(seed)
        world = case.program.world
        proof = case.proof()
        assert case.program.world is world
        proved, refused = proved + (proof is not None), refused + (proof is None)
        # In the order of the hypothesis: donors and cache go, the borrower starts, then the head.
        case.end_donors()
        case.release_cache(case.source)
        assert (case.start() and case.head_starts()) == (proof is not None), f"seed {seed}"
        # In the order of the day: the borrower starts beside the donors and outlives them.
        if proof is None:
            continue
        day = Case(seed)
        if not day.start():
            continue
        passed += 1
        day.end_donors()
        day.release_cache(day.source)
        assert day.head_starts(), f"seed {seed}: the borrower delays the head"
        day.program.audit()
    assert min(proved, refused, passed) >= 30, (proved, refused, passed)


@pytest.mark.req("ACT-5")
def test_a_borrower_passes_only_when_the_donors_end_is_enough() -> None:
    """Ten pages. A donor holds six; the head needs eight and waits. Two pages may pass, three may not."""
    program = make(device=3, pages=10)
    donor = begin(program, [1] * 100, most_new=64 * 6 - 100)
    head = program.activation(None, work([2] * 64 * 8, 0))
    assert not program.assess(Target(head)).projection.feasible
    small, large = (program.activation(None, work([3] * 64 * pages, 0)) for pages in (2, 3))
    proof = program.backfill_proof([donor], small, head)
    assert proof is not None and proof.revision == program.revision and proof.donors == {program.sequence(donor).owner}
    assert (proof.slack.device_images, proof.slack.pages) == (1, (0,))
    assert program.backfill_proof([donor], large, head) is None
    assert program.backfill_proof([], small, head) is None, "who is no donor stays"


@pytest.mark.req("ACT-5", "DEF-1")
def test_cache_may_go_but_the_borrowers_retained_source_stays() -> None:
    program = make(device=4, pages=10)
    owner, other = finished(program, 256, taps=()), finished(program, 64, taps=())
    endpoint = program.world.owners[owner].checkpoints[-1]
    borrower_work = work([*(i % 60 for i in range(256)), 5], 20)
    head = program.activation(None, work([2] * 64 * 5, 0))
    retain, consume = (
        program.activation(program.source(owner, endpoint, mode), borrower_work)
        for mode in (SourceMode.RETAIN, SourceMode.CONSUME)
    )
    for borrower, images in ((retain, 1), (consume, 2)):
        proof = program.backfill_proof([], borrower, head)
        assert proof is not None and proof.slack.pages == (0,), "four shared pages, one of its own, five of the head"
        assert proof.slack.device_images == images, "retained, the source keeps its image"
    assert program.backfill_proof([], consume, head, protected=[other]) is None, "its page may not go"


@pytest.mark.req("ACT-5", "CAP-10")
def test_no_proof_from_a_moving_or_wrong_state() -> None:
    program = make()
    donor = begin(program, [1] * 10)
    run(program, donor)
    small = program.activation(None, work([3], 1))
    plan = program.seal(Target(small), work([3], 1))
    transaction = program.start(plan)
    assert program.backfill_proof([donor], small, small) is None, "a transition is open"
    while program.advance(transaction, plan) is None:
        pass
    program.discard(donor)
    with pytest.raises(RuntimeError, match="stale"):
        program.backfill_proof([donor], small, small)
