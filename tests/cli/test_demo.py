"""The command line on the bundled demo model: what a stranger sees first."""

from __future__ import annotations

import json

from tests.cli.test_real_model import real
from tests.support.ninfer_process import Ninfer


def test_the_first_command_of_the_readme(ninfer: Ninfer) -> None:
    done = real(ninfer, "run", "My name is Bela and I live in Torvik. What is my name?")
    assert done.returncode == 0 and "Bela" in done.stdout and done.stderr.count("\n") == 1


def test_a_conversation_depends_on_what_was_said(ninfer: Ninfer) -> None:
    script = "My name is Ronel.\nWhat is my name?\n/undo 2\nMy name is Tavik.\nWhat is my name?\n"
    done = real(ninfer, "chat", "--greedy", "--json", "--max-context", "512", "--script", "-", stdin=script)
    texts = [value["text"] for line in done.stdout.splitlines() if "text" in (value := json.loads(line))]
    assert done.returncode == 0, done.stderr
    assert "Ronel" in texts[1] and "Tavik" in texts[3] and "Ronel" not in texts[3]
