"""The recorded examples: every byte again, and what must hold whatever the demo model's words are."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from ninfer_cli.repl.commands import COMMANDS
from ninfer_cli.repl.submission import Command, read
from ninfer_cli.repl.submission import script as submissions
from tests.support.ninfer_process import ROOT


def recorder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record", ROOT / "examples" / "record.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORD = recorder()


@pytest.mark.parametrize("name", [name for name in RECORD.names() if name != "eight_turns"])
def test_a_recorded_example_is_what_the_model_says(name: str) -> None:
    folder = ROOT / "examples" / name
    script, transcript = ((folder / file).read_text(encoding="utf-8") for file in ("script.txt", "transcript.txt"))
    assert RECORD.replay(script) == transcript, "run: python examples/record.py"


def test_the_examples_show_the_commands_of_the_table() -> None:
    """Every command that makes or moves something occurs; a renamed one would only fail within its transcript."""
    used = set()
    for name in RECORD.names():
        lines = (ROOT / "examples" / name / "script.txt").read_text(encoding="utf-8").split("\n")
        found = [read(line.text) for line in submissions(lines)]
        used |= {command.name for command in found if isinstance(command, Command)}
    known = {row.name for row in COMMANDS}
    assert used <= known
    assert known - used <= {"help", "think", "file", "copy", "stats", "why", "exit"}
