"""What admissions of others cost a request that decodes: the time between its rounds in which no pass runs.

    python -m tests.benchmarks.interleaving [--model DIR] [--requests 80] [--host] [--processor-time]

One request decodes all the time. In turns, others are admitted beside it (conversations that go on, are regenerated,
edited, or new, with a cache too small for them) and it is left alone. The delay of a round is the worker's time from
the end of one pass to the start of the next: planning, seal, steps of transitions, captures, settling of who has ended,
delivery. Main memory is touched before: the system gives it page by page when it is first written, once, and takes
longer for that than a copy. A system message has 30 words by default, so that four in ten admissions find something
again; with 120 nine in ten start from root, and there is less to plan. Demanded: at most 5 ms at p99 for rounds at
which requests were admitted, on the demo model.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ninfer_cli.collector import settle
from ninfer_core import CacheIntent, Engine, EngineOptions, GenerationRequest, Message, SamplingParams
from ninfer_core.engine.cache_options import ContextCacheOptions
from tests.benchmarks.demands import Demand, judged, parser, percentile

GREEDY = SamplingParams(temperature=0)
DEMANDED_MS = 5.0
SESSIONS = 12
WORDS = ("cat", "dog", "tree", "house", "boat", "river", "stone")


@dataclass
class Recorder:
    """Hooks on the worker's thread: delays between passes, and what happened in each.

    Attributes:
        alone: milliseconds of delays in the stretches without other requests.
        beside: of delays while others were there.
        admitting: of those in which a request was admitted or a piece of its transition was carried out.
        slow: the delays above the bound, with milliseconds by verb of the manager.
    """

    engine: Engine
    clock: Callable[[], float]
    busy: bool = False
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    admitting: list[float] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    _ended: float | None = None
    _parts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        worker, manager = self.engine._worker, self.engine._manager
        run = worker._pass

        def timed_pass(*asked: Any) -> None:
            self._note()
            run(*asked)
            self._ended = self.clock()

        worker._pass = timed_pass  # type: ignore[method-assign]
        for name in ("admit", "advance", "before_pass", "finish", "after_pass"):
            setattr(manager, name, self._timed(name, getattr(manager, name)))

    def _timed(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*asked: Any, **options: Any) -> Any:
            began = self.clock()
            try:
                return act(*asked, **options)
            finally:
                self._parts[name] += (self.clock() - began) * 1e3

        return timed

    def _note(self) -> None:
        parts, self._parts = self._parts, Counter()
        if self._ended is None or not self.engine._worker._scheduler.decoding():
            return
        delay = (self.clock() - self._ended) * 1e3
        (self.beside if self.busy else self.alone).append(delay)
        if parts["admit"] or parts["advance"]:
            self.admitting.append(delay)
        if self.busy and delay > DEMANDED_MS:
            inside = ", ".join(f"{name} {ms:.1f}" for name, ms in parts.most_common() if ms > 0.1)
            self.slow.append(f"{delay:.1f} ms: {inside or 'none of these'}")


class Others:
    """Conversations of a system message and turns, more than the cache holds."""

    def __init__(self, engine: Engine, words: int, seed: int) -> None:
        self.engine, self.words = engine, words
        self.rng = random.Random(seed)
        self.talks: dict[int, list[Message]] = {}
        self.sources: Counter[str] = Counter()
        self.planning: list[float] = []
        self.moved = 0

    def text(self, words: int) -> str:
        return " ".join(self.rng.choices(WORDS, k=words))

    def ask(self) -> None:
        """One more request, and its reply."""
        number, kind = self.rng.randrange(SESSIONS), self.rng.random()
        talk = self.talks.get(number)
        if talk is None or kind < 0.1:
            talk = [Message("system", self.text(self.words)), Message("user", self.text(self.words))]
        elif kind < 0.6:
            talk = [*talk, Message("user", self.text(self.words // 4))]
        elif kind < 0.8 and len(talk) > 2:
            talk = talk[:-1]  # the reply is generated again
        else:
            talk = [*talk[:-1], Message("user", self.text(self.words // 4))]
        prompt = self.engine.prepare(talk)
        cache = CacheIntent(session=f"talk {number}")
        result = self.engine.submit(GenerationRequest(prompt, GREEDY, max_new=6, ignore_end=True, cache=cache)).result()
        if result.error:
            raise SystemExit(result.error)
        self.talks[number] = [*talk, Message("assistant", result.text)] if len(talk) < 12 else talk[:2]
        stats = result.statistics
        self.sources[f"{stats.reuse.source.value} {stats.reuse.operation.value}"] += 1
        self.planning.append(stats.planning.ms)
        self.moved += stats.transfer.bytes


def run(engine: Engine, recorder: Recorder, others: Others, requests: int, alone: int) -> int:
    """Turns of requests and of quiet rounds, beside one reply. Returns how many tokens that one drew."""
    drawn = 0
    turns = max(1, requests // 10)
    for _ in range(turns):
        prompt = engine.prepare([Message("user", others.text(8))])
        most = engine.info.max_context - len(prompt) - 1
        off = CacheIntent(publishes=False)
        row = engine.submit(GenerationRequest(prompt, GREEDY, max_new=most, ignore_end=True, cache=off))
        while not row._request.token_ids:
            time.sleep(0.001)
        at = len(recorder.alone)
        while len(recorder.alone) < at + alone // turns:
            if len(row._request.token_ids) >= most:
                raise SystemExit("the reply beside which others are admitted ended too early: nothing was measured")
            time.sleep(0.005)
        recorder.busy = True
        for _ in range(10):
            others.ask()
        recorder.busy = False
        row.cancel()
        drawn += len(row.result().token_ids)
        recorder._ended = None
    return drawn


def touch(engine: Engine) -> None:
    """Main memory comes from the system when it is first written, which takes longer than a copy into it and happens
    once: it is not what is measured."""
    physical = engine._worker._program.physical
    physical.images._host.zero_()
    for pool in physical.pools:
        pool._arena.zero_()


def line(name: str, delays: list[float]) -> str:
    if not delays:
        return f"{name:34} none"
    ordered = sorted(delays)
    p99 = percentile(ordered, 0.99)
    over = sum(delay > DEMANDED_MS for delay in ordered)
    figures = f"p50 {statistics.median(ordered):6.2f}  p99 {p99:6.2f}  worst {ordered[-1]:6.2f} ms"
    return f"{name:34} {len(ordered):6} rounds  {figures}  {over} above {DEMANDED_MS:g} ms"


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--model", type=Path, help="a checkpoint directory; without, the demo model")
    options.add_argument("--requests", type=int, default=80)
    options.add_argument("--words", type=int, default=30, help="of a system message: with more, less is found again")
    options.add_argument("--capacity", type=int, default=4096, help="tokens that the KV pool holds")
    options.add_argument("--host", action="store_true", help="with a Host tier, so that states are moved")
    options.add_argument("--processor-time", action="store_true", help="of the worker's thread: for a busy machine")
    args = options.parse_args(argv)
    host = {"host_state_slots": 48, "host_kv_capacity_bytes": 1 << 26} if args.host else {}
    cache = ContextCacheOptions(device_state_slots=12, max_private_continuations=10, **host)
    options = EngineOptions(
        model=args.model,
        max_concurrency=3,
        max_context=min(2048, args.capacity // 2),
        kv_capacity=args.capacity,
        cache=cache,
        prefill_chunk=128,
    )
    clock = time.thread_time if args.processor_time else time.perf_counter
    with Engine(options) as engine:
        settle()  # as the tool does once it has started
        touch(engine)
        others = Others(engine, args.words, seed=1)
        for _ in range(2 * SESSIONS):  # until the cache is full
            others.ask()
        others.sources.clear()
        others.planning.clear()
        others.moved = 0
        recorder = Recorder(engine, clock)
        drawn = run(engine, recorder, others, args.requests, alone=40 * args.requests // 10)
    which = "processor" if args.processor_time else "wall"
    print(f"{engine.info.model}, {which} time; {len(others.planning)} requests beside one that drew {drawn} tokens")
    print("sources:", ", ".join(f"{name} {count}" for name, count in others.sources.most_common()))
    print(
        f"planning p50 {statistics.median(others.planning):.2f}, worst {max(others.planning):.2f} ms (wall)", end="; "
    )
    print(f"{others.moved / 2**20:.1f} MiB moved")
    print(line("alone", recorder.alone))
    print(line("beside others, every round", recorder.beside))
    print(line("beside others, admissions", recorder.admitting))
    for one in recorder.slow[:12]:
        print("  ", one)
    p99 = percentile(recorder.admitting, 0.99)
    return judged([Demand("p99 of the delay of rounds with admissions", p99, DEMANDED_MS, " ms")])


if __name__ == "__main__":
    sys.exit(main())
