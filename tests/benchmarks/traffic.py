"""Traffic replay: what the planner saves against LRU and against starting from root every time, on paired seeds.

    python -m tests.benchmarks.traffic --requests 300 --seeds 1 2 --markdown traffic.md --svg traffic.svg

The requests run through a real ResourceManager and a real Program with its stores; only the model is missing. A token
is rebuilt when it lies in a prefix that some request has computed before and is computed again. Its cost is that of the
cost model; copies count, too. Planning time is processor time of everything before a transition starts.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import time
from array import array
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ninfer_core.cache.admission import Admitted, Ask, Blocked, Failed, Refused, Transferring
from ninfer_core.cache.budget import Budget, Clock, Stop
from ninfer_core.cache.capture import Captures
from ninfer_core.cache.catalog import Catalog
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.desk import Desk
from ninfer_core.cache.domain import Option
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.cache.planner import Choice
from ninfer_core.cache.steps import Steps
from ninfer_core.cache.value import Portfolio
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import OwnerId, RequestId
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.plans import Readiness, RequestWork, SequenceHandle
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.kernels.planes import KvPlanes, StatePlanes
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.assessment import AssessmentSession
from ninfer_core.program.planning.outcome import EVICTED, Outcome
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.planning.target import Target
from ninfer_core.program.planning.work import Prefill
from ninfer_core.program.program import Program
from tests.benchmarks.bars import svg
from tests.benchmarks.workloads import WORKLOADS, Arrival, Tokens, Workload
from tests.support.demotion import demoted
from tests.support.ledger_model import LedgerModel

GREEDY = SamplingParams(temperature=0)
PAGE_BYTES = 64 * 4 * 2
LANES, SLOTS, PAGES = 3, 12, 150
HOST_SLOTS, HOST_PAGES = 16, 160
LIMITS = CacheLimits(private_cells=16, shared_cells=7, long_anchors=4, automatic_anchors=2)
BLOCK = 16
"""Tokens in which prefixes that were computed before are found again."""


class NoModel(LedgerModel):
    """Draws token 0, computes nothing."""

    def forward(self, batch: ForwardBatch, state: StatePlanes, kv: KvPlanes) -> torch.Tensor:
        return torch.zeros(len(batch.rows), self.layout.hidden_size)


@dataclass(frozen=True)
class Pick:
    """What the manager reads of a chosen node."""

    option: Option
    target: Target
    projection: Projection
    readiness: Readiness
    reason: str


class LruDesk(Desk):
    """Deepest match first; room is made by evicting whole owners, least recently used first. With a Host tier owners
    are demoted there in the same order, and the oldest are evicted when it is full. Nothing is weighed."""

    def materialize(
        self, options: Sequence[Option], budget: Budget, ranking: Sequence[OwnerId] | None
    ) -> Steps[Choice]:
        yield
        session, assessed = self._program.session(), 0
        for option in options:
            pick, tried = self._make_room(session, option, self._books.private, ())
            assessed += tried
            if pick is not None:
                return Choice(pick, pick.readiness, "", Stop.NO_PRESSURE, assessed)  # type: ignore[arg-type]
        found = session.assess(Target(options[-1].demand))
        return Choice(None, found.readiness, found.reason, Stop.NO_PRESSURE, assessed)

    def capture(
        self, option: Option, budget: Budget, portfolio: Portfolio, spared: Collection[OwnerId]
    ) -> Steps[Choice]:
        yield
        pick, tried = self._make_room(self._program.session(), option, self._books.shared, spared)
        readiness = Readiness.TEMPORARILY_BLOCKED if pick is None else pick.readiness
        return Choice(pick, readiness, "no room", Stop.NO_PRESSURE, tried)  # type: ignore[arg-type]

    def _make_room(
        self, session: AssessmentSession, option: Option, catalog: Catalog, spared: Collection[OwnerId]
    ) -> tuple[Pick | None, int]:
        """Evict the `gone` oldest, demote those up to `down`, until it fits or nobody is left."""
        eligible = self._books.eligible([] if option.source_owner is None else [option.source_owner])
        order = [owner for owner in self._books.ranking() if owner in eligible and owner not in spared]
        domain, capacity = self._program.domain(order), self._program.geometry.capacity
        order = [owner for owner in order if owner in domain]
        has_host, gone, down, tried = capacity.host_images > 0, 0, 0, 0
        placed = not option.needs_cell or catalog.free_cells > 0 or not any(catalog.get(owner) for owner in order)
        while True:
            outcomes: dict[OwnerId, Outcome] = dict.fromkeys(order[:gone], EVICTED)
            outcomes |= {owner: demoted(domain[owner]) for owner in order[gone:down]}
            target, tried = Target(option.demand, outcomes), tried + 1
            found = session.assess(target)
            fits = found.readiness in (Readiness.READY, Readiness.NEEDS_TRANSFER)
            if fits and (placed or any(catalog.get(owner) for owner in order[:gone])):
                return Pick(option, target, found.projection, found.readiness, found.reason), tried
            if gone == len(order):
                return None, tried
            lack = found.projection.deficit
            host_full = fits or lack.host_images or lack.host_bytes or found.projection.unplaceable
            if has_host and not host_full and down < len(order):
                down = max(down, gone) + 1
            else:
                gone += 1
                down = max(down, gone)


class Seen:
    """Which prefixes some request has computed before, in blocks."""

    def __init__(self) -> None:
        self._blocks: set[bytes] = set()

    def length(self, tokens: Sequence[int]) -> int:
        known = 0
        for at, key in self._keys(tokens):
            if key not in self._blocks:
                break
            known = at
        return known

    def add(self, tokens: Sequence[int]) -> None:
        self._blocks.update(key for _, key in self._keys(tokens))

    @staticmethod
    def _keys(tokens: Sequence[int]) -> list[tuple[int, bytes]]:
        hasher, keys = hashlib.blake2b(digest_size=12), []
        for at in range(BLOCK, len(tokens) + 1, BLOCK):
            hasher.update(array("H", tokens[at - BLOCK : at]).tobytes())
            keys.append((at, hasher.copy().digest()))
        return keys


@dataclass
class Tally:
    requests: int = 0
    hits: int = 0
    prompt_tokens: int = 0
    rebuilt_tokens: int = 0
    rebuilt_ns: float = 0.0
    planning_ms: list[float] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        return self.hits / self.requests

    def planning(self, share: float) -> float:
        return sorted(self.planning_ms)[min(len(self.planning_ms) - 1, int(share * len(self.planning_ms)))]


@dataclass(frozen=True)
class Machine:
    host: bool
    pages: int = PAGES

    @property
    def capacity(self) -> Vector:
        host = (HOST_SLOTS, HOST_PAGES * PAGE_BYTES) if self.host else (0, 0)
        return Vector(LANES + SLOTS, host[0], (self.pages,), host[1])


class Replay:
    """One policy's run of one workload. Up to LANES requests are active at a time, each for three arrivals."""

    def __init__(self, policy: str, machine: Machine, clock: Clock = time.thread_time_ns) -> None:
        self.program = Program(NoModel(max_positions=1 << 16), machine.capacity)
        limits = LIMITS if policy != "root" else CacheLimits(LANES, 0, 0, 0, enabled=False)
        self.cost = CostModel()
        self.manager = ResourceManager(self.program, limits, self.cost, clock)
        if policy == "lru":
            desk = LruDesk(self.program, self.manager.books, self.cost)
            self.manager._decisions._desk = desk
            self.manager._captures = Captures(self.program, self.manager.books, limits, desk)
        self.tally = Tally()
        self._seen = Seen()
        self._active: deque[tuple[RequestId, SequenceHandle, bool]] = deque()

    def run(self, workload: Workload, seed: int, count: int) -> Tally:
        for number, arrival in enumerate(workload(random.Random(seed), count), 1):
            if len(self._active) == LANES:
                self._retire()
            self._serve(RequestId(number), arrival)
        while self._active:
            self._retire()
        self.manager.audit()
        return self.tally

    def _serve(self, request: RequestId, arrival: Arrival) -> None:
        prompt, lifetime = arrival.prompt, len(arrival.prompt) + 1 + arrival.reply
        ask = Ask(request, RequestWork(prompt, lifetime, GREEDY), CacheIntent(session=arrival.session))
        begun = time.thread_time()
        admission = self.manager.admit(ask, self.manager.budget(len(self._active)))
        self.tally.planning_ms.append((time.thread_time() - begun) * 1e3)
        while not isinstance(admission, Admitted):
            match admission:
                case Blocked():
                    self._retire()
                    admission = self.manager.admit(ask)
                case Transferring():
                    admission = self.manager.advance()
                case Refused(reason=reason) | Failed(reason=reason):
                    raise AssertionError(f"the machine is too small for the workload: {reason}")
        self._count(prompt.token_ids, admission)
        handle = admission.handle
        while (at := self.program.sequence(handle).frontier) < len(prompt):
            until = self.manager.before_pass(request, len(prompt), len(self._active) + 1)
            self._pass(handle, until - at)
            self.manager.after_pass(request)
        reply: Tokens = tuple(random.Random(request).randrange(50) for _ in range(arrival.reply))
        self.program.force(handle, reply)
        self._pass(handle)
        self._seen.add(self.program.sequence(handle).ledger)
        arrival.answered((0, *reply))
        bounds = prompt.boundaries
        self._active.append((request, handle, bounds is not None and not bounds.reproduces_history))

    def _count(self, tokens: Tokens, admission: Admitted) -> None:
        tally, reused, length = self.tally, admission.reuse.frontier, len(tokens)
        seen = max(reused, min(self._seen.length(tokens), length - 1))
        tally.requests += 1
        tally.hits += reused > 0
        tally.prompt_tokens += length
        tally.rebuilt_tokens += seen - reused
        again = self.cost.prefill(Prefill(reused, length - reused)) - self.cost.prefill(Prefill(seen, length - seen))
        tally.rebuilt_ns += again + admission.transfer.bytes * self.cost.to_device.ns_per_byte

    def _pass(self, handle: SequenceHandle, tokens: int = 1 << 20) -> None:
        with self.program.execute([(handle, tokens)]) as pending:
            pending.commit([handle])

    def _retire(self) -> None:
        request, handle, unreachable = self._active.popleft()
        self.program.end(handle)
        self.manager.finish(request, unreachable=unreachable)


