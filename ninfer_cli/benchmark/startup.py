"""How long a person waits: `ninfer --help`, and `ninfer run` from start to the first byte of the answer."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from ninfer_cli.benchmark.machine import machine
from ninfer_cli.benchmark.report import row_object
from ninfer_cli.benchmark.sample import summary
from ninfer_core import NinferError

COMMANDS = {
    "startup: --help": ["--help"],
    "startup: run, first token": ["run", "--quiet", "--raw", "--max-new", "8", "Hello"],
}


class StartupFailed(NinferError):
    """ninfer said nothing."""


def startup_rows(repetitions: int) -> list[dict[str, Any]]:
    """ttft_ms is the time to the first byte on standard output."""
    rows = []
    for name, arguments in COMMANDS.items():
        _first_byte_ms(arguments)
        times = [_first_byte_ms(arguments) for _ in range(repetitions)]
        settings = {"implementation": "ninfer", "model": "demo", "repetitions": repetitions}
        rows.append(row_object(name, None, summary(times), (None, None), settings, machine()))
    return rows


def _first_byte_ms(arguments: list[str]) -> float:
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "ninfer_cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        first = process.stdout.read(1)
        elapsed = (time.perf_counter() - start) * 1000
        _, err = process.communicate()
    if not first:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        raise StartupFailed(f"ninfer {arguments[0]} gave no answer: {lines[-1] if lines else 'no word'}")
    return elapsed
