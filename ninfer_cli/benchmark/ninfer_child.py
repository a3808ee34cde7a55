"""ninfer's side of a comparison, in a process of its own like the other's, so that peak memory is comparable."""

from __future__ import annotations

import json
import sys

from ninfer_cli.benchmark.machine import peak_rss_bytes
from ninfer_cli.benchmark.measure import measure
from ninfer_cli.benchmark.plan import BenchTest
from ninfer_core import Engine, EngineOptions


def main(text: str) -> None:
    order = json.loads(text)
    tests = [BenchTest(*item) for item in order["tests"]]
    options = EngineOptions(
        model=order["model"],
        device=order["device"],
        dtype=order["dtype"],
        max_context=max(test.context for test in tests),
        max_concurrency=max(test.batch for test in tests),
    )
    found = []
    with Engine(options) as engine:
        for test in tests:
            measure(engine, test, 0)
            sample = measure(engine, test, order["repetition"] + 1)
            found.append([sample.tokens_per_s, sample.ttft_ms])
    json.dump({"samples": found, "peak_rss_bytes": peak_rss_bytes()}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
