"""With both tiers full, what is worth least makes room on Host for what has to leave Device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ninfer_core.cache.budget import Budget
from ninfer_core.cache.lack import HOST_AXES, Lack
from ninfer_core.cache.retention import Retention
from ninfer_core.cache.steps import whole
from ninfer_core.contract.ids import LogicalPage, OwnerId
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import Extent, Replicas
from tests.cache.test_planner import Shelf, build, evicted, root
from tests.support.portfolios import Problem

OLD, LIVE = range(6), range(6, 12)
OF_OLD, OF_LIVE = (1 << 6) - 1, ((1 << 7) - 1) << 6
"""Images by number; the running request's is the last."""
HELD_OLD, HELD_LIVE = (1 << 6) - 1, ((1 << 13) - 1) << 6


def full_tiers() -> Problem:
    """Six strangers of one page each lie on Host, six live sessions of two pages each on Device, beside a running
    request of one page. Neither tier has room for anything else."""
    shelves = [Shelf(1) for _ in OLD] + [Shelf(2, Retention.LIVE_SESSION) for _ in LIVE]
    made = build(shelves, Vector(13, 6, (19,), 600), [root(2)])
    capacity = Vector(7, 6, (13,), 600)
    geometry = replace(made.world.geometry, capacity=capacity)
    extents, arena = [], made.world.arena
    for page in range(6):
        placed = arena.allocate(100)
        assert placed is not None
        offset, arena = placed
        extents.append(Extent(0, offset, 100, (LogicalPage(page),), 1 << page))
    have = Replicas(OF_LIVE, OF_OLD, HELD_LIVE, HELD_OLD)
    world = replace(made.world, geometry=geometry, replicas=have, extents=tuple(extents), arena=arena)
    assert world.used() == capacity
    return replace(made, world=world)


@pytest.mark.req("TGT-5", "CAP-8")
def test_what_two_hold_takes_room_on_host_once() -> None:
    """Four pages are missing, and Host has room for four: both that hold the same four go there, and nobody is lost."""
    problem = build([Shelf(4), Shelf(alias=0), Shelf(1, Retention.LIVE_SESSION)], Vector(9, 4, (6,), 400), [root(4)])
    search = problem.planner().planner._search
    (node,) = search.identities(problem.options[0])
    exchange = search.guide(node.option).exchange()
    for chosen in ({0}, {0, 1}):
        found = whole(exchange.further(search.lack(node), None))
        assert found is not None and set(found) == chosen and not any(vertex.evicted for vertex in found.values())
        node = search.assess(node.option, found)
    assert node.adoptable


@pytest.mark.req("TGT-5", "CAP-8")
def test_who_was_moved_and_then_goes_takes_nothing_to_host_for_others() -> None:
    problem = build([Shelf(4), Shelf(alias=0)], Vector(9, 4, (6,), 400), [root(4)])
    search = problem.planner().planner._search
    (node,) = search.identities(problem.options[0])
    exchange = search.guide(node.option).exchange()
    alone = exchange._demotion(OwnerId(1))[1]
    assert whole(exchange.further(search.lack(node), None)) is not None
    beside = exchange._demotion(OwnerId(1))[1]
    host_bytes = HOST_AXES[1]
    assert (alone[host_bytes], beside[host_bytes]) == (-400, 0)
    assert whole(exchange.further(Lack((0, 0, 1, 0, 0)), None)) == {OwnerId(0): search.graph.evicted(OwnerId(0))}
    assert exchange._demotion(OwnerId(1))[1] == alone


@pytest.mark.req("TGT-5", "PLAN-6", "VAL-4")
@pytest.mark.parametrize("targets", [8, 1000])
def test_a_stranger_on_host_gives_way_to_a_live_session_that_has_to_leave_device(targets: int) -> None:
    """An image and two pages are missing. To evict one live session loses 16 * 128 s; to demote it, in the place of two
    strangers on Host, loses 2 * 64 s. Neither half of that frees anything by itself."""
    problem = full_tiers()
    choice = problem.planner().materialize(problem.options, Budget(targets, None))
    assert choice.node is not None and choice.node.adoptable
    assert len(evicted(choice)) == 2 and evicted(choice) < set(OLD)
    assert choice.node.value == pytest.approx((10 + 2 * 64) * 1e9, rel=1e-3)
    demoted = [owner for owner, outcome in choice.node.target.outcomes.items() if not outcome.evicted]
    assert len(demoted) == 1 and demoted[0] in LIVE
