"""Device to Host to Device of one StateImage, beside two contiguous copies of as many bytes.

    python -m tests.benchmarks.state_copy [--pairs 200] [--clock processor]

The shape is that of the published 0.8B model; no weights are needed. Two figures: the store's copies alone, and whole
transitions (plan, reserve, copy, verify, publish, release). Demanded of both: at most 1.3 times the plain copies.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from ninfer_core.contract.ids import ImageId, OwnerId
from ninfer_core.contract.plans import RequestWork, SequenceHandle
from ninfer_core.contract.prompt import OutputStart, PreparedPrompt
from ninfer_core.contract.results import Ending
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.models.layout import ModelLayout
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.outcome import Step, identity, successors
from ninfer_core.program.planning.target import SourceMode, Target
from ninfer_core.program.program import Program
from ninfer_core.program.storage.image_store import ImageStore
from tests.benchmarks.demands import Demand, judged, parser
from tests.benchmarks.interleaved import compare
from tests.support.ledger_model import LedgerModel

SHAPE = ModelLayout(
    gdn_layers=18,
    attention_layers=6,
    recurrent_shape=(16, 128, 128),
    conv_shape=(6144, 3),
    hidden_size=1024,
    kv_shape=(2, 256),
    dtype=torch.bfloat16,
    vocab_size=64,
    max_positions=4096,
)
Clock = Callable[[], float]
GREEDY = SamplingParams(temperature=0)
CLOCKS = {"wall": time.perf_counter, "processor": time.thread_time}

MOST = 1.3
"""Times the plain copies."""


class Plain:
    """Two buffers and nothing else."""

    def __init__(self, size: int, now: Clock) -> None:
        self.now = now
        self.device, self.host = (torch.ones(size, dtype=torch.uint8) for _ in range(2))

    def round_trip(self) -> float:
        begin = self.now()
        self.host.copy_(self.device)
        self.device.copy_(self.host)
        return self.now() - begin


class Store:
    """The copies as a transition issues them."""

    def __init__(self, now: Clock) -> None:
        self.now = now
        self.images = ImageStore(SHAPE, 3, 2, torch.device("cpu"))
        self.image = ImageId(0)
        self.images.device_slots.take(self.image)
        self.images.host_slots.take(self.image)

    def round_trip(self) -> float:
        begin = self.now()
        self.images.copy_to_host(self.image)
        self.images.copy_to_device(self.image, self.image)
        return self.now() - begin


class Transitions:
    """A continuation's image is demoted; its next turn restores it in place."""

    def __init__(self, now: Clock) -> None:
        self.now = now
        model = LedgerModel()
        model.layout = replace(SHAPE, attention_layers=1, kv_shape=(1, 1))
        # No pass ever runs: the state is whatever the slot holds. KV is kept small, it is not what is measured.
        self.program = Program(model, Vector(2, 1, (4,), 0))
        self.owner, self.tokens = self._first(), 3

    def _first(self) -> OwnerId:
        handle = self._materialize(self._work(3), None)
        self.program.physical.map_pages(self.program.sequence(handle).owner, 0, 1)
        self.program.sequence(handle).frontier += 3
        return self._finish(handle)

    def _finish(self, handle: SequenceHandle) -> OwnerId:
        self.program.end(handle)
        owner = self.program.finish(handle)
        assert owner is not None
        return owner

    @staticmethod
    def _work(tokens: int) -> RequestWork:
        return RequestWork(PreparedPrompt((1,) * tokens, None, OutputStart.ANSWER), tokens + 2, GREEDY)

    def _materialize(self, work: RequestWork, source) -> SequenceHandle:
        handle = self.program.materialize(Target(self.program.activation(source, work)), work)
        assert isinstance(handle, SequenceHandle)
        return handle

    def round_trip(self) -> float:
        program, world = self.program, self.program.world
        begin = self.now()
        steps = successors(identity(world.owners[self.owner], world.replicas))
        demoted = next(step.outcome for step in steps if step.step is Step.DEMOTE_IMAGE)
        assert program.transition(Target(None, {self.owner: demoted})).ending is Ending.COMMITTED
        endpoint = program.world.owners[self.owner].checkpoints[-1]
        source = program.source(self.owner, endpoint, SourceMode.CONSUME)
        handle = self._materialize(self._work(3), source)
        seconds = self.now() - begin
        self.owner = self._finish(handle)
        return seconds


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, default=200)
    options.add_argument("--clock", choices=CLOCKS, default="wall", help="processor: for a busy machine")
    args = options.parse_args(argv)
    pairs, now = args.pairs, CLOCKS[args.clock]
    store, transitions = Store(now), Transitions(now)
    plain = Plain(store.images.image_bytes, now)
    for side in (plain, store, transitions):
        for _ in range(5):
            side.round_trip()
    print(f"StateImage of {store.images.image_bytes / 1e6:.1f} MB; {pairs} pairs", flush=True)
    demands = []
    for name, side in (("copies alone", store), ("whole transitions", transitions)):
        ratio = compare(plain.round_trip, side.round_trip, pairs)
        print(f"{name + ':':18} {ratio}")
        demands.append(Demand(f"median of {name}", ratio.median, MOST, "x"))
    return judged(demands)


if __name__ == "__main__":
    sys.exit(main())
