"""Two implementations side by side, in turn: a process for each repetition of each, so that both meet the same load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from ninfer_cli.benchmark.machine import machine
from ninfer_cli.benchmark.report import row_object
from ninfer_cli.benchmark.sample import summary
from ninfer_core import NinferError

if TYPE_CHECKING:
    from ninfer_cli.benchmark.plan import BenchTest

IMPLEMENTATIONS = ("ninfer", "transformers")


class ComparisonFailed(NinferError):
    """A child process ended badly."""


def compare(
    tests: Sequence[BenchTest], settings: dict[str, Any], repetitions: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Rows of every test for both implementations.

    Args:
        settings: model (a directory), device, dtype and threads, as ninfer resolved them.
        tell: called before each process with what is going on.
    """
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in IMPLEMENTATIONS}
    for repetition in range(repetitions):
        for name in IMPLEMENTATIONS:
            tell(f"{name}, repetition {repetition + 1} of {repetitions}")
            order = {**settings, "repetition": repetition, "tests": [list(astuple(test)) for test in tests]}
            results[name].append(_child(name, order))
    rows = []
    for index, test in enumerate(tests):
        for name in IMPLEMENTATIONS:
            samples = [result["samples"][index] for result in results[name]]
            shown = {
                "implementation": name,
                "batch": test.batch,
                **settings,
                "repetitions": repetitions,
                "peak_rss_bytes": max(result["peak_rss_bytes"] for result in results[name]),
            }
            rates, ttft = summary([s[0] for s in samples]), summary([s[1] for s in samples if s[1] is not None])
            rows.append(row_object(test.name, rates, ttft, (0, test.prompt_tokens * test.batch), shown, machine()))
    return rows


def _child(name: str, order: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", f"ninfer_cli.benchmark.{name}_child", json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise ComparisonFailed(f"the {name} process ended with {done.returncode}: {lines[-1] if lines else 'no word'}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
