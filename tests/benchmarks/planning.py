"""Planning time per admission, as the manager reports it: without pressure, and with 64 owners and a full cache.

    python -m tests.benchmarks.planning [--rounds N] [--pages N ...] [--host] [--profile]

The model computes nothing; stores, ledger, catalogs and transitions are the real ones. An admission's digests are part
of preparing its prompt and are not counted. Demanded, in processor time (a busy neighbour left out): without pressure
at most 0.3 ms at p50 and 1 ms at p99, under pressure 2 and 8 ms.
"""

from __future__ import annotations

import cProfile
import itertools
import pstats
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from ninfer_cli.collector import settle
from ninfer_core.cache.deliberation import Deliberation
from ninfer_core.cache.manager import Admitted
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.program.ledger.geometry import Vector
from tests.benchmarks.demands import Demand, judged, parser, percentile
from tests.support.managed import PAGE_BYTES, Managed

OWNERS, TURNS = 64, 3
SIZES = (4096, 32_768)
"""Device pages: 64 conversations of 4,096 tokens each, and of 32,768. Sets of pages are as long as there are pages."""

MOST_MS = {False: {0.5: 0.3, 0.99: 1.0}, True: {0.5: 2.0, 0.99: 8.0}}
"""By pressure: for each share of the admissions the most that their planning may take."""


class Traffic:
    """64 conversations of several checkpoints each; requests go on with one of them or start anew."""

    def __init__(self, pages: int, *, host: bool, full: bool, seed: int = 1) -> None:
        """
        Args:
            full: the conversations fill the device; otherwise a quarter of it, and there are cells to spare.
        """
        self.rng = random.Random(seed)
        checkpoints = OWNERS * (TURNS + 1)
        images = checkpoints + OWNERS // 2 if full else 4 * checkpoints
        spare = pages // OWNERS if full else 0
        capacity = Vector(images, images if host else 0, (pages + spare,), pages // 8 * PAGE_BYTES if host else 0)
        limits = CacheLimits(OWNERS + (8 if full else 200), 8, long_anchors=TURNS, automatic_anchors=TURNS)
        self.managed = Managed(capacity, limits)
        self.next = 0
        share = pages // OWNERS * PAGE_SIZE
        self.share = share if full else share // 4
        self.texts = [self.fresh(self.share * 7 // 8) for _ in range(OWNERS)]
        for number, text in enumerate(self.texts):
            self.managed.run(text, cuts=self.cuts(text), session=f"s{number}")

    def fresh(self, length: int) -> list[int]:
        self.next += 1
        return [(self.next * 7919 + at) % (1 << 20) for at in range(length)]

    def cuts(self, text: list[int]) -> list[int]:
        return [len(text) * part // (TURNS + 1) for part in range(1, TURNS + 1)] + [len(text) - 4]

    def admission(self) -> Admitted:
        """One more request. Half of them continue, a quarter regenerate, a quarter are new conversations."""
        number, kind = self.rng.randrange(OWNERS), self.rng.random()
        text = self.texts[number]
        if kind < 0.5:
            prompt = [*text, 1, *self.fresh(self.share // 32)]
        elif kind < 0.75:
            prompt = text[: self.cuts(text)[1]] + self.fresh(self.share // 16)
        else:
            prompt = self.fresh(self.share * 7 // 8)
        if len(prompt) > self.share:
            prompt = self.fresh(self.share * 7 // 8)
        self.texts[number] = prompt
        ask = self.managed.ask(prompt, 64, self.cuts(prompt))
        admitted = self.managed.admit(ask)
        assert isinstance(admitted, Admitted), admitted
        self.managed.complete(ask, admitted)
        return admitted


def measure(traffic: Traffic, rounds: int, clock: Callable[[], int]) -> tuple[list[float], Counter, list[int]]:
    """Milliseconds of each planning by the clock that the manager is given."""
    traffic.managed.manager._clock = clock
    times, stops, targets = [], Counter(), []
    for _ in range(rounds):
        admitted = traffic.admission()
        times.append(admitted.planning.ms)
        stops[admitted.planning.stop, admitted.reuse.source.value] += 1
        targets.append(admitted.planning.targets)
    return sorted(times), stops, targets


def profiled(traffic: Traffic, rounds: int) -> None:
    """Where the planner's time goes."""
    profile, go_on = cProfile.Profile(), Deliberation.go_on
    Deliberation.go_on = lambda *asked: profile.runcall(go_on, *asked)  # type: ignore[method-assign]
    measure(traffic, rounds, time.perf_counter_ns)
    Deliberation.go_on = go_on  # type: ignore[method-assign]
    pstats.Stats(profile).sort_stats("tottime").print_stats(32)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=100, help="of each clock, at most 200: each may take a cell")
    options.add_argument("--pages", type=int, nargs="*", default=SIZES, help="of the device")
    options.add_argument("--host", action="store_true", help="with a Host tier")
    options.add_argument("--profile", action="store_true")
    args = options.parse_args(argv)
    demands = []
    for pages, full in itertools.product(args.pages, (False, True)):
        for clock_name, clock in (("cpu", time.thread_time_ns), ("wall", time.perf_counter_ns)):
            traffic = Traffic(pages, host=args.host, full=full)  # anew: without pressure each round takes a cell
            settle()  # as the tool does once it has started
            owners = len(list(traffic.managed.manager.books.entries()))
            where = f"{pages:,} pages, {'pressure' if full else 'no pressure'}"
            if clock_name == "cpu":
                print(f"{where}: {owners} owners")
                if args.profile:
                    profiled(traffic, args.rounds)
            times, stops, targets = measure(traffic, args.rounds, clock)
            if clock_name == "cpu":
                demands += [
                    Demand(f"{where}, planning p{100 * share:.0f}", percentile(times, share), most, " ms")
                    for share, most in MOST_MS[full].items()
                ]
            print(
                f"  {clock_name:4} p50 {percentile(times, 0.5):.2f} ms, p99 {percentile(times, 0.99):.2f} ms, "
                f"worst {times[-1]:.2f} ms; targets {statistics.mean(targets):.1f}",
                flush=True,
            )
            print("      ", ", ".join(f"{stop}/{source} {count}" for (stop, source), count in stops.most_common()))
            traffic.managed.manager.audit()
    return judged(demands)


if __name__ == "__main__":
    sys.exit(main())
