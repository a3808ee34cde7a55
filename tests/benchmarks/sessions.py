"""What sessions cost: autosave of a turn, and a restore against reading the prompt again.

    python -m tests.benchmarks.sessions /path/to/checkpoint --tokens 2048

Autosave: bytes against those of the objects that are new, time against a plain write and fsync of as many bytes to the
same disk; both are repeated in turn and the medians are compared. Restore: against the prefill of the same tokens.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from ninfer_core import CacheIntent, Engine, EngineOptions, GenerationRequest, SamplingParams, SessionStore
from ninfer_core.program.session_store import SessionStore as Store

GREEDY = SamplingParams(temperature=0)


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


def turns(engine: Engine, directory: Path, count: int) -> None:
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
    print(f"autosave: at most {max(w / n for n, w, _, _ in later):.3f}x the new bytes; median time {ratio:.2f}x")


def restore(model: Path, directory: Path, tokens: int) -> None:
    file = directory / "talk"
    options = EngineOptions(model=model, max_context=tokens + 256, max_concurrency=1)
    with Engine(options) as engine:
        prompt = engine.prepare_tokens([i * 37 % 1000 + 300 for i in range(tokens)])
        began = time.perf_counter()
        engine.prefill(prompt)
        prefill = time.perf_counter() - began
        size = engine.save_session(file, [prompt.token_ids], {}).bytes
    with Engine(options) as engine:
        began = time.perf_counter()
        engine.restore_session(file)
        first = time.perf_counter() - began
        again = []
        for _ in range(3):
            began = time.perf_counter()
            engine.restore_session(file)
            again.append(time.perf_counter() - began)
    best = min(again)
    print(f"prefill of {tokens} tokens {prefill:.2f} s; file {size / 2**20:.0f} MiB")
    print(f"restore {first:.2f} s with the fingerprint of the weights ({prefill / first:.0f}x faster)")
    print(f"restore {best:.3f} s after it ({prefill / best:.0f}x faster)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=2048, help="0: only autosave")
    parser.add_argument("--turns", type=int, default=6, help="0: only restore")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if asked.turns > 1:
            with Engine(EngineOptions(model=asked.model, max_context=2048, max_concurrency=1)) as engine:
                turns(engine, directory, asked.turns)
        if asked.tokens:
            restore(asked.model, directory, asked.tokens)


if __name__ == "__main__":
    main()
