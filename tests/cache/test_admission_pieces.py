"""An admission, and a pass's captures, in pieces: the same comes of it as at once, and nothing before its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ninfer_core.cache.admission import Admission, Admitted, Ask, Blocked, Failed, Refused, Transferring, Undecided
from ninfer_core.cache.budget import Stop
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import PAGE_SIZE, Frontier, OwnerId
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.results import Ending
from ninfer_core.contract.statistics import Capture, SourceOperation
from ninfer_core.program.audit import audit
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.target import Target
from ninfer_core.program.transactions.running import RunningTransaction
from tests.support.managed import PAGE_BYTES, Managed

LIMITS = CacheLimits(private_cells=8, shared_cells=2, long_anchors=2, automatic_anchors=0, planning_ns=10**12)
PAGES = 40
MOST_PIECES = 2_000
"""No scene here takes a tenth of them: one that comes to no end is an error."""


class Clock:
    """A microsecond passes at every look, and what a test lets pass."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1_000
        return self.now


class Scene:
    """A full cache of five conversations over two tiers: whoever comes needs room.

    Attributes:
        targets: what was sealed since the scene was set.
        transactions: what was started since then.
    """

    def __init__(self, device_images: int = 6, host_images: int = 4, planning_ns: int = LIMITS.planning_ns) -> None:
        limits, self.clock = replace(LIMITS, planning_ns=planning_ns), Clock()
        self.managed = Managed(Vector(device_images, host_images, (PAGES,), 16 * PAGE_BYTES), limits)
        self.program = self.managed.program
        self.manager = self.managed.manager = ResourceManager(self.program, limits, CostModel(), self.clock)
        self.targets: list[Target] = []
        self.transactions: list[RunningTransaction] = []
        for number in range(5):
            self.managed.run(talk(number))
        seal, start = self.program.seal, self.program.start

        def sealed(target: Target, *rest: Any) -> Any:
            self.targets.append(target)
            return seal(target, *rest)

        def started(*arguments: Any) -> Any:
            begun = start(*arguments)
            if isinstance(begun, RunningTransaction):
                self.transactions.append(begun)
            return begun

        self.program.seal, self.program.start = sealed, started  # type: ignore[method-assign]

    def next_turn(self) -> Ask:
        """Of the third conversation: 25 pages more, with captures at two points on its way."""
        tokens = [*talk(2), 1, 2, *range(50_000, 50_000 + 25 * PAGE_SIZE)]
        intent = CacheIntent(markers=(Frontier(20 * PAGE_SIZE),))
        return self.managed.ask(tokens, cuts=[10 * PAGE_SIZE, 30 * PAGE_SIZE], intent=intent)

    def state(self) -> tuple[object, ...]:
        """All that an undecided admission must leave alone."""
        books, program = self.manager.books, self.program
        entries = tuple((entry.owner, entry.cell, entry.refs) for entry in books.entries())
        cells = books.private.free_cells, books.shared.free_cells
        table, used = self.manager.table(), program.world.used()
        return program.revision, used, table, entries, cells, books.claims, books.demand.epoch, len(self.targets)

    def at_rest(self) -> None:
        """Nothing is claimed, nothing is open, and a request that needs every page there is can be served."""
        assert not self.manager.books.claims and self.manager.at_rest
        assert all(transaction.result is not None for transaction in self.transactions)
        self.manager.audit()
        everything = self.managed.ask(range(90_000, 90_000 + PAGES * PAGE_SIZE - 1))
        admission = self.managed.admit(everything)
        assert isinstance(admission, Admitted)
        self.managed.complete(everything, admission)
        self.manager.audit()


def talk(number: int) -> range:
    return range(1_000 * (number + 1), 1_000 * (number + 1) + PAGE_SIZE * (4 + number))


@dataclass
class Decided:
    """
    Attributes:
        undecided: pieces after which nothing was decided.
    """

    admission: Admission
    undecided: int = 0


def decide(
    scene: Scene, ask: Ask, most_ns: int | None, between: Callable[[int], None] = lambda undecided: None
) -> Decided:
    """Drive one admission to its end. `between` is called after every piece that left it undecided."""
    found = Decided(scene.manager.admit(ask, most_ns=most_ns))
    for _ in range(MOST_PIECES):
        if isinstance(found.admission, Undecided):
            found.undecided += 1
            between(found.undecided)
        elif not isinstance(found.admission, Transferring):
            return found
        found.admission = scene.manager.advance(most_ns)
    raise AssertionError("the admission comes to no end")


