"""Replay: a workload under one policy, through a real ResourceManager and a real Program; only the model is missing."""

from __future__ import annotations

import hashlib
import random
import time
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ninfer_core.cache.admission import Admission, Admitted, Ask, Blocked, Failed, Refused, Transferring
from ninfer_core.cache.budget import Budget, Clock
from ninfer_core.cache.capture import Captures
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.plans import RequestWork, SequenceHandle
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.kernels.planes import KvPlanes, StatePlanes
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.work import Prefill
from ninfer_core.program.program import Program
from tests.benchmarks.demands import percentile
from tests.benchmarks.lru import LruDesk
from tests.benchmarks.workloads import Arrival, Tokens, Workload
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
    """
    Attributes:
        rebuilt_tokens: computed again although some request had computed them before.
        rebuilt_ns: what that costs, and copies to the device, by the cost model.
        planning_ms: of each admission, processor time of everything before its transition starts, with the digests of
            its prompt and every look at it while it was blocked.
    """

    requests: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    rebuilt_tokens: int = 0
    rebuilt_ns: float = 0.0
    planning_ms: list[float] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        """Prompt tokens that were reused, as a share of all."""
        return self.reused_tokens / max(1, self.prompt_tokens)

    def planning(self, share: float) -> float:
        return percentile(self.planning_ms, share)

    def __iadd__(self, other: Tally) -> Tally:
        self.requests += other.requests
        self.prompt_tokens += other.prompt_tokens
        self.reused_tokens += other.reused_tokens
        self.rebuilt_tokens += other.rebuilt_tokens
        self.rebuilt_ns += other.rebuilt_ns
        self.planning_ms += other.planning_ms
        return self


@dataclass(frozen=True)
class Machine:
    host: bool
    pages: int = PAGES

    @property
    def capacity(self) -> Vector:
        host = (HOST_SLOTS, HOST_PAGES * PAGE_BYTES) if self.host else (0, 0)
        return Vector(LANES + SLOTS, host[0], (self.pages,), host[1])


class Replay:
    """One policy's run of one workload. Up to LANES requests are active at a time, each for three arrivals.

    Attributes:
        tally: what was counted.
        root: the same of a cache that starts every request from root. Nothing runs for it: it reuses nothing, and what
            was computed before is the same under every policy.
    """

    def __init__(self, policy: str, machine: Machine, clock: Clock = time.thread_time_ns) -> None:
        self.program = Program(NoModel(max_positions=1 << 16), machine.capacity)
        self.cost = CostModel()
        self.manager = ResourceManager(self.program, LIMITS, self.cost, clock)
        if policy == "lru":
            desk = LruDesk(self.program, self.manager.books, self.cost)
            self.manager._decisions._desk = desk
            self.manager._captures = Captures(self.program, self.manager.books, LIMITS, desk)
        self.tally, self.root = Tally(), Tally()
        self._seen = Seen()
        self._active: deque[tuple[RequestId, SequenceHandle, bool]] = deque()

    def run(self, workload: Workload, seed: int, count: int) -> Replay:
        for number, arrival in enumerate(workload(random.Random(seed), count), 1):
            if len(self._active) == LANES:
                self._retire()
            self._serve(RequestId(number), arrival)
        while self._active:
            self._retire()
        self.manager.audit()
        return self

    def _serve(self, request: RequestId, arrival: Arrival) -> None:
        prompt, lifetime = arrival.prompt, len(arrival.prompt) + 1 + arrival.reply
        ask = Ask(request, RequestWork(prompt, lifetime, GREEDY), CacheIntent(session=arrival.session))
        planned, admission = self._look(ask, self.manager.budget(len(self._active)))
        while not isinstance(admission, Admitted):
            match admission:
                case Blocked():
                    self._retire()
                    again, admission = self._look(ask, None)
                    planned += again
                case Transferring():
                    admission = self.manager.advance()
                case Refused(reason=reason) | Failed(reason=reason):
                    raise AssertionError(f"the machine is too small for the workload: {reason}")
        self.tally.planning_ms.append(planned)
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

    def _look(self, ask: Ask, budget: Budget | None) -> tuple[float, Admission]:
        """Milliseconds of a look at a request, and what came of it."""
        begun = time.thread_time()
        admission = self.manager.admit(ask, budget)
        return (time.thread_time() - begun) * 1e3, admission

    def _count(self, tokens: Tokens, admission: Admitted) -> None:
        known = min(self._seen.length(tokens), len(tokens) - 1)
        for tally, reused in ((self.tally, admission.reuse.frontier), (self.root, 0)):
            seen = max(reused, known)
            tally.requests += 1
            tally.prompt_tokens += len(tokens)
            tally.reused_tokens += reused
            tally.rebuilt_tokens += seen - reused
            tally.rebuilt_ns += self._prefill(reused, tokens) - self._prefill(seen, tokens)
        self.tally.rebuilt_ns += admission.transfer.bytes * self.cost.to_device.ns_per_byte

    def _prefill(self, start: int, tokens: Tokens) -> float:
        return self.cost.prefill(Prefill(start, len(tokens) - start))

    def _pass(self, handle: SequenceHandle, tokens: int = 1 << 20) -> None:
        with self.program.execute([(handle, tokens)]) as pending:
            pending.commit([handle])

    def _retire(self) -> None:
        request, handle, unreachable = self._active.popleft()
        self.program.end(handle)
        self.manager.finish(request, unreachable=unreachable)
