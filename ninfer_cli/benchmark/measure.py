"""Measure a test on an Engine, through its public calls."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from ninfer_cli.benchmark.sample import Sample
from ninfer_core import CacheIntent, CacheMode, Finished, GenerationRequest, NinferError, Prefilled, SamplingParams

if TYPE_CHECKING:
    from ninfer_cli.benchmark.plan import BenchTest
    from ninfer_core import Completion, Engine, RequestHandle


class BenchmarkFailed(NinferError):
    """A request of a benchmark ended with an error."""


def measure(engine: Engine, test: BenchTest, repetition: int) -> Sample:
    """One repetition. Prompts are random tokens, other ones each time, so that nothing could be reused by accident.

    pp is prompts' tokens over the time from submission to the last prompt's end; behind a depth, the same prompts
    without their last tokens are timed too and taken off. tg counts one token per sequence and round, at the rate of
    the sequence that began last: only then were all of them running.
    """
    completions, seconds = _prefill(engine, test, test.prompt_tokens, repetition)
    timings = [completion.statistics.timings for completion in completions]
    if test.kind == "pp":
        if test.depth:
            seconds -= _prefill(engine, test, test.depth, repetition)[1]
        if seconds <= 0:
            raise BenchmarkFailed(f"{test.name}: the machine is too busy to tell {test.tokens} tokens behind a depth")
        rate = test.tokens * test.batch / seconds
    else:
        last = max(timings, key=lambda timing: timing.ttft_ms or 0)
        rate = (last.decode_tokens_per_s or 0) * test.batch
    usages = [completion.statistics.usage for completion in completions]
    return Sample(
        tokens_per_s=rate,
        ttft_ms=max((timing.ttft_ms for timing in timings if timing.ttft_ms is not None), default=None),
        reused_tokens=sum(usage.reused_tokens for usage in usages),
        prefill_tokens=sum(usage.prefill_tokens for usage in usages),
    )


def _prefill(engine: Engine, test: BenchTest, length: int, repetition: int) -> tuple[list[Completion], float]:
    """Run one request per sequence to its end; the completions, and the seconds until every prompt was in the state."""
    requests = [_request(engine, test, length, f"{repetition} {row}") for row in range(test.batch)]
    start = time.perf_counter()
    return _finish([engine.submit(request) for request in requests], start)


def _request(engine: Engine, test: BenchTest, length: int, seed: str) -> GenerationRequest:
    rng = random.Random(f"{test.name} {seed}")
    return GenerationRequest(
        prompt=engine.prepare_tokens([rng.randrange(engine.info.vocab_size) for _ in range(length)]),
        sampling=SamplingParams(temperature=0),
        max_new=test.new_tokens,
        ignore_end=True,
        cache=CacheIntent(CacheMode.DISABLED),
    )


def _finish(handles: list[RequestHandle], start: float) -> tuple[list[Completion], float]:
    found: dict[int, Completion] = {}
    prefilled = 0.0
    while len(found) < len(handles):
        for row, handle in enumerate(handles):
            if row in found:
                continue
            event = handle.next_event(0.001 if len(handles) > 1 else 0.1)
            if isinstance(event, Prefilled) and event.done == event.total:
                prefilled = time.perf_counter() - start
            elif isinstance(event, Finished):
                if event.completion.error:
                    raise BenchmarkFailed(event.completion.error)
                found[row] = event.completion
    return [found[row] for row in range(len(handles))], prefilled
