"""The planner against LRU and root-only on small streams; tests.benchmarks.traffic measures the large ones."""

from __future__ import annotations

import pytest

from tests.benchmarks.bars import svg
from tests.benchmarks.replay import Tally
from tests.benchmarks.traffic import MEAN, WORST, Row, demands, geometric_mean, measure, still, tables
from tests.benchmarks.workloads import WORKLOADS

REQUESTS = {(name, host): 60 for name in WORKLOADS for host in (False, True)}
REQUESTS |= {("documents", False): 100, ("documents", True): 40}
"""So many that the statement holds for every seed from 1 to 6, not for the one below only: there is less to be saved in
documents, and a plan with a Host tier takes longest."""
SEED = 1


@pytest.mark.req("INV-13")
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_planner_rebuilds_no_more_than_lru_and_much_less_than_root_only(name: str) -> None:
    rows = [measure(name, host, [SEED], REQUESTS[name, host], still) for host in (False, True)]
    for row in rows:
        ninfer, lru, root = (row.tallies[policy] for policy in ("ninfer", "lru", "root"))
        assert ninfer.requests == lru.requests == root.requests == REQUESTS[name, row.host]
        assert root.hit_rate == 0 < ninfer.hit_rate and ninfer.prompt_tokens == lru.prompt_tokens == root.prompt_tokens
        assert row.against("lru") <= WORST, row.name
        assert row.against("root") < 0.6, row.name
    assert geometric_mean([row.against("lru") for row in rows]) <= MEAN


def row(name: str, share: float) -> Row:
    """Of LRU's cost."""
    tallies = [Tally(8, 100, 50, 9, share * 1e6, [1.0]), Tally(8, 100, 40, 10, 1e6, [2.0]), Tally(8, 100, 0, 99, 4e6)]
    return Row(name, False, dict(zip(("ninfer", "lru", "root"), tallies, strict=True)))


def test_what_is_demanded_of_the_rows() -> None:
    def unmet(*shares: float) -> list[str]:
        found = demands([row(f"w{number}", share) for number, share in enumerate(shares)])
        assert len(found) == len(shares) + 1
        return [demand.what for demand in found if not demand.met]

    assert unmet(1.02, 0.5) == [] == unmet(0.9, 0.9)
    assert unmet(1.03, 0.5) == ["w0, rebuilt cost"]
    assert unmet(0.95, 0.95) == ["geometric mean of rebuilt cost"]
    assert unmet(0.0, 0.0) == [], "nothing was rebuilt"


def test_tables_and_chart_show_every_policy() -> None:
    found = row("chats", 0.5)
    lines = list(tables([found]))
    assert lines[2] == "| chats | 8 | 50.0% | 40.0% | 0.0% | 9 | 10 | 99 | 0.500 | 0.125 |"
    assert lines[6] == "| chats | 1.00 | 1.00 | 2.00 | 2.00 |"
    assert len({line.count("|") for line in lines[:3]}) == len({line.count("|") for line in lines[4:]}) == 1
    chart = svg("seconds", {found.name: {policy: tally.rebuilt_ns / 1e9 for policy, tally in found.tallies.items()}})
    assert all(policy in chart for policy in found.tallies)
