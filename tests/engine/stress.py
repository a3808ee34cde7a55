"""Eight callers at once, with cancels, interrupts and slow readers, over a small cache and a small fp32 model.

    python -m tests.engine.stress --minutes 10 --seed 1 [--lanes 1..8 | --lanes any]

Every reply is compared with a cold run of its own tokens: each token must be the best one there, or lie within 1e-4 of
it. At the end the audit holds, no request, claim or thread is left, and memory is where it was.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch

from ninfer_core import (
    CacheIntent,
    CacheMode,
    Completion,
    ContextCacheOptions,
    Engine,
    EngineOptions,
    FinishReason,
    GenerationRequest,
    Message,
    SamplingParams,
)
from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.kernels.batch import Row
from ninfer_core.models.model import Model
from ninfer_core.program.execution.pending import PendingBatch
from tests.support.checkpoints import Tiny
from tests.support.pools import Pools, taps
from tests.support.tokenizers import write_bytes

GREEDY = SamplingParams(temperature=0)
CLOSE_ENOUGH = 1e-4
CALLERS, MOST_LANES, CONTEXT = 8, 8, 1024
MOST_NEW = 48
ROUND_SECONDS = 20.0
"""With any number of lanes: so long each."""


def options_for(directory: Path, lanes: int) -> EngineOptions:
    """Room for every lane's usual conversation and for few others: whoever comes makes somebody give way."""
    cache = ContextCacheOptions(
        device_state_slots=4,
        host_state_slots=4,
        host_kv_capacity_bytes=1 << 20,
        max_private_continuations=lanes + 3,
        max_shared_prefixes=3,
        max_long_anchors_per_continuation=2,
    )
    return EngineOptions(
        model=directory,
        max_concurrency=lanes,
        max_context=CONTEXT,
        kv_capacity=(16 + 6 * lanes) * 64,
        prefill_chunk=64,
        cache=cache,
    )


def tiny(directory: Path) -> Path:
    """The model of the Engine's tests."""
    return write_bytes(Tiny(changes={"vocab_size": 272, "eos_token_id": 258}).write(directory))


