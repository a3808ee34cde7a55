"""The recorded conversation with the demo model: every reply again, byte for byte; and other facts, other replies."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_real_model import real
from tests.support.ninfer_process import Ninfer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "eight_turns"


def replay(ninfer: Ninfer, script: str) -> list[str]:
    done = real(ninfer, "chat", "--script", "-", "--greedy", "--dtype", "float32", "-q", stdin=script)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n").split("\n\n")


def test_the_transcript_is_what_the_model_says(ninfer: Ninfer) -> None:
    said = replay(ninfer, (EXAMPLE / "script.txt").read_text(encoding="utf-8"))
    assert said == (EXAMPLE / "transcript.txt").read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    assert len(said) == 8
    for turn, fact in ((3, "Bela"), (5, "Torvik"), (6, "green"), (7, "not told")):
        assert fact in said[turn]


def test_other_facts_give_other_replies(ninfer: Ninfer) -> None:
    script = (EXAMPLE / "script.txt").read_text(encoding="utf-8")
    said = replay(ninfer, script.replace("Bela", "Maria").replace("green", "red"))
    assert "Maria" in said[3] and "Bela" not in said[3]
    assert "red" in said[6] and "green" not in said[6]
