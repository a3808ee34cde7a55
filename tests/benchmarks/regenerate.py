"""Time to the first token of a regenerated reply, against the decode steps of the same reply.

    python -m tests.benchmarks.regenerate MODEL [--tokens 2048] [--rounds 7] [--new 8]

MODEL is a checkpoint directory. One conversation of so many tokens is read once; then its last reply is generated again
and again. Demanded of each: at most three of its own decode steps and 10 ms.
"""

from __future__ import annotations

import argparse
import random
import statistics
from pathlib import Path

from ninfer_core import CacheIntent, Completion, Engine, EngineOptions, GenerationRequest, Message, SamplingParams

STEPS, EXTRA_MS = 3, 10.0


def conversation(engine: Engine, tokens: int) -> list[Message]:
    """A system message and a question of about so many tokens together."""
    rng = random.Random(1)

    def text(want: int) -> str:
        words = ["so"]
        while len(engine.prepare_text(" ".join(words))) < want:
            words += [rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(16)]
        return " ".join(words)

    return [Message("system", text(tokens // 2)), Message("user", text(tokens - tokens // 2 - 16))]


def reply(engine: Engine, messages: list[Message], new: int) -> Completion:
    prompt = engine.prepare(messages)
    cache = CacheIntent(session="bench")
    asked = GenerationRequest(prompt, SamplingParams(temperature=0), max_new=new, ignore_end=True, cache=cache)
    result = engine.submit(asked).result()
    if result.error:
        raise SystemExit(result.error)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--new", type=int, default=8)
    args = parser.parse_args()
    ratios = []
    with Engine(EngineOptions(model=args.model, max_context=2 * args.tokens)) as engine:
        messages = conversation(engine, args.tokens)
        cold = reply(engine, messages, args.new).statistics
        print(f"{engine.info.model}, {engine.info.dtype}, {engine.info.threads} threads", end="; ")
        print(f"cold: {cold.usage.prompt_tokens} tokens, TTFT {cold.timings.ttft_ms:.0f} ms", flush=True)
        for number in range(args.rounds):
            stats = reply(engine, messages, args.new).statistics
            times = stats.timings
            assert times.ttft_ms is not None and times.prefill_ms is not None and times.queued_ms is not None
            assert times.decode_tokens_per_s is not None
            step = 1e3 / times.decode_tokens_per_s
            ratios.append(times.ttft_ms / (STEPS * step + EXTRA_MS))
            print(
                f"  {number}: TTFT {times.ttft_ms:6.1f} ms = queued and planned {times.queued_ms:5.1f} (planning "
                f"{stats.planning.ms:.1f}) + prefill {times.prefill_ms:6.1f} of {stats.usage.prefill_tokens} tokens; "
                f"step {step:6.1f} ms; {times.ttft_ms / step:.2f} steps; {stats.reuse.source.value} "
                f"{stats.reuse.operation.value}; captures "
                + ", ".join(f"{c.kind.value}@{c.frontier} {c.outcome}" for c in stats.captures),
                flush=True,
            )
    worst = max(ratios)
    print(f"of what is demanded ({STEPS} steps and {EXTRA_MS:g} ms): ", end="")
    met = "met" if worst <= 1 else "NOT met"
    print(f"median {100 * statistics.median(ratios):.0f} %, worst {100 * worst:.0f} %: {met}")


if __name__ == "__main__":
    main()
