"""Relenting, on worlds small enough to see what is given up without need."""

from __future__ import annotations

import pytest

from ninfer_core.cache.budget import Budget, Stop
from ninfer_core.cache.cost import CostModel, PrefillCost, TransferCost
from ninfer_core.cache.lack import relief
from ninfer_core.cache.node import Node
from ninfer_core.cache.relenting import Relenting
from ninfer_core.cache.retention import Retention
from ninfer_core.cache.search import Search
from ninfer_core.cache.steps import whole
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import NOTHING, Replicas
from ninfer_core.program.planning.outcome import identity
from tests.cache.test_planner import FREE, Shelf, build, root
from tests.support.portfolios import Problem

DEAR, CHEAP = Retention.LIVE_SESSION, Retention.DISPOSABLE


def evicting(problem: Problem, *owners: int) -> tuple[Search, Node]:
    """A search that knows a target: these owners are evicted, and it fits."""
    search = problem.planner().planner._search
    (start,) = search.identities(problem.options[0])
    node = search.assess(start.option, {OwnerId(at): search.graph.evicted(OwnerId(at)) for at in owners})
    assert node.adoptable and not start.adoptable
    return search, node


def best(search: Search) -> dict[int, str]:
    """What becomes of whom in the best target that is known."""
    assert search.best is not None
    return {int(owner): "gone" if vertex.evicted else "part" for owner, vertex in search.best.chosen.items()}


@pytest.mark.req("PLAN-6", "VAL-6")
def test_whoever_need_not_go_stays_the_dearest_first() -> None:
    """Two pages are missing. Without the dear one either of the cheap ones still has to go."""
    problem = build([Shelf(2, DEAR), Shelf(2), Shelf(2)], Vector(9, 0, (7,), 0), [root(2)])
    search, node = evicting(problem, 0, 1, 2)
    assert whole(Relenting(search).of(node, Budget(10, None))) is None
    assert best(search) == {2: "gone"}, "of two that are worth the same the first was taken back"
    assert search.assessed == 4, "identity, the target, and it without each of the first two: then that is identity"


def crowd(dear: int, cheap: int, pages: int) -> Problem:
    """So many dear ones of four pages and cheap ones of one: every image and page is held, one by a running request. On
    Host there is room for pages only; a new request takes an image and so many pages."""
    shelves = [Shelf(4, DEAR) for _ in range(dear)] + [Shelf(1) for _ in range(cheap)]
    return build(shelves, Vector(dear + cheap + 1, 0, (4 * dear + cheap + 1,), 400 * dear), [root(pages)])


@pytest.mark.req("PLAN-6", "TGT-5")
def test_a_part_of_the_dear_one_and_a_cheap_one_make_room_together() -> None:
    """An image and two pages are missing: the cheap one has a page too few, the dear one's pages are no image."""
    search, node = evicting(crowd(1, 1, pages=2), 0)
    assert whole(Relenting(search).of(node, Budget(10, None))) is None
    assert best(search) == {0: "part", 1: "gone"}


@pytest.mark.req("PLAN-6")
def test_it_begins_again_from_what_is_better() -> None:
    """The first dear one keeps its image in the room that the second makes; then a cheap one makes room for that."""
    search, node = evicting(crowd(2, 2, pages=7), 0, 1)
    assert whole(Relenting(search).of(node, Budget(20, None))) is None
    assert sorted(best(search).values()) == ["gone", "part", "part"] and {0, 1} < set(best(search))


@pytest.mark.req("PLAN-5")
def test_nobody_makes_room_who_may_not() -> None:
    search, node = evicting(crowd(1, 1, pages=2), 0)
    search.restrict(frozenset({OwnerId(0)}))
    assert whole(Relenting(search).of(node, Budget(10, None))) is None
    assert best(search) == {0: "gone"}


@pytest.mark.req("PLAN-5")
def test_who_may_go_is_found_behind_many_that_may_not() -> None:
    search, node = evicting(crowd(1, 9, pages=2), 0)
    search.restrict(frozenset({OwnerId(0), OwnerId(9)}))
    assert whole(Relenting(search).of(node, Budget(10, None))) is None
    assert best(search) == {0: "part", 9: "gone"}


@pytest.mark.req("PLAN-6", "TGT-4")
def test_who_goes_for_nothing_but_a_part_goes_whole() -> None:
    """What an owner keeps on Host may cost more to copy than it saves."""
    copying = CostModel(FREE, TransferCost(1e15, 0.0, 0.0), FREE, PrefillCost(0.0, 1e9, 0.0))
    problem = build([Shelf(2)], Vector(3, 2, (3,), 400), [root(2)], cost=copying)
    search = problem.planner().planner._search
    (start,) = search.identities(problem.options[0])
    node = search.assess(start.option, {OwnerId(0): search.graph.on_host(OwnerId(0))})
    assert node.adoptable and not node.target.outcomes[OwnerId(0)].evicted
    assert whole(Relenting(search).of(node, Budget(10, None))) is None
    assert best(search) == {0: "gone"}


@pytest.mark.req("PLAN-6", "VAL-6")
@pytest.mark.parametrize(("seconds", "kept"), [(200, {0: "gone"}), (50, {0: "part", 1: "gone"})])
def test_another_taken_back_whole_counts_against_a_part_of_the_dearest(seconds: float, kept: dict[int, str]) -> None:
    """What the dearer one keeps has to be copied: where that takes long, the other is worth more."""
    copying = CostModel(FREE, TransferCost(seconds * 1e9, 0.0, 0.0), FREE, PrefillCost(0.0, 1e9, 0.0))
    problem = build([Shelf(6), Shelf(4)], Vector(3, 0, (11,), 600), [root(5)], cost=copying)
    search, node = evicting(problem, 0, 1)
    assert whole(Relenting(search).of(node, Budget(20, None))) is None
    assert best(search) == kept and search.assessed == 5


@pytest.mark.req("PLAN-8", "PLAN-10")
def test_it_stops_with_its_budget_and_never_begins_where_it_ended() -> None:
    search, node = evicting(crowd(2, 2, pages=7), 0, 1)
    relenting = Relenting(search)
    assert whole(relenting.of(node, Budget(2, None))) is Stop.TARGET_BUDGET
    assert sorted(best(search).values()) == ["gone", "part"] and search.best is not None
    assert whole(relenting.of(search.best, Budget(20, None))) is None
    assert sorted(best(search).values()) == ["gone", "part", "part"]
    assert whole(relenting.of(search.best, Budget(0, None))) is None, "it would come to the same"


@pytest.mark.req("TGT-5", "CAP-8")
def test_what_comes_to_host_for_another_takes_no_room_twice() -> None:
    problem = build([Shelf(2)], Vector(5, 2, (9,), 400), [])
    geometry, owner = problem.world.geometry, problem.world.owners[OwnerId(0)]
    before = identity(owner, problem.world.replicas)
    images, pages = owner.needs_images, owner.needs_pages
    after = type(before)(before.kept, Replicas(0, images, 0, pages), before.needs)
    told = {
        ahead: relief(before, after, before.wants, geometry, cell=False, ahead=ahead)
        for ahead in (NOTHING, Replicas(host_pages=1), Replicas(host_images=images, host_pages=pages))
    }
    assert list(told.values()) == [(1, -1, -200, 0, 2), (1, -1, -100, 0, 2), (1, 0, 0, 0, 2)]