class Cold:
    """One cold pass over prompt and reply, with the logits after every token of the reply."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._pools = Pools(model, slots=MOST_NEW + 2, pages=CONTEXT // 64)

    @torch.inference_mode()
    def shortfalls(self, prompt: tuple[int, ...], reply: tuple[int, ...]) -> list[float]:
        """By how much each reply token's logit lies below the best one."""
        with self._lock:
            first, count = len(prompt), len(reply)
            cuts = taps(*((first + i, i + 1) for i in range(count - 1)))
            row = Row([*prompt, *reply[:-1]], 0, None, 0, [*range(CONTEXT // 64)], cuts)
            last = self._pools.hidden(row)
            hidden = [self._pools.state.hidden[i + 1] for i in range(count - 1)]
            logits = self._model.logits(torch.stack([*hidden, last[0]]))
        return [float(line.max() - line[token]) for line, token in zip(logits, reply, strict=True)]


@dataclass
class Figures:
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    reused_tokens: int = 0
    prompt_tokens: int = 0
    near_ties: int = 0
    rows: Counter[int] = field(default_factory=Counter)
    """Decode rounds by how many requests were in them."""
    memory: list[int] = field(default_factory=list)
    """Resident bytes, once per round of the watcher."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def growth(self) -> int:
        """Bytes between the middle of the run and its end."""
        middle = self.memory[len(self.memory) // 2 :]
        return middle[-1] - middle[0]


class Caller:
    """One conversation at a time, as a person might lead it: on, once more, back to an earlier turn, or anew."""

    def __init__(self, engine: Engine, cold: Cold, figures: Figures, seed: int) -> None:
        self._engine = engine
        self._cold = cold
        self._figures = figures
        self._rng = random.Random(seed)
        self._name = f"caller {seed}"
        self._messages: list[Message] = []

    def turn(self) -> None:
        rng, messages = self._rng, self._messages
        kind = rng.choice(("on", "on", "on", "again", "back", "new"))
        if kind == "again" and messages:
            messages.pop()
        elif kind == "back" and len(messages) > 2:
            del messages[2 * rng.randrange(len(messages) // 2) :]
        elif kind == "new" or len(messages) > 8:
            messages.clear()
        if not messages:
            messages.append(Message("system", "You are helpful. " * rng.choice((1, 4))))
        if messages[-1].role != "user":
            messages.append(Message("user", "".join(rng.choices("abcdefgh ", k=rng.randint(3, 40))) + "?"))
        prompt = self._engine.prepare(messages)
        if len(prompt) > CONTEXT - MOST_NEW - 8:
            messages.clear()
            return
        reply = self._ask(prompt)
        messages.append(Message("assistant", reply.text or "..."))

    def _ask(self, prompt: PreparedPrompt) -> Completion:
        rng, figures = self._rng, self._figures
        mode = CacheMode.DISABLED if rng.random() < 0.05 else CacheMode.READ_WRITE
        intent = CacheIntent(mode, session=self._name if rng.random() < 0.8 else None, sibling=rng.random() < 0.1)
        most = rng.randint(2, MOST_NEW)
        handle = self._engine.submit(GenerationRequest(prompt, GREEDY, most, ignore_end=True, cache=intent))
        fate = rng.random()
        if fate < 0.15:
            time.sleep(rng.random() * 0.05)
            (handle.cancel if fate < 0.08 else handle.interrupt)()
        elif fate < 0.3:
            for _ in handle.events():
                time.sleep(0.005)
        result = handle.result(300)
        short = self._cold.shortfalls(prompt.token_ids, result.token_ids) if result.token_ids else []
        with figures.lock:
            figures.counts[result.finish_reason.value] += 1
            figures.counts[f"from {result.statistics.reuse.source.value}"] += 1
            figures.reused_tokens += result.statistics.usage.reused_tokens
            figures.prompt_tokens += result.statistics.usage.prompt_tokens
            figures.near_ties += sum(0 < gap <= CLOSE_ENOUGH for gap in short)
            if result.error:
                figures.problems.append(f"{self._name}: {result.error}")
            if any(gap > CLOSE_ENOUGH for gap in short):
                figures.problems.append(f"{self._name}: a token lies {max(short)} below the best one")
            if result.finish_reason is FinishReason.LENGTH and len(result.token_ids) != most:
                figures.problems.append(f"{self._name}: {len(result.token_ids)} of {most} tokens")
        return result


def stress(directory: Path, seconds: float, seed: int, lanes: int = MOST_LANES) -> Figures:
    """Run it. Raises AssertionError where something is left behind; problems of replies are in the figures."""
    figures = Figures()
    one_round(directory, seconds, seed, lanes, figures)
    return figures


def stress_any(directory: Path, seconds: float, seed: int) -> Figures:
    """The same in rounds, each with an Engine and a number of lanes of its own."""
    rng, figures = random.Random(seed), Figures()
    rounds = max(1, round(seconds / ROUND_SECONDS))
    for number in range(rounds):
        lanes = rng.randint(1, MOST_LANES)
        figures.counts[f"rounds with {lanes} lanes"] += 1
        one_round(directory, seconds / rounds, seed + number, lanes, figures)
    return figures


def one_round(directory: Path, seconds: float, seed: int, lanes: int, figures: Figures) -> None:
    """Eight callers for so long. What is left of their requests is looked for at the end."""
    threads_before = set(threading.enumerate())
    with Engine(options_for(directory, lanes)) as engine:
        manager, program = engine._manager, engine._worker._program
        execute = program.execute

        def counted(work: Sequence[tuple[SequenceHandle, int]]) -> PendingBatch:
            pending = execute(work)
            if all(row.executed <= 1 for row in pending.rows):
                figures.rows[len(work)] += 1
            return pending

        program.execute = counted  # type: ignore[method-assign]
        cold = Cold(program.model)
        callers = [Caller(engine, cold, figures, 100 * seed + n) for n in range(CALLERS)]
        until = time.monotonic() + seconds

        def lead(caller: Caller) -> None:
            try:
                while time.monotonic() < until:
                    caller.turn()
            except BaseException as error:
                with figures.lock:
                    figures.problems.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=lead, args=(caller,)) for caller in callers]
        for thread in threads:
            thread.start()
        process, audits = psutil.Process(), 0
        while any(thread.is_alive() for thread in threads):
            engine.audit()
            audits += 1
            figures.memory.append(process.memory_info().rss)
            threads[0].join(max(0.2, seconds / 100))
            if not threads[0].is_alive():
                time.sleep(0.05)
        engine.audit()
        figures.memory.append(process.memory_info().rss)
        figures.counts["audits"] += audits
        assert all(owner.lane is None for owner in program.world.owners.values()), "a sequence was left"
        assert not manager._running and not manager._decisions.waiting and manager.at_rest, "a request was left"
    assert set(threading.enumerate()) <= threads_before, "a thread was left"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--lanes",
        choices=[*map(str, range(1, MOST_LANES + 1)), "any"],
        default=str(MOST_LANES),
        help="requests at once",
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        model, seconds = tiny(Path(directory) / "model"), 60 * args.minutes
        if args.lanes == "any":
            figures = stress_any(model, seconds, args.seed)
        else:
            figures = stress(model, seconds, args.seed, int(args.lanes))
    for what, count in sorted(figures.counts.items()):
        print(f"{count:9} {what}")
    print(f"{figures.reused_tokens:,} of {figures.prompt_tokens:,} prompt tokens reused; {figures.near_ties} near ties")
    print(f"decode rounds by rows: {dict(sorted(figures.rows.items()))}")
    print(f"memory {figures.memory[-1] >> 20} MiB, {figures.growth / (1 << 20):+.1f} MiB since the middle of the run")
    print("\n".join(figures.problems) or "every reply is its cold run's; the audit held; nothing was left")
    raise SystemExit(bool(figures.problems))


if __name__ == "__main__":
    main()