# --- admissions --------------------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-7", "TXN-3")
@pytest.mark.parametrize("at", [1, 4, 9])
def test_at_another_revision_planning_begins_anew(at: int) -> None:
    """The worker lets nothing change meanwhile; whoever does gets a plan of the present."""
    scene = Scene()

    def release(undecided: int) -> None:
        if undecided == at:
            released.append(next(iter(scene.manager.books.private)).owner)
            scene.manager.books.release(released[0])

    released: list[OwnerId] = []
    found = decide(scene, scene.next_turn(), 1, release)
    assert isinstance(found.admission, Admitted) and released
    assert released[0] not in scene.targets[-1].outcomes, "what is gone gives nothing"
    scene.manager.audit()


@pytest.mark.req("PLAN-7", "PLAN-8")
def test_an_admission_in_pieces_ends_where_one_at_once_ends() -> None:
    scenes = Scene(), Scene()
    at_once, pieces = (
        decide(scene, scene.next_turn(), most_ns) for scene, most_ns in zip(scenes, (None, 1), strict=True)
    )
    assert at_once.undecided == 0 and pieces.undecided > 10
    one, other = at_once.admission, pieces.admission
    assert isinstance(one, Admitted) and isinstance(other, Admitted)
    assert one.reuse == other.reuse
    assert (one.reuse.frontier, one.reuse.operation) == (6 * PAGE_SIZE, SourceOperation.MOVE)
    assert (one.planning.stop, one.planning.targets) == (other.planning.stop, other.planning.targets)
    assert one.planning.targets > 5, "there was something to decide"
    assert scenes[0].targets[0].outcomes, "others had to give way"
    assert scenes[0].targets == scenes[1].targets
    candidates = [scene.manager._running[ask].candidate for scene in scenes for ask in scene.manager._running]
    assert candidates[0] == candidates[1]
    assert scenes[0].state() == scenes[1].state()
    for scene in scenes:
        scene.manager.audit()


@pytest.mark.req("PLAN-7", "PLAN-11", "INV-9")
def test_while_it_is_undecided_nothing_is_claimed_or_changed_and_nobody_else_is_admitted() -> None:
    scene = Scene()
    before, other = scene.state(), scene.managed.ask([1, 2, 3])

    def unchanged(_: int) -> None:
        scene.manager.audit()
        assert scene.state() == before and not scene.manager.books.claims
        assert scene.manager._open is None and not scene.manager._running
        assert isinstance(scene.manager.admit(other, most_ns=1), Blocked)

    assert decide(scene, scene.next_turn(), 1, unchanged).undecided > 10
    assert scene.state() != before


@pytest.mark.req("PLAN-8")
def test_a_piece_takes_the_time_it_is_given_and_no_other_admission_takes_it_all() -> None:
    """On this clock every look takes a microsecond: the more a piece may take, the fewer there are."""
    pieces = [decide(scene := Scene(), scene.next_turn(), most_ns).undecided for most_ns in (1, 50_000, 10**12)]
    assert pieces[0] > pieces[1] > pieces[2] == 0


@pytest.mark.req("PLAN-8", "STAT-1")
def test_what_runs_between_two_pieces_is_no_planning_time() -> None:
    hours = 3_600 * 10**9
    times = []
    for away in (0, hours):
        scene = Scene()

        def pause(_: int, clock: Clock = scene.clock, away: int = away) -> None:
            clock.now += away

        found = decide(scene, scene.next_turn(), 1, pause)
        assert isinstance(found.admission, Admitted) and found.undecided > 10
        times.append(found.admission.planning)
    assert times[0] == times[1]
    assert 0 < times[0].ms < 1_000


@pytest.mark.req("PLAN-8")
def test_pauses_take_nothing_of_the_boundarys_budget() -> None:
    """Its window is spent by its own looks only, so that as much is looked at with pauses as without."""
    found = []
    for away in (0, 10**12):
        scene = Scene(planning_ns=400_000)

        def pause(_: int, clock: Clock = scene.clock, away: int = away) -> None:
            clock.now += away

        admission = decide(scene, scene.next_turn(), 1, pause).admission
        assert isinstance(admission, Admitted)
        found.append((admission.planning.stop, admission.planning.targets))
    whole = decide(scene := Scene(), scene.next_turn(), 1).admission
    assert isinstance(whole, Admitted)
    assert found[0] == found[1]
    assert found[0][0] == Stop.TIME_BUDGET.value and found[0][1] < whole.planning.targets, "its time was scarce"


