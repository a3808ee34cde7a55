"""How long a key takes to its echo while a reply is generated, against the decode step of the same reply.

    python -m tests.benchmarks.keystrokes --keys 200

`ninfer chat` runs in a pseudo-terminal on the demo model, so hot that its replies are long. Keys come at a person's
pace; each is a character that nothing else writes, so that its echo cannot be taken for another's or for the reply's.
Demanded: at most three decode steps at p99.
"""

from __future__ import annotations

import os
import random
import re
import select
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from ptyprocess import PtyProcess

from tests.benchmarks.demands import Demand, judged, parser, percentile
from tests.support.ninfer_process import Ninfer

LIMIT = 3
"""Decode steps that an echo may take, at the 99th percentile."""
CURSOR_QUERY = b"\x1b[6n"
FIRST = 0x2500
"""Box drawing and other narrow signs, several hundred of them."""
LINE = 40
"""Keys before the line is cleared with Ctrl-U."""
ENDED = b"TTFT"
"""Is shown with a reply's figures."""
RATE = re.compile(rb"([\d.]+) tok/s")


class Keyboard:
    """A program in a pseudo-terminal, without a terminal emulator's own time."""

    def __init__(self, command: list[str], environment: dict[str, str], home: Path) -> None:
        self._process = PtyProcess.spawn(command, env=environment, cwd=str(home), dimensions=(24, 100))
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close(force=True)

    def type(self, text: str) -> None:
        os.write(self._process.fd, text.encode())

    def until(self, what: bytes, patience: float = 120) -> float:
        """Read until the bytes were written. Returns the moment; AssertionError after patience seconds."""
        begin = len(self.seen)
        end = time.perf_counter() + patience
        while self.seen.find(what, max(0, begin - len(what))) < 0:
            left = end - time.perf_counter()
            assert left > 0, f"{what!r} did not come: {self.seen[-500:]!r}"
            self._read(left)
        return time.perf_counter()

    def rest(self, seconds: float) -> None:
        """Go on reading for a while."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._read(left)

    def _read(self, patience: float) -> None:
        if select.select([self._process.fd], [], [], patience)[0]:
            data = os.read(self._process.fd, 65536)
            self.seen += data
            for _ in range(data.count(CURSOR_QUERY)):
                self.type("\x1b[20;1R")


def measure(keys: int, seed: int) -> tuple[list[float], float]:
    """Seconds of each echo, and of a decode step."""
    pace = random.Random(seed)
    echoes: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        ninfer = Ninfer(Path(directory))
        command = [sys.executable, "-m", "ninfer_cli", "chat", "--dtype", "float32", "--temperature", "100"]
        command += ["--max-new", "30000", "--no-color"]
        with Keyboard(command, ninfer.environment, ninfer.home) as board:
            board.until(b"no turn yet")
            while len(echoes) < keys:
                _reply(board, pace, echoes, keys)
            rates = [float(rate) for rate in RATE.findall(board.seen)]
    return echoes, 1 / statistics.median(rates)


def _reply(board: Keyboard, pace: random.Random, echoes: list[float], keys: int) -> None:
    """Type during one reply, until it ends by itself or there are enough echoes; an echo behind its end counts not."""
    ended = board.seen.count(ENDED)
    board.type("/new\r")  # a full context would end it
    board.until(b"a new conversation")
    board.rest(0.2)
    board.type("Talk.\r")
    board.until(b"replying")
    board.rest(0.5)
    for number in range(keys):
        if board.seen.count(ENDED) > ended or len(echoes) == keys:
            break
        sign = chr(FIRST + number)
        began = time.perf_counter()
        board.type(sign)
        took = board.until(sign.encode()) - began
        if board.seen.count(ENDED) == ended:
            echoes.append(took)
        if number % LINE == LINE - 1:
            board.type("\x15")
        board.rest(pace.uniform(0.05, 0.2))
    board.type("\x15")
    board.rest(0.2)  # an end that is not on the screen yet is no reason to send Ctrl-C
    if board.seen.count(ENDED) == ended:
        board.type("\x03")
        board.until(ENDED)
    board.rest(0.5)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--keys", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    arguments = options.parse_args(argv)
    echoes, step = measure(arguments.keys, arguments.seed)
    p99 = percentile(echoes, 0.99)
    print(f"{len(echoes)} keys, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"decode step {step * 1000:.1f} ms")
    middle, most = statistics.median(echoes), max(echoes)
    print(f"echo: median {middle * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, most {most * 1000:.1f} ms")
    return judged([Demand("p99 of the echo", p99 / step, LIMIT, " decode steps")])


if __name__ == "__main__":
    sys.exit(main())