def _still() -> int:
    """A clock that stands: only the number of targets bounds the search."""
    return 0


POLICIES = ("planner", "lru", "root")


@dataclass(frozen=True)
class Row:
    workload: str
    host: bool
    tallies: dict[str, Tally]

    @property
    def name(self) -> str:
        return f"{self.workload}{' + Host' if self.host else ''}"

    def against(self, other: str) -> float:
        """Rebuilt cost of the planner as a share of another policy's."""
        return self.tallies["planner"].rebuilt_ns / max(1.0, self.tallies[other].rebuilt_ns)


def measure(names: Sequence[str], seeds: Sequence[int], count: int, clock: Clock = time.thread_time_ns) -> list[Row]:
    rows = []
    for name in names:
        for host in (False, True):
            tallies = {policy: Tally() for policy in POLICIES}
            for seed in seeds:
                for policy, total in tallies.items():
                    _add(total, Replay(policy, Machine(host), clock).run(WORKLOADS[name], seed, count))
            rows.append(Row(name, host, tallies))
            print(line(rows[-1]), flush=True)
    return rows


def _add(into: Tally, tally: Tally) -> None:
    into.requests += tally.requests
    into.hits += tally.hits
    into.prompt_tokens += tally.prompt_tokens
    into.rebuilt_tokens += tally.rebuilt_tokens
    into.rebuilt_ns += tally.rebuilt_ns
    into.planning_ms += tally.planning_ms


