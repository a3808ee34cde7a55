"""Short lists and quick measures that live beside the catalogs, and what they must not change."""

from __future__ import annotations

import pytest

from ninfer_core.cache.beginnings import LENGTH, Beginnings
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.statistics import MissReason
from ninfer_core.program.identity import Identity
from ninfer_core.program.ledger.geometry import Vector
from tests.support.managed import Managed

LIMITS = CacheLimits(private_cells=6, shared_cells=2, long_anchors=0, automatic_anchors=0, planning_ns=10**12)


def identity(tokens: range) -> Identity:
    return Identity.of(list(tokens), (), (), len(tokens))


@pytest.mark.req("ID-1")
def test_a_beginning_is_found_once_by_whoever_begins_with_it() -> None:
    beginnings = Beginnings()
    beginnings.add(OwnerId(1), identity(range(5)))
    beginnings.add(OwnerId(2), identity(range(100, 100 + 2 * LENGTH)))
    assert beginnings.shared_with(identity(range(5))) == [OwnerId(1)], "not once more for every longer size"
    assert beginnings.shared_with(identity(range(4))) == []
    assert beginnings.shared_with(identity(range(100, 100 + LENGTH))) == [OwnerId(2)], (
        "the rest is Program's to compare"
    )
    assert beginnings.shared_with(identity(range(100, 100 + LENGTH - 1))) == []
    beginnings.remove(OwnerId(1))
    beginnings.audit({OwnerId(2)})
    assert beginnings.shared_with(identity(range(5))) == []


@pytest.mark.req("STAT-2")
@pytest.mark.parametrize("length", [13, 60])
def test_another_division_of_the_same_tokens_is_a_miss_by_identity_however_short(length: int) -> None:
    managed = Managed(Vector(6, 0, (20,), 0), LIMITS)
    managed.run(range(length), cuts=[4])
    again = managed.run([*range(length - 1), 100, 101], cuts=[3])
    assert MissReason.IDENTITY in {miss.reason for miss in again.reuse.misses}


@pytest.mark.req("PLAN-7", "VAL-2")
def test_a_quick_measure_is_worked_out_again_when_the_path_below_has_changed() -> None:
    managed = Managed(Vector(8, 0, (60,), 0), LIMITS)
    prefix = list(range(640))
    managed.run(prefix)
    managed.run([*prefix, *range(9000, 9064)], sibling=True)
    below, above = managed.manager.books.private
    desk = managed.manager._desk
    beside = desk.portfolio().worths.of([above])[above.owner]
    managed.manager.books.release(below.owner)
    alone = desk.portfolio().worths.of([above])[above.owner]
    desk._standing.clear()
    assert beside < alone == desk.portfolio().worths.of([above])[above.owner]
