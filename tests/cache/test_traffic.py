"""The planner against LRU and root-only on a small stream; tests.benchmarks.traffic measures the large ones."""

from __future__ import annotations

import pytest

from tests.benchmarks.bars import svg
from tests.benchmarks.traffic import POLICIES, measure


def still() -> int:
    return 0


@pytest.mark.req("INV-13")
def test_the_planner_rebuilds_less_than_lru_and_much_less_than_root_only() -> None:
    (plain, host) = measure(["agents"], [1], 40, still)
    assert plain.against("lru") <= 1.02
    for row in (plain, host):
        assert row.against("root") < 0.5, row.name
        assert row.tallies["planner"].requests == 40 and row.tallies["root"].hits == 0
    chart = svg("seconds", {plain.name: {policy: tally.rebuilt_ns / 1e9 for policy, tally in plain.tallies.items()}})
    assert all(policy in chart for policy in POLICIES)
