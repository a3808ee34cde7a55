"""Host extents: what one counts, and how its dead part comes back (context-cache DEF-8)."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import STEP_PAGES
from ninfer_core.program.planning.outcome import Outcome, Step, identity, without_checkpoint
from ninfer_core.program.planning.projection import project
from ninfer_core.program.planning.target import SourceMode, Target
from ninfer_core.program.planning.work import Copies
from ninfer_core.program.program import Program
from ninfer_core.program.transactions.running import CopyError, Phase
from tests.program.checksum import checksum
from tests.program.choices import Choices
from tests.program.driven import drive_plan
from tests.program.history import History
from tests.program.test_program import PAGE, begin, finished, make, run, step

STEPS = 800
TALK = [i % 60 for i in range(64)]


def spans(program: Program) -> list[tuple[int, int, int]]:
    """(offset, size, living pages) of every extent, in pages."""
    return [(e.offset // PAGE, e.size // PAGE, e.mask.bit_count()) for e in program.world.extents]


def demoted(program: Program, owner: OwnerId) -> Outcome:
    """All its pages on Host."""
    return step(program, owner, Step.DEMOTE_PAGES).outcomes[owner]


def without_endpoint(program: Program, owner: OwnerId) -> Outcome:
    world = program.world
    return without_checkpoint(identity(world.owners[owner], world.replicas), world.owners[owner].checkpoints[-1].ref)


def committed(program: Program, outcomes: dict[OwnerId, Outcome]) -> ResourceResult:
    result = program.transition(Target(None, outcomes))
    assert result.ending is Ending.COMMITTED, result.reason
    program.audit()
    return result


def resumes(program: Program, owner: OwnerId) -> None:
    """The model proves state and pages of the owner's first checkpoint, wherever they lie."""
    source = program.source(owner, program.checkpoints(owner)[0], SourceMode.RETAIN)
    handle = begin(program, [*TALK, 7, 8], source=source)
    run(program, handle)
    program.discard(handle)
    program.audit()


def crowded() -> tuple[Program, OwnerId, OwnerId]:
    """Five Host pages: three are taken by the first owner, of whose checkpoints the short one is left; the second owner
    has three pages on Device."""
    program = make(device=8, pages=16, host_pages=5)
    short, long = finished(program, 130, taps=(64,)), finished(program, 129, taps=())
    committed(program, {short: demoted(program, short)})
    committed(program, {short: without_endpoint(program, short)})
    return program, short, long


@pytest.mark.req("DEF-8", "CAP-4")
def test_an_extent_counts_whole_until_its_own_last_page_dies() -> None:
    program = make(device=8, pages=16, host_pages=5)
    owner = finished(program, 130, taps=(64,))
    committed(program, {owner: demoted(program, owner)})
    assert spans(program) == [(0, 3, 3)]
    resumes(program, owner)  # its first page is on Device, too, from now on
    committed(program, step(program, owner, Step.DROP_HOST_COPY).outcomes)
    assert spans(program) == [(0, 3, 2)] and program.world.used().host_bytes == 3 * PAGE
    committed(program, {owner: demoted(program, owner)})
    assert spans(program) == [(0, 3, 2), (3, 1, 1)], "the page came back, in an extent of its own"
    committed(program, {owner: without_endpoint(program, owner)})
    assert spans(program) == [(3, 1, 1)], "nothing lives in the first extent any more"
    assert program.world.used().host_bytes == PAGE
    resumes(program, owner)


