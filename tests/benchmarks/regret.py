"""What the bounded planner loses against the best of all legal targets, on thousands of random small portfolios.

python -m tests.benchmarks.regret --count 2500 --seeds 100000 200000 --markdown regret.md

Up to five owners with up to three checkpoints each, in tight capacities, with and without a Host tier; every target is
enumerated. Regret is (J - J*) / (J_maximal - J*), where J_maximal is that of root with everybody else evicted. The
planner's clock is simulated unless --clock real: 150 us for a target, so that machines and their load do not matter.
Demanded at the default budget: at most 2 % on average and 25 % at worst; and none at all where --unlimited searches.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.demands import Demand, judged, parser, percentile
from tests.support.closure import problems
from tests.support.regrets import Regrets

MOST_MEAN, MOST_WORST = 0.02, 0.25


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=2500, help="of problems from each seed")
    options.add_argument("--seeds", type=int, nargs="+", default=[11])
    options.add_argument("--least", type=int, default=0, help="targets in a closure, at least")
    options.add_argument("--most", type=int, default=2000, help="targets in a closure, at most")
    options.add_argument(
        "--unlimited", type=int, default=0, metavar="MOST", help="closures up to this are also searched without bound"
    )
    options.add_argument("--clock", choices=["simulated", "real"], default="simulated")
    options.add_argument("--markdown", type=Path, help="write the table there")
    args = options.parse_args(argv)
    regrets, done = Regrets(), 0
    for start in args.seeds:
        stream = problems(start, args.most)
        for _ in range(args.count):
            while True:
                seed, problem, naive, ways = next(stream)
                size = naive.size(ways)
                if size >= args.least:
                    break
            try:
                regrets.add(seed, problem, naive, ways, wide=size <= args.unlimited, real=args.clock == "real")
            except AssertionError as error:
                print(f"seed {seed}: {error}")
                return 1
            done += 1
    table = _table(regrets)
    print(table)
    print(f"{done:,} portfolios, {regrets.enumerated:,} targets enumerated: {_counted(regrets.outcomes)}")
    print(
        f"at the default budget {sum(regrets.targets) / len(regrets.targets):.1f} targets are assessed, at most ",
        end="",
    )
    print(f"{max(regrets.targets)}; it stops with {_counted(regrets.stops)}; worst seed {regrets.worst[1]}")
    if args.markdown is not None:
        args.markdown.write_text(table + "\n", encoding="utf-8")
    demands = [
        Demand("default budget, mean regret", sum(regrets.default) / len(regrets.default), MOST_MEAN),
        Demand("default budget, worst regret", max(regrets.default), MOST_WORST),
    ]
    if regrets.unlimited:
        demands.append(Demand("no bound, worst regret", max(regrets.unlimited), 1e-9))
    return judged(demands)


def _table(regrets: Regrets) -> str:
    groups = [
        (f"default, {owners} owner{'s' * (owners != 1)}", found) for owners, found in sorted(regrets.owners.items())
    ]
    groups += [("default, all", regrets.default), ("no optional target", regrets.none), ("no bound", regrets.unlimited)]
    rows = [("budget", "problems", "mean", "p99", "worst"), ("---",) * 5]
    for name, shares in groups:
        if shares:
            mean = sum(shares) / len(shares)
            figures = [f"{100 * share:.3f} %" for share in (mean, percentile(shares, 0.99), max(shares))]
            rows.append((name, f"{len(shares):,}", *figures))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _counted(kinds: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(kinds.items(), key=lambda pair: -pair[1]))


if __name__ == "__main__":
    sys.exit(main())