COLUMNS = (
    *("workload", "requests", "hit rate planner / LRU", "rebuilt tokens planner / LRU / root"),
    *("cost against LRU", "against root", "planning p50 / p99 ms planner", "LRU"),
)
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def line(row: Row) -> str:
    planner, lru, root = (row.tallies[policy] for policy in POLICIES)
    cells = (
        row.name,
        str(planner.requests),
        f"{planner.hit_rate:.1%} / {lru.hit_rate:.1%}",
        f"{planner.rebuilt_tokens:,} / {lru.rebuilt_tokens:,} / {root.rebuilt_tokens:,}",
        f"{row.against('lru'):.3f}",
        f"{row.against('root'):.3f}",
        *(f"{tally.planning(0.5):.2f} / {tally.planning(0.99):.2f}" for tally in (planner, lru)),
    )
    return f"| {' | '.join(cells)} |"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    parser.add_argument("--untimed", action="store_true", help="no time budget: the same choices on every machine")
    parser.add_argument("--faster", type=int, default=1, help="time budgets as on a machine so many times as fast")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(HEAD)
    clock = _still if args.untimed else lambda: time.thread_time_ns() // args.faster
    rows = measure(args.workloads, args.seeds, args.requests, clock)
    shares = [row.against("lru") for row in rows]
    summary = f"Rebuilt cost against LRU: geometric mean {geometric_mean(shares):.3f}, worst {max(shares):.3f}."
    print(summary)
    if args.markdown:
        args.markdown.write_text("\n".join([HEAD, *map(line, rows), "", summary, ""]), encoding="utf-8")
    if args.svg:
        bars = {row.name: {policy: tally.rebuilt_ns / 1e9 for policy, tally in row.tallies.items()} for row in rows}
        args.svg.write_text(svg("Seconds of prefill done again, by policy", bars), encoding="utf-8")


if __name__ == "__main__":
    main()
