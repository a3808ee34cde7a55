"""Record every example again: `python examples/record.py`. Run it when the demo model or a message has changed.

A directory with a script.txt is an example. Its transcript.txt holds what

    ninfer chat --script script.txt --keep-going -q --dtype float32 2>&1

writes: replies and what commands say, in their order. tests/scenarios replays all of them and compares every byte.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
sys.path.insert(0, str(EXAMPLES.parent))

from ninfer_cli.commands.chat import CHAT_LANES  # noqa: E402
from ninfer_cli.output import Stream, Streams  # noqa: E402
from ninfer_cli.repl.chat import Chat  # noqa: E402
from ninfer_cli.repl.loop import script_loop  # noqa: E402
from ninfer_cli.settings import Settings  # noqa: E402
from ninfer_core import Engine, EngineOptions  # noqa: E402


def names() -> list[str]:
    return sorted(path.parent.name for path in EXAMPLES.glob("*/script.txt"))


def replay(script: str) -> str:
    """What a script writes. It runs in an empty directory, on an Engine of its own; float32 gives the same tokens on
    every CPU, and the demo model is greedy unless the script sets a temperature."""
    written, before = io.StringIO(), Path.cwd()
    stream = Stream(written, terminal=False, styled=False)
    options = EngineOptions(dtype="float32", max_concurrency=CHAT_LANES)
    with tempfile.TemporaryDirectory() as empty, Engine(options) as engine:
        os.chdir(empty)
        state = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = empty  # the key that signs sessions
        try:
            chat = Chat.start(engine, Settings(dtype="float32", quiet=True), None, [])
            script_loop(chat, script.split("\n"), Streams(stream, stream, quiet=True), keep_going=True)
        finally:
            os.chdir(before)
            if state is None:
                del os.environ["XDG_STATE_HOME"]
            else:
                os.environ["XDG_STATE_HOME"] = state
    return written.getvalue()


def main() -> None:
    for name in names():
        written = replay((EXAMPLES / name / "script.txt").read_text(encoding="utf-8"))
        (EXAMPLES / name / "transcript.txt").write_text(written, encoding="utf-8")
        print(f"{name}: {len(written.splitlines())} lines")


if __name__ == "__main__":
    main()
