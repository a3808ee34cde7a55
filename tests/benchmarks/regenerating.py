"""The first token of a regenerated reply on the demo model, against the decode step of the same replies.

python -m tests.benchmarks.regenerating --repeats 40
"""

from __future__ import annotations

import argparse
import os
import statistics

from ninfer_core import CacheIntent, Completion, Engine, EngineOptions, GenerationRequest, Message, SamplingParams

STEPS, PLUS_MS = 3, 10.0
"""The limit: so many decode steps and so many milliseconds."""
TURNS = ("My name is Bela and I live in Torvik.", "My favourite colour is green.", "What is my name?")


def talk(engine: Engine) -> list[Message]:
    """Some turns; ends with a question that has been answered once."""
    messages: list[Message] = []
    for text in TURNS:
        messages.append(Message("user", text))
        done = _reply(engine, messages, seed=1)
        messages.append(Message("assistant", done.text, reasoning_content=done.reasoning or ""))
    return messages[:-1]


def _reply(engine: Engine, messages: list[Message], seed: int) -> Completion:
    prompt = engine.prepare(messages)
    sampling = SamplingParams(temperature=0.8, seed=seed)
    # Long enough for a decode step to be measured, whatever the model wants to say.
    request = GenerationRequest(prompt, sampling, 32, ignore_end=True, cache=CacheIntent(session="talk"))
    return engine.submit(request).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=40)
    arguments = parser.parse_args()
    firsts, steps = [], []
    with Engine(EngineOptions(dtype="float32", max_concurrency=4)) as engine:
        messages = talk(engine)
        for number in range(arguments.repeats):
            done = _reply(engine, messages, seed=number + 2)
            statistic = done.statistics
            assert statistic.reuse.frontier > 0 and statistic.usage.prefill_tokens < 32, "nothing was reused"
            assert statistic.timings.ttft_ms is not None and statistic.timings.decode_tokens_per_s is not None
            firsts.append(statistic.timings.ttft_ms)
            steps.append(1000 / statistic.timings.decode_tokens_per_s)
    first, step = statistics.median(firsts), statistics.median(steps)
    limit = STEPS * step + PLUS_MS
    print(f"{arguments.repeats} regenerated replies, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"decode step {step:.1f} ms, first token {first:.1f} ms (most {max(firsts):.1f})")
    print(
        f"first token: {first / step:.2f} decode steps; the limit of {STEPS} steps + {PLUS_MS:.0f} ms is {limit:.1f} ms"
    )
    if first > limit:
        raise SystemExit("too slow")


if __name__ == "__main__":
    main()
