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
from ninfer_core import Engine, EngineOptions, Message, SamplingParams, SessionError, SessionStore
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


def kill_once(home: Path, number: int, replies: int, delay: float) -> tuple[int, int, float]:
    """Start, and kill a delay in seconds after so many replies were printed.

    Returns:
        Replies that had been printed, turns that were kept, and seconds from the first to the last reply.

    Raises:
        AssertionError: it was not alive to be killed: nothing is shown then.
    """
    script, session = home / "script.txt", home / f"session-{number}"
    script.write_text("\n".join(SCRIPT) + "\n")
    process = start(home, session, script)
    assert process.stdout is not None
    out, first = b"", 0.0
    # A reply is followed by a blank line as soon as the next one begins.
    while printed(out) < replies and (data := os.read(process.stdout.fileno(), 65536)):
        out += data
        first = first or time.monotonic()
    took = time.monotonic() - first
    try:
        process.wait(delay)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    ended = process.returncode
    assert printed(out) >= replies and ended in (0, -signal.SIGKILL), f"the chat ended by itself, with status {ended}"
    tree = kept_tree(session)
    kept = 0 if tree is None else sum(node.parent is not None for node in tree.nodes)
    return printed(out + rest), kept, took


def printed(out: bytes) -> int:
    return len([part for part in out.decode("utf-8", "replace").split("\n\n") if part.strip()])


def resumes(engine: Engine, session: Path) -> int:
    """Go on with what was kept: how many tokens of the next prompt need not be read again."""
    tree = kept_tree(session)
    assert tree is not None
    restored = engine.restore_session(session)
    assert not restored.dropped and not restored.left_out
    done = engine.generate(
        [*tree.messages(), Message("user", "And?")], max_new=1, sampling=SamplingParams(temperature=0)
    )
    return done.statistics.usage.reused_tokens


def kill_many(count: int, seed: int, tell: Callable[[str], None] = lambda line: None) -> None:
    """AssertionError where a finished turn is missing, or would be read again from its first token. A reply counts as
    finished once the next one has begun."""
    rng = random.Random(seed)
    options = EngineOptions(dtype="float32", max_context=1024)
    with tempfile.TemporaryDirectory() as directory, Engine(options) as engine:
        home = Path(directory)
        said, turns, took = kill_once(home, 0, len(SCRIPT), 600)
        assert (said, turns) == (len(SCRIPT), len(SCRIPT)), "the script itself"
        for number in range(1, count + 1):
            replies, delay = rng.randrange(len(SCRIPT)), rng.uniform(0, 2) * took / len(SCRIPT)
            said, turns, _ = kill_once(home, number, replies, delay)
            assert said - 1 <= turns <= len(SCRIPT), f"{said} replies were printed and {turns} turns kept"
            reused = resumes(engine, home / f"session-{number}") if turns else 0
            tell(
                f"{number}: killed {delay:.2f} s after reply {replies}: {said} replies printed, {turns} turns kept, "
                f"{reused} tokens reused"
            )
            assert reused > 0 or not turns, "the next turn reads everything again"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        kill_many(arguments.count, arguments.seed, print)
    except SessionError as error:
        raise SystemExit(f"a session does not load: {error}") from error
    print(f"{arguments.count} kills, seed {arguments.seed}: every finished turn was there, and is gone on from")


if __name__ == "__main__":
    main()
