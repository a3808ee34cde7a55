"""What sessions cost: autosave of a turn, and a restore against reading the prompt again.

    python -m tests.benchmarks.sessions /path/to/checkpoint --tokens 2048

Autosave: bytes against those of the objects that are new, time against a plain write and fsync of as many bytes to the
same disk; both are repeated in turn and the medians are compared. Restore: the first in a fresh process, and later
ones, against the prefill of the same tokens. The first needs the fingerprint of the weights: it is taken beside loading
(EngineOptions.sessions, what the commands do that use sessions), or within that restore; loading is shown for both.
Demanded, of a model of the 0.8B shape: at most 5 % more than the new bytes, at most 1.3 times the plain write, and a
first restore, with the fingerprint taken beside loading, at least 25 times as fast as the prefill of 2,048 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ninfer_core import CacheIntent, Engine, EngineOptions, GenerationRequest, SamplingParams, SessionStore
from ninfer_core.program.session_store import SessionStore as Store
from tests.benchmarks.demands import Demand, judged, parser

GREEDY = SamplingParams(temperature=0)

MOST_BYTES, MOST_TIME, LEAST_FASTER = 1.05, 1.3, 25


def plain_write(directory: Path, count: int) -> float:
    """Seconds of a write and an fsync of count bytes into a new file."""
    data, path = os.urandom(count), directory / "plain"
    began = time.perf_counter()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
    os.fsync(handle)
    os.close(handle)
    seconds = time.perf_counter() - began
    path.unlink()
    return seconds


def new_bytes(engine: Engine, store: Store, paths: list[tuple[int, ...]]) -> int:
    """Of the states and keys and values that the store does not hold yet."""
    persistence = engine._sessions._persistence
    snapshot = engine._worker.call(lambda: persistence.snapshot(paths, store)).snapshot
    pieces = sum(piece.data.numel() for piece in snapshot.pieces.values())
    return pieces + sum(image.numel() for image in snapshot.images.values())


def turns(engine: Engine, directory: Path, count: int) -> list[Demand]:
    ledger = tuple(i * 37 % 1000 + 300 for i in range(512))
    paths: list[tuple[int, ...]] = []
    with SessionStore(directory / "store") as store:
        rows = []
        for turn in range(count):
            prompt = engine.prepare_tokens((*ledger, *(turn * 7 + i + 300 for i in range(24))))
            request = GenerationRequest(prompt, GREEDY, 24, ignore_end=True, cache=CacheIntent(session="talk"))
            done = engine.submit(request).result()
            ledger = (*done.prompt_token_ids, *done.token_ids)
            paths.append(ledger)
            new = new_bytes(engine, store, paths)
            began = time.perf_counter()
            saved = engine.autosave(store, paths, {"turn": turn})
            seconds = time.perf_counter() - began
            plain = plain_write(directory, new)
            rows.append((new, saved.written, seconds, plain))
            print(f"turn {turn}: new {new:,} written {saved.written:,} ({saved.written / new:.3f}x), "
                  f"{seconds * 1e3:.0f} ms, plain {plain * 1e3:.0f} ms", flush=True)  # fmt: skip
    later = rows[1:]
    ratio = statistics.median(row[2] for row in later) / statistics.median(row[3] for row in later)
    most = max(written / new for new, written, _, _ in later)
    return [
        Demand("autosave, bytes that are written, times the new ones", most, MOST_BYTES),
        Demand("autosave, median time, times a plain write of as many bytes", ratio, MOST_TIME),
    ]


@dataclass(frozen=True)
class Start:
    """Seconds in a fresh process: until the Engine is there, the first restore, the quickest of three more."""

    load: float
    first: float
    later: float


def measured_start(model: Path, file: Path, tokens: int, sessions: bool) -> Start:
    """In this process, which must be fresh. Imports are done, and are no part of it."""
    options = EngineOptions(model=model, max_context=tokens + 256, max_concurrency=1, sessions=sessions)
    began = time.perf_counter()
    with Engine(options) as engine:
        seconds = [time.perf_counter() - began]
        for _ in range(4):
            began = time.perf_counter()
            engine.restore_session(file)
            seconds.append(time.perf_counter() - began)
    return Start(seconds[0], seconds[1], min(seconds[2:]))


def fresh_start(model: Path, file: Path, tokens: int, sessions: bool) -> Start:
    words = [sys.executable, "-m", "tests.benchmarks.sessions", str(model), "--tokens", str(tokens)]
    words += ["--restore", str(file)] + ["--sessions"] * sessions
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return Start(**json.loads(done.stdout))


def restore(model: Path, directory: Path, tokens: int, starts: int) -> Demand:
    file = directory / "talk"
    options = EngineOptions(model=model, max_context=tokens + 256, max_concurrency=1, sessions=True)
    with Engine(options) as engine:
        prompt = engine.prepare_tokens([i * 37 % 1000 + 300 for i in range(tokens)])
        began = time.perf_counter()
        engine.prefill(prompt)
        prefill = time.perf_counter() - began
        size = engine.save_session(file, [prompt.token_ids], {}).bytes
    print(f"prefill of {tokens} tokens {prefill:.2f} s; file {size / 2**20:.0f} MiB; {os.cpu_count()} CPUs")
    rows: dict[bool, list[Start]] = {False: [], True: []}
    for _ in range(starts):  # in turn, so that both see the same machine
        for sessions in (False, True):
            rows[sessions].append(fresh_start(model, file, tokens, sessions))
    faster = 0.0
    for sessions, found in rows.items():  # with the fingerprint beside loading last
        load, first, later = (
            statistics.median(getattr(start, name) for start in found) for name in ("load", "first", "later")
        )
        print(f"fingerprint taken {'beside loading' if sessions else 'when it is needed'}: load {load:.2f} s, "
              f"first restore {first:.3f} s ({prefill / first:.0f}x faster than prefill), both {load + first:.2f} s; "
              f"later restores {later:.3f} s ({prefill / later:.0f}x faster)")  # fmt: skip
        faster = prefill / first
    return Demand("first restore, times as fast as prefill", faster, LEAST_FASTER, least=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("--tokens", type=int, default=2048, help="0: only autosave")
    options.add_argument("--turns", type=int, default=6, help="0: only restore")
    options.add_argument("--starts", type=int, default=3, help="fresh processes that restore, of either kind")
    options.add_argument("--restore", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--sessions", action="store_true", help=argparse.SUPPRESS)
    asked = options.parse_args(argv)
    if asked.restore is not None:
        print(json.dumps(asdict(measured_start(asked.model, asked.restore, asked.tokens, asked.sessions))))
        return 0
    demands: list[Demand] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if asked.turns > 1:
            with Engine(EngineOptions(model=asked.model, max_context=2048, max_concurrency=1)) as engine:
                demands += turns(engine, directory, asked.turns)
        if asked.tokens:
            demands.append(restore(asked.model, directory, asked.tokens, asked.starts))
    return judged(demands)


if __name__ == "__main__":
    sys.exit(main())