@pytest.mark.req("DEF-8", "CAP-9", "TGT-3", "TXN-5", "DEF-9")
def test_a_demotion_without_a_place_shrinks_an_extent() -> None:
    program, short, long = crowded()
    assert spans(program) == [(0, 3, 1)] and program.world.used().host_bytes == 3 * PAGE, "deleting freed nothing"
    sums = {owner: checksum(program, program.checkpoints(owner)[0]) for owner in (short, long)}
    target = Target(None, {long: demoted(program, long)})
    projection = project(program.world, target)
    assert projection.feasible and len(projection.shrinks) == 1
    assert projection.peaks[0].host_bytes == 4 * PAGE, "copy before release: three bytes old, one new"
    work = program.immediate(target, projection, 0)
    assert work.on_host == Copies(program.geometry.pools[0].planes, PAGE)
    result = committed(program, dict(target.outcomes))
    assert result.transfer.bytes == 4 * PAGE and spans(program) == [(0, 3, 3), (3, 1, 1)]
    assert program.world.used().host_bytes == 4 * PAGE
    assert set(result.owners) == {long}, "whose pages moved within Host is as it was"
    assert sums == {owner: checksum(program, program.checkpoints(owner)[0]) for owner in (short, long)}
    resumes(program, short)


@pytest.mark.req("DEF-8", "TXN-7", "COST-1")
def test_a_large_extent_is_shrunk_in_steps() -> None:
    """Decode rounds run between two steps: none copies more than STEP_PAGES pages."""
    program = make(device=8, pages=96, host_pages=80)
    short, long = finished(program, 41 * 64, taps=(34 * 64,)), finished(program, 40 * 64, taps=())
    committed(program, {short: demoted(program, short)})
    committed(program, {short: without_endpoint(program, short)})
    assert spans(program) == [(0, 41, 34)]
    sums = {owner: checksum(program, program.checkpoints(owner)[0]) for owner in (short, long)}
    plan = program.seal(Target(None, {long: demoted(program, long)}))
    work = program.immediate(plan.target, plan.projection, 0)
    assert work.on_host == Copies(3 * program.geometry.pools[0].planes, 34 * PAGE)
    transaction = program.start(plan)
    assert not isinstance(transaction, ResourceResult)
    copied = [0]
    while program.advance(transaction, plan) is None:
        copied.append(transaction._shrinking.copied // PAGE)
    moved = [after - before for before, after in pairwise(copied) if after != before]
    assert moved == [STEP_PAGES, STEP_PAGES, 2]
    assert sums == {owner: checksum(program, program.checkpoints(owner)[0]) for owner in (short, long)}
    program.audit()


@pytest.mark.req("DEF-8", "CAP-7", "TGT-5")
def test_what_a_target_itself_deletes_makes_room_for_what_it_demotes() -> None:
    program = make(device=8, pages=16, host_pages=5)
    short, long = finished(program, 130, taps=(64,)), finished(program, 129, taps=())
    committed(program, {short: demoted(program, short)})
    alone = {long: demoted(program, long)}
    assert not project(program.world, Target(None, alone)).feasible, "every page of the extent lives"
    committed(program, {short: without_endpoint(program, short), **alone})
    assert spans(program) == [(0, 3, 3), (3, 1, 1)]
    resumes(program, short)


@pytest.mark.req("DEF-8", "DEF-10", "CAP-8")
@pytest.mark.parametrize("mode", list(SourceMode))
def test_a_source_is_restored_from_where_its_extent_was_shrunk_to(mode: SourceMode) -> None:
    program, short, long = crowded()
    source = program.source(short, program.checkpoints(short)[0], mode, keep=False)
    handle = begin(program, [*TALK, 7, 8], source=source, outcomes={long: demoted(program, long)})
    run(program, handle)  # the model proves state and pages
    left = [(0, 3, 3)] if mode is SourceMode.CONSUME else [(0, 3, 3), (3, 1, 1)]
    assert spans(program) == left, "consumed, the page that moved within Host goes once it has been read"
    program.audit()


@pytest.mark.req("DEF-8", "KV-6")
def test_an_extent_stays_where_it_is_while_there_is_room() -> None:
    program = make(device=8, pages=16, host_pages=6)
    short, long = finished(program, 130, taps=(64,)), finished(program, 129, taps=())
    committed(program, {short: demoted(program, short)})
    committed(program, {short: without_endpoint(program, short), long: demoted(program, long)})
    assert spans(program) == [(0, 3, 1), (3, 3, 3)], "nothing is copied for room that nobody needs"


@pytest.mark.req("DEF-8", "CAP-6", "CAP-9")
def test_no_shrink_without_a_place_for_what_lives() -> None:
    program = make(device=8, pages=16, host_pages=3)
    short, long = finished(program, 130, taps=(64,)), finished(program, 65, taps=())
    committed(program, {short: demoted(program, short)})
    committed(program, {short: without_endpoint(program, short)})
    projection = project(program.world, Target(None, {long: demoted(program, long)}))
    assert not projection.shrinks and projection.deficit.host_bytes == 2 * PAGE, "the copy comes before the release"


@pytest.mark.req("DEF-8", "TXN-6", "TXN-10", "INV-5")
@pytest.mark.parametrize("cancels", [True, False])
@pytest.mark.parametrize("after", range(7))
def test_a_shrink_that_is_broken_off_leaves_a_stable_state(after: int, cancels: bool) -> None:
    program, short, long = crowded()
    sums = {owner: checksum(program, program.checkpoints(owner)[0]) for owner in (short, long)}
    before, steps = program.world, 0

    def fault(phase: Phase) -> None:
        if not cancels and steps >= after:
            raise CopyError("injected")

    program.fault = fault
    plan = program.seal(Target(None, {long: demoted(program, long)}))
    transaction = program.start(plan)
    assert not isinstance(transaction, ResourceResult)
    while program.advance(transaction, plan) is None:
        assert not program.world.used().excess(program.world.geometry.capacity)
        assert {o: checksum(program, program.checkpoints(o)[0]) for o in sums} == sums, "valid at every step (TXN-5)"
        if cancels and steps == after:
            transaction.cancel()
        steps += 1
    program.fault, result = None, transaction.result
    assert result is not None and not program.world.held
    if result.ending is Ending.ABORTED:
        assert long in result.owners and result.owners[long].deleted == frozenset()
        assert program.revision > before.revision
        assert sum(size for _, size, _ in spans(program)) * PAGE == program.world.used().host_bytes
    program.audit()
    resumes(program, short)
    left = Target(None, {long: demoted(program, long)}) if result.ending is Ending.ABORTED else None
    if left is not None:
        assert program.transition(left).ending is Ending.COMMITTED, "what was broken off can be done again"
    assert spans(program) == [(0, 3, 3), (3, 1, 1)]


class Crowd:
    """Random owners of two checkpoints on a Host that is always too small for them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.history = History(Vector(8, 4, (30,), 9 * PAGE), lanes=1)

    def step(self) -> None:
        """One transition; sometimes it is cancelled, sometimes one of its copies fails."""
        history, program = self.history, self.history.program
        idle = history._idle()
        if len(idle) < 3:
            finished(program, self.rng.choice([200, 290]), taps=(self.rng.choice([64, 100]),))
            return
        outcomes = {owner: outcome for owner in idle if (outcome := self._degraded(owner)) is not None}
        target = Target(None, outcomes)
        if outcomes and program.assess(target).projection.feasible:
            drive_plan(history, program.seal(target), Choices([self.rng.randrange(998) for _ in range(12)]))
            program.fault = None

    def _degraded(self, owner: OwnerId) -> Outcome | None:
        """What is on Device goes to Host, what is there loses its long checkpoint, then its last one."""
        program, chance = self.history.program, self.rng.random()
        if program.world.owners[owner].needs_pages & program.world.replicas.device_pages:
            return demoted(program, owner) if chance < 0.5 else None
        return without_endpoint(program, owner) if chance < 0.15 else None


@pytest.mark.req("DEF-8", "TXN-6", "TXN-10", "CKP-4", "INV-5")
def test_extents_are_shrunk_in_random_histories_and_nothing_is_lost() -> None:
    crowd = Crowd(seed=3)
    for _ in range(STEPS):
        crowd.step()
        crowd.history.check()
    crowd.history.compare()
    counts = crowd.history.counts
    assert counts["extent shrunk"] >= 10 and counts["shrinking aborted"] >= 5, counts
