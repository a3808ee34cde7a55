"""The planner on worlds small enough to see what it must answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from ninfer_core.cache import search
from ninfer_core.cache.budget import WORK_OF_A_TARGET, Budget, Stop
from ninfer_core.cache.catalog import CellId, Entry
from ninfer_core.cache.cost import CostModel, PrefillCost, TransferCost
from ninfer_core.cache.domain import Option
from ninfer_core.cache.objective import Objective
from ninfer_core.cache.retention import Retention
from ninfer_core.cache.steps import whole
from ninfer_core.contract.ids import CheckpointRef, Generation, ImageId, LogicalPage, OwnerId
from ninfer_core.contract.plans import Readiness
from ninfer_core.contract.results import CheckpointSummary
from ninfer_core.contract.statistics import Placement, SourceKind
from ninfer_core.program.ledger.arena import Arena
from ninfer_core.program.ledger.geometry import Geometry, Vector
from ninfer_core.program.ledger.objects import Checkpoint, Lane, Owner, Replicas, Role
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.target import Activation, Capture, Source, SourceMode
from tests.support.closure import problems
from tests.support.naive_value import Naive
from tests.support.portfolios import Problem, WorldProgram

FREE = TransferCost(0.0, 0.0, 1.0)
COST = CostModel(FREE, FREE, FREE, PrefillCost(0.0, 1e9, 0.0))
"""A second of computing for each token; copies are as good as free."""


@dataclass
class Shelf:
    """One owner with one checkpoint of so many pages, the last of them without `short` tokens: `alias` shares the pages
    of an earlier owner."""

    pages: int = 1
    retention: Retention = Retention.DISPOSABLE
    shared: bool = False
    last_hit: int = 0
    hits: int = 0
    alias: int | None = None
    short: int = 0


def build(shelves: Sequence[Shelf], capacity: Vector, options: Sequence[Option], **facts: object) -> Problem:
    """Everything lies on Device; owner 99 runs and holds one page and one image."""
    geometry = Geometry.of(capacity, (100,), (1,), 1000)
    owners, entries, texts, page = {}, {}, {}, 0
    for number, shelf in enumerate(shelves):
        owner, ref = OwnerId(number), CheckpointRef(number + 1)
        if shelf.alias is None:
            held = tuple(LogicalPage(page + at) for at in range(shelf.pages))
            image, page = ImageId(number), page + shelf.pages
            text = tuple(number * 10_000 + at for at in range(shelf.pages * 64 - shelf.short))
        else:
            twin = owners[OwnerId(shelf.alias)].checkpoints[0]
            held, image, text = twin.pages[0], twin.image, texts[twin.ref]
        texts[ref] = text
        checkpoint = Checkpoint(ref, SourceKind.SESSION_ENDPOINT, len(text), image, (held,))
        role = Role.SHARED if shelf.shared else Role.PRIVATE
        owners[owner] = Owner(owner, role, (checkpoint,))
        summary = CheckpointSummary(ref, checkpoint.kind, checkpoint.frontier, Placement.DEVICE)
        entry = Entry(owner, CellId(number), Generation(1), (summary,), 0, shelf.last_hit, shelf.retention)
        entry.hits, entry.hit_refs = shelf.hits, {ref: shelf.hits} if shelf.hits else {}
        entries[owner] = entry
    lane = Lane(ImageId(len(shelves)), None, ((LogicalPage(page),),), 1 << page, (0,))
    owners[OwnerId(99)] = Owner(OwnerId(99), Role.ACTIVE, (), lane)
    images = (1 << len(shelves) + 1) - 1
    for number, shelf in enumerate(shelves):
        images &= ~(1 << number) if shelf.alias is not None else -1
    arena = Arena.empty(capacity.host_bytes)
    have = Replicas(images, 0, (1 << page + 1) - 1, 0)
    world = World(geometry, owners, have, (), arena, geometry.zero(), World.empty(geometry).revision)
    assert not world.used().excess(capacity)
    keys = {ref: b"%d" % (shelves[ref - 1].alias or ref - 1) for ref in texts}
    shared = frozenset(OwnerId(n) for n, s in enumerate(shelves) if s.shared)
    made = Problem(world, texts, keys, entries, shared, frozenset(), [], COST, list(options), free_cell=True)
    return replace(made, **facts)  # type: ignore[arg-type]


def root(pages: int, *, needs_cell: bool = False) -> Option:
    return Option(9, Activation(None, (pages,)), 10, needs_cell=needs_cell)


def plenty() -> Budget:
    return Budget(1000, 10**12)


def evicted(choice: object) -> set[int]:
    return {int(o) for o, outcome in choice.node.target.outcomes.items() if outcome.evicted}  # type: ignore[attr-defined]


# --- when there is no pressure ------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-2", "PLAN-4", "PLAN-10")
def test_identities_that_fit_are_sealed_at_once() -> None:
    problem = build([Shelf(2), Shelf(2)], Vector(5, 0, (9,), 0), [root(4)])
    planner = problem.planner()
    planner.planner._domain._read = lambda: pytest.fail("nobody looks at victims")
    choice = planner.materialize(problem.options, plenty())
    assert (choice.stop, choice.targets, choice.readiness) == (Stop.NO_PRESSURE, 1, Readiness.READY)


# --- what gives way -----------------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-6", "VAL-6", "TGT-1")
def test_the_least_loss_that_fits_gives_way_and_nothing_more() -> None:
    """Four pages are missing: the two cheap owners together, not the dear one alone, nor all three."""
    shelves = [Shelf(2), Shelf(4, Retention.LIVE_SESSION), Shelf(2), Shelf(2, Retention.RECENT_PRIVATE)]
    problem = build(shelves, Vector(9, 0, (11,), 0), [root(4)])
    choice = problem.planner().materialize(problem.options, plenty())
    assert evicted(choice) == {0, 2} and choice.readiness is Readiness.NEEDS_TRANSFER
    assert choice.node is not None and choice.node.value == (10 + 2 * 128) * 1e9


@pytest.mark.req("TGT-5")
def test_two_owners_that_share_everything_go_together() -> None:
    shelves = [Shelf(3), Shelf(alias=0, shared=True), Shelf(3, Retention.LIVE_SESSION)]
    problem = build(shelves, Vector(9, 0, (7,), 0), [root(3)])
    assert evicted(problem.planner().materialize(problem.options, plenty())) == {0, 1}


@pytest.mark.req("TGT-2", "PLAN-14")
def test_protected_owners_and_the_source_are_no_victims() -> None:
    shelves = [Shelf(2), Shelf(2), Shelf(2, Retention.LIVE_SESSION)]
    problem = build(shelves, Vector(9, 0, (7,), 0), [root(2)], protected=frozenset({OwnerId(0)}))
    source = Source(OwnerId(1), problem.world.owners[OwnerId(1)].checkpoints[0], SourceMode.RETAIN)
    options = [Option(0, Activation(source, (4,)), 256, OwnerId(1), reused=128), root(4)]
    choice = problem.planner().materialize(options, plenty())
    assert (choice.node is not None and choice.node.option.ordinal == 9) or evicted(choice) == {2}
    assert 0 not in evicted(choice)


@pytest.mark.req("PLAN-14", "CAP-3")
def test_room_without_a_publication_cell_is_not_enough() -> None:
    shelves = [Shelf(1, Retention.LIVE_SESSION), Shelf(1, shared=True), Shelf(1, Retention.RECENT_PRIVATE)]
    problem = build(shelves, Vector(9, 0, (20,), 0), [root(4, needs_cell=True)], free_cell=False)
    choice = problem.planner().materialize(problem.options, plenty())
    assert evicted(choice) == {2}, "the cheapest private owner: a shared one frees no private cell"


# --- the switch for recency ---------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-5")
def test_with_recency_eviction_only_the_least_recent_owners_are_evicted() -> None:
    shelves = [Shelf(2, Retention.LIVE_SESSION, last_hit=1), Shelf(2, last_hit=2), Shelf(2, last_hit=3)]
    problem = build(shelves, Vector(9, 0, (7,), 0), [root(2)])
    ranking = [OwnerId(0), OwnerId(1), OwnerId(2)]
    assert evicted(problem.planner().materialize(problem.options, plenty())) != {0}, "value decides without it"
    assert evicted(problem.planner().materialize(problem.options, plenty(), ranking)) == {0}
    with_host = build(shelves, Vector(9, 4, (7,), 400), [root(2)])
    choice = with_host.planner().materialize(with_host.options, plenty(), ranking)
    assert not evicted(choice), "rung 0: Host carries what has to leave Device"
    fitting = build(shelves, Vector(9, 0, (20,), 0), [root(2)])
    assert fitting.planner().materialize(fitting.options, plenty(), ranking).stop is Stop.NO_PRESSURE


# --- ties ---------------------------------------------------------------------------------------------------------
NOTHING_COSTS = CostModel(*[TransferCost(0.0, 0.0, 0.0)] * 3, PrefillCost(0.0, 0.0, 0.0))


@pytest.mark.req("PLAN-9")
@pytest.mark.parametrize(
    ("shelves", "missing", "gives_way"),
    [
        ([Shelf(2, hits=1, last_hit=9), Shelf(2), Shelf(2, hits=1)], 2, {1}),
        ([Shelf(2, hits=1, last_hit=9), Shelf(2, hits=1, last_hit=4)], 2, {1}),
        ([Shelf(2, hits=1, last_hit=4), Shelf(2, hits=1, last_hit=9)], 2, {0}),
        ([Shelf(1, hits=1), Shelf(2, last_hit=9), Shelf(2, hits=1)], 3, {0, 1}),
        ([Shelf(1), Shelf(1), Shelf(2)], 2, {2}),
    ],
    ids=["never hit", "least recent", "whatever the order", "as few as possible", "one rather than two"],
)
def test_at_equal_j_observed_hits_are_touched_least_and_the_most_recent_ones_kept(
    shelves: list[Shelf], missing: int, gives_way: set[int]
) -> None:
    """What gives way loses as much for each page, whoever it is."""
    pages = sum(shelf.pages for shelf in shelves)
    problem = build(shelves, Vector(9, 0, (pages + 1,), 0), [root(missing)])
    assert evicted(problem.planner().materialize(problem.options, Budget(None, None))) == gives_way


@pytest.mark.req("PLAN-9")
def test_at_equal_j_nothing_is_deleted_that_can_be_kept_and_as_few_bytes_move_as_possible() -> None:
    problem = build([Shelf(3), Shelf(2), Shelf(4)], Vector(9, 9, (10,), 900), [root(2)], cost=NOTHING_COSTS)
    choice = problem.planner().materialize(problem.options, Budget(None, None))
    assert choice.node is not None and not evicted(choice)
    work = WorldProgram(problem.world).immediate(choice.node.target, choice.node.projection, 10)
    assert (work.to_host.operations, work.to_host.bytes) == (1, 200)


@pytest.mark.req("PLAN-9")
def test_at_equal_j_the_least_is_computed_then_the_session_s_own_is_taken_then_the_first() -> None:
    def option(ordinal: int, owner: int, reused: int, bound: bool = False) -> Option:
        checkpoint = problem.world.owners[OwnerId(owner)].checkpoints[0]
        source = Source(OwnerId(owner), checkpoint, SourceMode.RETAIN)
        return Option(ordinal, Activation(source, (4,)), 256, OwnerId(owner), reused=reused, bound=bound)

    def chosen(*options: Option) -> int:
        everything = Option(9, Activation(None, (4,)), 256)
        choice = problem.planner().materialize([*options, everything], plenty())
        assert choice.node is not None
        return choice.node.option.ordinal

    problem = build([Shelf(2), Shelf(2), Shelf(1)], Vector(9, 0, (20,), 0), [], cost=NOTHING_COSTS)
    assert chosen(option(0, 2, 64), option(1, 0, 128)) == 1, "64 tokens less to compute"
    assert chosen(option(0, 0, 128), option(1, 1, 128, bound=True)) == 1, "as much, and the session is bound to it"
    assert chosen(option(1, 1, 128), option(0, 0, 128)) == 0, "nothing else tells"


# --- guidance -----------------------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-1", "INV-13", "PLAN-6")
def test_nonsense_predictions_change_the_order_and_never_what_is_adoptable(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)

    def nonsense(self: Objective, vertex: object, sole: object) -> float:
        return rng.uniform(-1e12, 1e12)

    stream = problems(700, 60)
    for _ in range(25):
        _, problem, naive, _ = next(stream)
        expected = problem.planner().materialize(problem.options, plenty())
        with monkeypatch.context() as patched:
            patched.setattr(Objective, "predict", nonsense)
            choice = problem.planner().materialize(problem.options, plenty())
        assert (choice.node is None) == (expected.node is None)
        if choice.node is not None:
            judged = naive.judged(choice.node.option, dict(choice.node.target.outcomes))
            assert judged is not None and judged.value == pytest.approx(choice.node.value)


# --- captures -----------------------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-4", "VAL-7", "INV-16")
@pytest.mark.parametrize(("gain", "kept"), [(63e9, True), (64e9, True), (65e9, False)])
def test_a_capture_starts_from_skip_and_needs_a_strictly_positive_gain(gain: float, kept: bool) -> None:
    """Its room costs a disposable owner of 64 tokens."""
    capture = Option(0, Capture(OwnerId(99), True, False, (1,)), gain=gain)
    problem = build([Shelf(1), Shelf(1, Retention.LIVE_SESSION)], Vector(3, 0, (3,), 0), [capture])
    choice = problem.planner().capture(capture, plenty())
    assert (choice.node is None) == kept
    if choice.node is not None:
        assert evicted(choice) == {0} and choice.node.value == -1e9


@pytest.mark.req("DEF-12", "VAL-7")
def test_what_a_capture_copies_delays_every_request_that_it_blocks() -> None:
    """Demoting the owner copies 1,100 bytes: 1,100 ns for each of the blocked requests; restoring costs it as much."""
    dear = replace(COST, to_host=TransferCost(0.0, 0.0, 1.0), to_device=TransferCost(0.0, 0.0, 0.0))
    for blocked, taken in ((1, True), (4, False)):
        capture = Option(0, Capture(OwnerId(99), True, False, (1,)), gain=3_000.0, blocked=blocked)
        problem = build([Shelf(1)], Vector(2, 1, (2,), 100), [capture], cost=dear)
        choice = problem.planner().capture(capture, plenty())
        assert (choice.node is not None) == taken


@pytest.mark.req("VAL-7", "PLAN-4", "PLAN-7")
def test_captures_against_the_complete_closure() -> None:
    found = 0
    for seed, problem, naive, ways in problems(0, 120, capture=True):
        option = problem.options[0]
        every = [j for outcomes in naive.closure(option, ways) if (j := naive.judged(option, outcomes)) is not None]
        best = min((judged.value for judged in every), default=0.0)
        choice = problem.planner().capture(option, Budget(None, None))
        if best < -1e-6:
            assert choice.node is not None and choice.node.value == pytest.approx(best), seed
        else:
            assert choice.node is None, seed
        found += choice.node is not None
        if seed > 160:
            break
    assert found > 5


@pytest.mark.req("PLAN-5", "PLAN-13", "CAN-8")
@pytest.mark.parametrize("targets", [0, 1000])
def test_a_rung_takes_the_source_in_the_mode_that_can_8_gives_it(targets: int) -> None:
    """The branch does not hold beside its conversation: it is consumed, and the oldest other owner is enough."""
    shelves = [Shelf(2, last_hit=1), Shelf(2, last_hit=2), Shelf(4, last_hit=3)]
    problem = build(shelves, Vector(9, 0, (9,), 0), [])
    (deep,) = problem.world.owners[OwnerId(2)].checkpoints
    shallow = Checkpoint(CheckpointRef(50), SourceKind.TURN_CLOSURE, 64, ImageId(8), ((deep.pages[0][0],),))
    owner = Owner(OwnerId(2), Role.PRIVATE, (shallow, deep))
    have = problem.world.replicas | Replicas(device_images=1 << 8)
    world = replace(problem.world, owners={**problem.world.owners, OwnerId(2): owner}, replicas=have)
    retained, consumed = (
        Source(owner.id, shallow, SourceMode.RETAIN),
        Source(owner.id, shallow, SourceMode.CONSUME, (shallow,)),
    )
    fallback = Option(0, Activation(consumed, (6,)), 70, owner.id, base_dead=frozenset({deep.ref}), reused=64)
    option = Option(0, Activation(retained, (6,)), 70, owner.id, reused=64, fallback=fallback)
    entry = problem.entries[owner.id]
    entry.checkpoints = (CheckpointSummary(shallow.ref, shallow.kind, 64, Placement.DEVICE), *entry.checkpoints)
    texts = {**problem.texts, shallow.ref: problem.texts[deep.ref][:64]}
    keys = {**problem.keys, shallow.ref: b"shallow"}
    problem = replace(problem, world=world, texts=texts, keys=keys, options=[option, root(6)])
    ranking = [OwnerId(number) for number in range(3)]
    choice = problem.planner().materialize(problem.options, Budget(targets, 10**12), ranking)
    assert choice.node is not None and choice.node.option is fallback
    assert evicted(choice) == {OwnerId(0)}


@pytest.mark.req("PLAN-5")
def test_a_rung_demotes_what_there_is_a_host_tier_for() -> None:
    """Host has room for keys and values, for no image: pages go there, and nobody is evicted."""
    problem = build([Shelf(2, last_hit=at) for at in range(3)], Vector(9, 0, (7,), 800), [root(2)])
    choice = problem.planner().materialize(problem.options, Budget(0, 0), [OwnerId(at) for at in range(3)])
    assert choice.node is not None and choice.node.adoptable and not evicted(choice)


# --- budgets ------------------------------------------------------------------------------------------------------
@pytest.mark.req("PLAN-8")
def test_the_window_is_short_at_first_and_grows_with_the_gain_in_sight() -> None:
    now = [0]
    budget = Budget(10, 4_000, clock=lambda: now[0])
    now[0] = 900
    assert budget.stop(-1.0) is None, "no gain takes nothing of the first window"
    now[0] = 1_100
    assert budget.stop(10.0) is Stop.TIME_BUDGET
    assert budget.stop(400.0) is None, "a quarter of what it may save comes on top"
    now[0] = 1_101
    assert budget.stop(400.0) is Stop.TIME_BUDGET
    assert budget.stop(1e9) is None, "what it may save is worth the whole window"
    budget.spent()
    now[0] = 3_500
    assert budget.stop(1e9) is Stop.TIME_BUDGET, "the next operation is predicted not to fit"


@pytest.mark.req("PLAN-8", "PLAN-10")
def test_targets_work_and_time_are_bounded_independently_and_shared_with_runnable_requests() -> None:
    budget = Budget(1, 10**12)
    budget.spent()
    assert budget.stop(1e18) is Stop.TARGET_BUDGET
    work = Budget(3, 10**12)
    work.spent(3 * WORK_OF_A_TARGET)
    assert work.stop(1e18) is Stop.WORK_BUDGET, "one target changed as many owners as three may"
    now = [0]
    shared = Budget(10, 4_000, runnable=3, clock=lambda: now[0])
    now[0] = 1_001
    assert shared.stop(1e9) is Stop.TIME_BUDGET, "a quarter each"


@pytest.mark.req("PLAN-7", "PLAN-10")
def test_every_reason_to_stop_leaves_a_verified_incumbent(monkeypatch: pytest.MonkeyPatch) -> None:
    shelves = [Shelf(2, Retention.RECENT_PRIVATE) for _ in range(4)]
    problem = build(shelves, Vector(9, 2, (9,), 300), [root(4)])
    seen = set()
    for budget in (Budget(0, 10**12), Budget(100, 0), plenty()):
        choice = problem.planner().materialize(problem.options, budget)
        assert choice.node is not None and choice.node.adoptable
        seen.add(choice.stop)
    assert {Stop.TARGET_BUDGET, Stop.TIME_BUDGET} < seen
    assert problem.planner().materialize(problem.options, Budget(None, None)).stop is Stop.QUEUE_EXHAUSTED
    many = build([Shelf(1) for _ in range(40)], Vector(50, 0, (41,), 0), [root(38)])
    planner = many.planner().planner
    steps = planner._search
    stop = whole(planner._constructions.dive(*steps.identities(many.options[0]), Budget(10, 10**12)))
    assert stop is Stop.WORK_BUDGET, "ten targets of 38 owners are more work than ten may be"
    assert steps.best is not None and steps.best.adoptable and len(steps.best.chosen) == 38
    monkeypatch.setattr(search, "MOST_NODES", 1)
    worthless = build([Shelf(2, shared=True), Shelf(4)], Vector(9, 0, (7,), 0), [root(6)])
    assert worthless.planner().materialize(worthless.options, plenty()).node is not None


def test_the_naive_side_knows_the_same_worlds() -> None:
    problem = build([Shelf(2), Shelf(2)], Vector(5, 0, (5,), 0), [root(2)])
    naive = Naive(problem)
    ways = {owner: naive.reachable(owner) for owner in problem.eligible}
    assert naive.size(ways) == 4, "kept or evicted, for each of two"
