"""Prefill and decode throughput beside transformers, in one interleaved run.

    python -m tests.benchmarks.compare_transformers MODEL [--rounds 3] [--threads 2] [--steps 16]

MODEL is a checkpoint directory, for instance one with random weights of a published shape. Both sides are loaded in a
process of their own and take turns, so that whatever else the machine does slows both alike. The best round counts.
On a busy machine compare the second table, tokens per second of processor time, with --threads 1. Demanded: not slower
than transformers in any row of the first table, and no more memory.
"""

from __future__ import annotations

import multiprocessing as mp
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from tests.benchmarks.demands import Demand, judged, parser

CASES = [("prefill", 512), ("prefill", 2048), ("decode", 512), ("decode", 2048)]
Speeds = tuple[float, float]
"""Tokens per second of wall time and of processor time."""
Side = Callable[[str, int, int], Speeds]
"""(kind, length, steps) -> speeds."""


class Clock:
    """Starts when made."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), time.process_time()

    def speeds(self, count: int) -> Speeds:
        return count / (time.perf_counter() - self._begin[0]), count / (time.process_time() - self._begin[1])


def tokens(length: int, vocab: int) -> list[int]:
    return random.Random(length).choices(range(vocab), k=length)


def ours(model: Path) -> Side:
    from ninfer_core.kernels.batch import Row
    from ninfer_core.models.loader import load_model
    from tests.support.pools import Pools

    loaded = load_model(model)
    pools, pages = Pools(loaded, slots=2, pages=40), range(40)

    def run(kind: str, length: int, steps: int) -> Speeds:
        prompt = tokens(length, loaded.layout.vocab_size)
        clock = Clock()
        token = int(pools.run(Row(prompt, 0, None, 0, pages)).argmax())
        if kind == "prefill":
            return clock.speeds(length)
        clock = Clock()
        for position in range(length, length + steps):
            token = int(pools.run(Row([token], position, 0, 0, pages)).argmax())
        return clock.speeds(steps)

    return run


def theirs(model: Path) -> Side:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.AutoConfig.from_pretrained(model).get_text_config()
    kind = "Qwen3_5MoeForCausalLM" if "moe" in config.model_type else "Qwen3_5ForCausalLM"
    loaded = getattr(transformers, kind).from_pretrained(model, config=config, dtype="auto", attn_implementation="sdpa")
    loaded.eval()

    @torch.inference_mode()
    def run(kind: str, length: int, steps: int) -> Speeds:
        prompt = torch.tensor([tokens(length, config.vocab_size)])
        clock = Clock()
        out = loaded(prompt, use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1].argmax(dim=-1, keepdim=True)
        if kind == "prefill":
            return clock.speeds(length)
        clock = Clock()
        for _ in range(steps):
            out = loaded(token, past_key_values=out.past_key_values, use_cache=True, logits_to_keep=1)
            token = out.logits[:, -1].argmax(dim=-1, keepdim=True)
        return clock.speeds(steps)

    return run


def serve(make: Callable[[Path], Side], model: Path, threads: int, pipe: Connection) -> None:
    """A side's process: answers (kind, length, steps) with a throughput, and None with its peak memory in MiB."""
    import torch

    torch.set_num_threads(threads)
    begin = time.perf_counter()
    side = make(model)
    pipe.send(time.perf_counter() - begin)
    while (job := pipe.recv()) is not None:
        pipe.send(side(*job))
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--steps", type=int, default=16)
    args = options.parse_args(argv)
    context = mp.get_context("spawn")
    pipes, workers = [], []
    for make in (ours, theirs):
        here, there = context.Pipe()
        workers.append(context.Process(target=serve, args=(make, args.model, args.threads, there)))
        workers[-1].start()
        there.close()  # the process has its own: when that is gone, nothing comes any more
        pipes.append(here)
        try:
            print(f"{make.__name__} loaded in {here.recv():.1f} s", file=sys.stderr)
        except EOFError:
            for worker in workers:
                worker.terminate()
            print(f"NOT met: {make.__name__} could not be measured: see above (transformers comes with '.[test]')")
            return 1
    best = {case: [(0.0, 0.0), (0.0, 0.0)] for case in CASES}
    for round_ in range(args.rounds + 1):  # the first warms up
        for case in CASES:
            for i, pipe in enumerate(pipes):
                pipe.send((*case, args.steps))
                speeds = pipe.recv()
                if round_:
                    best[case][i] = (max(best[case][i][0], speeds[0]), max(best[case][i][1], speeds[1]))
            print(f"round {round_} {case}: {best[case]}", file=sys.stderr)
    for unit, what in enumerate(("tok/s", "tok per processor second")):
        print(f"| test | ours {what} | transformers {what} | ratio |\n|---|---|---|---|")
        for (kind, length), (a, b) in best.items():
            print(f"| {kind} {length} | {a[unit]:.1f} | {b[unit]:.1f} | {a[unit] / b[unit]:.2f} |")
        print()
    peaks = []
    for pipe, worker in zip(pipes, workers, strict=True):
        pipe.send(None)
        peaks.append(pipe.recv())
        worker.join()
    print(f"| peak RSS, MiB | {peaks[0]:.0f} | {peaks[1]:.0f} | {peaks[0] / peaks[1]:.2f} |")
    demands = [
        Demand(f"{kind} {length}, times transformers' tok/s", a[0] / b[0], 1.0, least=True)
        for (kind, length), (a, b) in best.items()
    ]
    return judged([*demands, Demand("peak RSS, times transformers'", peaks[0] / peaks[1], 1.0)])


if __name__ == "__main__":
    sys.exit(main())