@pytest.mark.req("TXN-10", "INV-9")
def test_cancelled_at_any_piece_of_its_planning_it_has_changed_nothing() -> None:
    whole = decide(scene := Scene(), scene.next_turn(), 1).undecided
    for at in (1, 2, whole // 2, whole):
        scene = Scene()
        before, ask = scene.state(), scene.next_turn()

        def cancel(undecided: int, at: int = at, scene: Scene = scene, ask: Ask = ask) -> None:
            if undecided == at:
                scene.manager.cancel(ask.request)

        found = decide(scene, ask, 1, cancel)
        assert isinstance(found.admission, Failed) and found.undecided == at, "the next piece is its end"
        assert scene.state() == before and not scene.transactions
        scene.manager.audit()
        scene.manager.forget(ask.request)
        again = decide(scene, scene.next_turn(), 1).admission
        assert isinstance(again, Admitted) and again.reuse.frontier == 6 * PAGE_SIZE
        scene.manager.audit()


def test_only_its_own_cancel_ends_it() -> None:
    scene = Scene()
    ask, other = scene.next_turn(), scene.managed.ask([1, 2, 3])
    found = decide(scene, ask, 1, lambda _: scene.manager.cancel(other.request))
    assert isinstance(found.admission, Admitted)


@pytest.mark.req("PLAN-11")
def test_after_pieces_it_may_turn_out_blocked_for_now_or_refused_for_ever() -> None:
    scene = Scene()
    running = scene.managed.ask(range(95_000, 95_000 + 25 * PAGE_SIZE))
    active = scene.managed.admit(running)
    assert isinstance(active, Admitted)
    before = scene.state()
    for ask, outcome in (
        (scene.next_turn(), Blocked),
        (scene.managed.ask(range(PAGES * PAGE_SIZE + 1)), Refused),
    ):
        found = decide(scene, ask, 1)
        assert isinstance(found.admission, outcome)
        assert found.undecided >= (outcome is Blocked), "what can never fit is told at once"
        assert scene.state() == before
        scene.manager.audit()
        same = scene.manager.admit(ask)
        assert same == found.admission, "decided at once it comes to the same"
        scene.manager.forget(ask.request)
    scene.managed.complete(running, active)
    scene.at_rest()


@pytest.mark.req("TXN-4", "INV-9")
@pytest.mark.parametrize("place", ["seal", "start"])
def test_trouble_at_its_end_leaves_no_claim(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise MemoryError("no room")

    scene = Scene()
    before = scene.state()
    with monkeypatch.context() as patch:
        patch.setattr(scene.program, place, broken)
        with pytest.raises(MemoryError):
            decide(scene, scene.next_turn(), 1)
    assert scene.state()[:-1] == before[:-1]
    scene.at_rest()


def test_trouble_within_its_planning_leaves_the_way_free(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    before, session = scene.state(), scene.program.session
    undecided = []

    def break_later(number: int) -> None:
        undecided.append(number)
        if number == 5:
            monkeypatch.setattr("ninfer_core.cache.search.Search.assess", broken)

    def broken(*_: Any, **__: Any) -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError):
        decide(scene, scene.next_turn(), 1, break_later)
    monkeypatch.undo()
    assert scene.program.session == session and len(undecided) >= 5
    assert scene.state() == before
    scene.at_rest()


# --- captures ----------------------------------------------------------------------------------------------------
class Settling:
    """A running request that captures at two frontiers of its prompt; others have to give way for it.

    Attributes:
        pieces: those after which its captures were not settled yet.
        copying: which of them left a transition open.
        ends: where its passes ended.
    """

    def __init__(self, device_images: int = 3, host_images: int = 3) -> None:
        self.scene = Scene(device_images, host_images)
        self.ask = self.scene.next_turn()
        admission = self.scene.managed.admit(self.ask)
        assert isinstance(admission, Admitted)
        self.handle = admission.handle
        self.scene.targets.clear()
        self.scene.transactions.clear()
        self.until = len(self.ask.work.prompt)
        self.pieces = 0
        self.copying: list[int] = []
        self.ends: list[int] = []

    def settle(self, most_ns: int | None, most_pieces: int = MOST_PIECES) -> int | None:
        """So many pieces, or to the end."""
        scene, manager = self.scene, self.scene.manager
        for _ in range(most_pieces):
            end = manager.before_pass(self.ask.request, self.until, 1, most_ns=most_ns)
            if end is not None:
                assert manager.offering is None
                return end
            self.pieces += 1
            assert manager.offering == self.ask.request
            if any(transaction.result is None for transaction in scene.transactions):
                self.copying.append(self.pieces)
                audit(scene.program.physical)  # records and books follow at the transition's end
            else:
                manager.audit()
        return None

    def passes(self, most_ns: int | None) -> None:
        """To the end of its prompt."""
        program = self.scene.program
        while (frontier := program.sequence(self.handle).frontier) < self.until:
            end = self.settle(most_ns)
            assert end is not None and end > frontier
            self.ends.append(end)
            with program.execute([(self.handle, end - frontier)]) as batch:
                batch.commit([self.handle])
            self.scene.manager.after_pass(self.ask.request)

    @property
    def captures(self) -> tuple[Capture, ...]:
        return self.scene.manager.captures(self.ask.request)

    def finish(self) -> bool:
        """Whether something was kept."""
        self.scene.program.end(self.handle)
        return self.scene.manager.finish(self.ask.request)

    def discard(self) -> bool:
        self.scene.manager.discard(self.ask.request)
        return False


@pytest.mark.req("PLAN-8", "INV-17", "ACT-4")
@pytest.mark.parametrize(
    ("images", "ends", "outcomes", "degraded"),
    [
        ((3, 3), [1986], {1280: "captured", 1920: "captured"}, [2, 2]),
        ((3, 4), [1280, 1986], {1280: "captured", 1920: "captured"}, [0, 2]),
        ((2, 2), [1986], {1280: "captured", 1920: "skipped"}, [2]),
    ],
    ids=["both take others' places", "one goes to main memory at a pass's end", "one is not worth it"],
)
def test_captures_in_pieces_are_those_at_once(
    images: tuple[int, int], ends: list[int], outcomes: dict[int, str], degraded: list[int]
) -> None:
    at_once, pieces = Settling(*images), Settling(*images)
    at_once.passes(None)
    pieces.passes(1)
    assert at_once.pieces == 0 and pieces.pieces > 10 and pieces.copying
    assert at_once.captures == pieces.captures and at_once.ends == pieces.ends == ends
    assert outcomes.items() <= {c.frontier: c.outcome for c in pieces.captures}.items()
    assert at_once.scene.targets == pieces.scene.targets
    assert [len(target.outcomes) for target in pieces.scene.targets] == degraded
    for one in (at_once, pieces):
        one.finish()
        one.scene.manager.audit()
    assert at_once.scene.state() == pieces.scene.state()
    pieces.scene.at_rest()


@pytest.mark.req("PLAN-8")
def test_a_pass_that_captures_nothing_is_never_put_off_and_one_that_does_waits_for_time() -> None:
    here = Settling()
    manager, request, before = here.scene.manager, here.ask.request, here.scene.state()
    assert manager.before_pass(request, 1_000, 1, most_ns=-1) == 1_000, "both captures lie above"
    assert manager.before_pass(request, here.until, 1, most_ns=0) is None
    assert manager.offering is None and here.scene.state() == before, "nothing was begun"
    here.settle(1, most_pieces=3)
    assert manager.before_pass(request, here.until, 1, most_ns=-5) is None and manager.offering == request
    assert here.settle(1) == here.until


@pytest.mark.req("INV-9", "TXN-7", "INV-17")
def test_while_captures_are_settled_nobody_is_admitted() -> None:
    here = Settling()
    other = here.scene.managed.ask([1, 2, 3])
    while here.settle(1, most_pieces=1) is None:
        assert isinstance(here.scene.manager.admit(other), Blocked)
    assert here.copying
    here.scene.manager.audit()


@pytest.mark.req("TXN-10", "INV-9", "INV-17", "ACT-4")
@pytest.mark.parametrize("how", ["finish", "discard"])
def test_a_request_that_ends_at_any_piece_of_its_captures_leaves_nothing_open(how: str) -> None:
    whole = Settling()
    whole.settle(1)
    assert len(whole.copying) >= 8, "two transitions that copy"
    for pieces in range(1, whole.pieces + 1):
        here = Settling()
        assert here.settle(1, most_pieces=pieces) is None
        assert here.copying == [piece for piece in whole.copying if piece <= pieces]
        kept = here.finish() if how == "finish" else here.discard()
        assert kept is (how == "finish")
        if pieces in here.copying:
            result = here.scene.transactions[-1].result
            assert result is not None and result.ending is Ending.ABORTED, "nobody copies for it any more"
        here.scene.at_rest()


@pytest.mark.req("TXN-10", "INV-15")
def test_trouble_within_a_capture_ends_its_settling_and_leaves_the_way_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise MemoryError("no room")

    here = Settling()
    here.settle(1, most_pieces=1)
    monkeypatch.setattr(here.scene.program, "arm", broken)
    with pytest.raises(MemoryError):
        here.settle(1)
    monkeypatch.undo()
    assert here.scene.manager.offering is None
    here.discard()
    here.scene.at_rest()
