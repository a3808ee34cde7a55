"""Kill a chat at random moments, and look at what is left. `python -m tests.cli.killing --count 100 --seed 1`."""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ninfer_cli.repl.tree import Tree
from ninfer_cli.sessions import read_conversation
from ninfer_core import SessionError, SessionStore
from tests.support.ninfer_process import ROOT

SCRIPT = [
    "Hi, I am Bela.",
    "I live in Zurich.",
    "What is my name?",
    "/edit 2 I live in Bern.",
    "Where do I live?",
    "/regen",
    "Tom has a red car.",
]


def start(home: Path, session: Path, script: Path) -> subprocess.Popen[bytes]:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("NINFER_", "XDG_"))},
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "ninfer_cli", "chat", "--script", str(script), "--session", str(session), "-q"]
    command += ["--dtype", "float32", "--temperature", "0.5", "--seed", "3", "--max-context", "1024"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def kept_tree(session: Path) -> Tree | None:
    """What a reader finds; None before the first turn was kept. Anything but that raises."""
    if not (session / "manifest").exists():
        return None
    with SessionStore(session) as store:
        assert store.header is not None
        return read_conversation(store.header.value["conversation"], session).tree


def kill_once(home: Path, number: int, delay: float) -> tuple[int, int]:
    """Start, kill after delay seconds. Returns (replies that had been printed, turns that were kept)."""
    script, session = home / "script.txt", home / f"session-{number}"
    script.write_text("\n".join(SCRIPT) + "\n")
    process = start(home, session, script)
    try:
        process.wait(delay)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    out, _ = process.communicate()
    printed = len([line for line in out.decode().split("\n\n") if line.strip()])
    tree = kept_tree(session)
    return printed, 0 if tree is None else sum(node.parent is not None for node in tree.nodes)


def kill_many(count: int, seed: int, tell: Callable[[str], None] = lambda line: None) -> None:
    """AssertionError where a finished turn is missing. A reply counts as finished once the next one has begun."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        began = time.monotonic()
        printed, turns = kill_once(home, 0, 120)
        whole = time.monotonic() - began
        assert (printed, turns) == (7, 7), "the script itself"
        for number in range(1, count + 1):
            delay = rng.uniform(0.3, 1.0) * whole
            printed, turns = kill_once(home, number, delay)
            tell(f"{number}: killed after {delay:.2f} s, {printed} replies printed, {turns} turns kept")
            assert printed - 1 <= turns <= 7, f"{printed} replies were printed and {turns} turns kept"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        kill_many(arguments.count, arguments.seed, print)
    except SessionError as error:
        raise SystemExit(f"a session does not load: {error}") from error
    print(f"{arguments.count} kills, seed {arguments.seed}: every finished turn was there")


if __name__ == "__main__":
    main()
