"""Traffic replay: what the planner saves against LRU and against starting from root every time, on paired seeds.

    python -m tests.benchmarks.traffic --requests 300 --seeds 1 2 --markdown traffic.md --svg traffic.svg

The requests run through a real ResourceManager and a real Program with its stores; only the model is missing. Hit rate
is the share of all prompt tokens that were reused. A token is rebuilt when it lies in a prefix that some request has
computed before and is computed again; its cost is that of the cost model, and copies to the device count, too. What
root-only costs is computed: it reuses nothing. Planning is processor time of everything before a transition starts.
Demanded: a rebuilt cost of at most 1.02 times LRU's in every row, and of 0.9 in the geometric mean.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ninfer_core.cache.budget import Clock
from tests.benchmarks.bars import svg
from tests.benchmarks.demands import Demand, judged, parser
from tests.benchmarks.replay import Machine, Replay, Tally
from tests.benchmarks.workloads import WORKLOADS

WORST, MEAN = 1.02, 0.9
"""Times LRU's rebuilt cost: the most in any row, and in the geometric mean."""
POLICIES = ("ninfer", "lru")


def still() -> int:
    """A clock that stands: only the number of targets bounds the search."""
    return 0


@dataclass(frozen=True)
class Row:
    """tallies: by policy, and root."""

    workload: str
    host: bool
    tallies: dict[str, Tally]

    @property
    def name(self) -> str:
        return f"{self.workload}{' + Host' if self.host else ''}"

    def against(self, other: str) -> float:
        """Rebuilt cost of the planner as a share of another policy's."""
        return self.tallies["ninfer"].rebuilt_ns / max(1.0, self.tallies[other].rebuilt_ns)


def measure(name: str, host: bool, seeds: Sequence[int], count: int, clock: Clock = time.thread_time_ns) -> Row:
    """Each policy on the same requests: what starting from root would cost must be the same for each."""
    tallies, roots = {policy: Tally() for policy in POLICIES}, {policy: Tally() for policy in POLICIES}
    for seed in seeds:
        for policy in POLICIES:
            replay = Replay(policy, Machine(host), clock).run(WORKLOADS[name], seed, count)
            tallies[policy] += replay.tally
            roots[policy] += replay.root
    assert roots["ninfer"] == roots["lru"], "the policies were not given the same requests"
    tallies["root"] = roots["ninfer"]
    return Row(name, host, tallies)


def geometric_mean(values: Sequence[float]) -> float:
    """A row without any cost counts as a thousandth."""
    return math.exp(sum(math.log(max(value, 1e-3)) for value in values) / len(values))


def demands(rows: Sequence[Row]) -> list[Demand]:
    shares = [row.against("lru") for row in rows]
    found = [
        Demand(f"{row.name}, rebuilt cost", share, WORST, " of LRU's") for row, share in zip(rows, shares, strict=True)
    ]
    return [*found, Demand("geometric mean of rebuilt cost", geometric_mean(shares), MEAN, " of LRU's")]


COSTS = (
    *("workload", "requests", "hit rate: ninfer", "LRU", "root-only", "rebuilt tokens: ninfer", "LRU", "root-only"),
    *("cost against LRU", "against root-only"),
)
TIMES = ("workload", "planning ms: ninfer p50", "p99", "LRU p50", "p99")


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of Markdown: what is computed again, then how long deciding took."""
    yield from _head(COSTS)
    for row in rows:
        found = [row.tallies[policy] for policy in (*POLICIES, "root")]
        rates, rebuilt = [f"{tally.hit_rate:.1%}" for tally in found], [f"{tally.rebuilt_tokens:,}" for tally in found]
        shares = [f"{row.against(other):.3f}" for other in ("lru", "root")]
        yield _line(row.name, str(found[0].requests), *rates, *rebuilt, *shares)
    yield ""
    yield from _head(TIMES)
    for row in rows:
        times = [row.tallies[policy].planning(share) for policy in POLICIES for share in (0.5, 0.99)]
        yield _line(row.name, *(f"{time:.2f}" for time in times))


def _head(columns: Sequence[str]) -> Iterator[str]:
    yield _line(*columns)
    yield f"|{'---|' * len(columns)}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--requests", type=int, default=300)
    options.add_argument("--seeds", type=int, nargs="+", default=[1])
    options.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    options.add_argument("--untimed", action="store_true", help="no time budget: the same choices on every machine")
    options.add_argument("--faster", type=int, default=1, help="time budgets as on a machine so many times as fast")
    options.add_argument("--markdown", type=Path)
    options.add_argument("--svg", type=Path)
    args = options.parse_args(argv)
    if args.requests < 1 or args.faster < 1:
        options.error("--requests and --faster must be at least 1")
    torch.set_num_threads(1)
    clock = still if args.untimed else lambda: time.thread_time_ns() // args.faster
    rows = []
    for name in args.workloads:
        for host in (False, True):
            rows.append(measure(name, host, args.seeds, args.requests, clock))
            print(f"{rows[-1].name}: {rows[-1].against('lru'):.3f} of LRU's rebuilt cost", file=sys.stderr, flush=True)
    lines = [*tables(rows), ""]
    shares = [row.against("lru") for row in rows]
    lines.append(f"Rebuilt cost against LRU: geometric mean {geometric_mean(shares):.3f}, worst {max(shares):.3f}.")
    print("\n".join(lines))
    if args.markdown:
        args.markdown.write_text("\n".join([*lines, ""]), encoding="utf-8")
    if args.svg:
        names = {"ninfer": "ninfer", "lru": "LRU", "root": "root-only"}
        bars = {
            row.name: {names[policy]: tally.rebuilt_ns / 1e9 for policy, tally in row.tallies.items()} for row in rows
        }
        args.svg.write_text(svg("Seconds of prefill done again, by policy", bars), encoding="utf-8")
    return judged(demands(rows))


if __name__ == "__main__":
    sys.exit(main())
