"""What one checkpoint costs during a prefill: interleaved pairs of the same prefill with and without a capture.

    python -m tests.benchmarks.capture MODEL [--pairs 15] [--tokens 2048] [--chunk 512]

MODEL is a checkpoint directory. The capture is everything that a request pays for it: the transition that grants its
room, the cut and the tap in the pass, the copied tail page, the publication. Demanded: at most 1.5 %, by the median.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.plans import RequestWork, SequenceHandle
from ninfer_core.contract.prompt import OutputStart, PreparedPrompt
from ninfer_core.contract.results import ResourceResult
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.models.loader import load_model
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.target import Target
from ninfer_core.program.program import Program
from tests.benchmarks.demands import Demand, judged, parser
from tests.benchmarks.interleaved import compare

MOST = 1.015
"""Times the same prefill without a capture."""


class Bench:
    def __init__(self, model: Path, tokens: int, chunk: int) -> None:
        loaded = load_model(model)
        pages = 2 * -(-tokens // 64) + 4
        self.program = Program(loaded, Vector(3, 0, (pages,), 0))
        prompt = random.Random(1).choices(range(loaded.layout.vocab_size), k=tokens)
        prepared = PreparedPrompt(tuple(prompt), None, OutputStart.ANSWER)
        self.work = RequestWork(prepared, tokens + 1, SamplingParams(temperature=0))
        self.frontier, self.chunk = Frontier(tokens * 3 // 4 + 21), chunk
        """Not at a chunk's end, and not aligned: the dearest place for a capture."""

    def prefill(self, captures: bool, processor: bool) -> float:
        """Seconds of one prefill on the clock, or of processor time."""
        program, now = self.program, time.process_time if processor else time.perf_counter
        handle = program.materialize(Target(program.activation(None, self.work)), self.work)
        assert isinstance(handle, SequenceHandle)
        begin = now()
        if captures:
            result = program.transition(Target(program.capture_demand(handle, self.frontier, on_device=True)))
            assert isinstance(result, ResourceResult) and result.grant is not None
            program.arm(handle, self.frontier, SourceKind.TURN_CLOSURE, result.grant)
        while program.sequence(handle).frontier < len(self.work.prompt):
            program.execute([(handle, self.chunk)]).commit([handle])
        seconds = now() - begin
        assert len(program.owner_of(handle).checkpoints) == captures
        program.discard(handle)
        return seconds


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("--pairs", type=int, default=15)
    options.add_argument("--tokens", type=int, default=2048)
    options.add_argument("--chunk", type=int, default=512)
    options.add_argument("--processor-time", action="store_true", help="for a busy machine, with one thread")
    args = options.parse_args(argv)
    bench = Bench(args.model, args.tokens, args.chunk)
    timed = args.processor_time
    warm = bench.prefill(False, timed)
    print(f"{args.tokens} tokens prefill in {warm:.2f} s; {args.pairs} pairs", flush=True)
    ratio = compare(lambda: bench.prefill(False, timed), lambda: bench.prefill(True, timed), args.pairs)
    print(f"prefill with one capture: {ratio}")
    return judged([Demand("median of prefill with one capture", ratio.median, MOST, "x")])


if __name__ == "__main__":
    sys.exit(main())
