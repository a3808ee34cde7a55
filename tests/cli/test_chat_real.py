"""`ninfer chat` in a pseudo-terminal on the demo model: the mechanics only, its words may be any."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.ninfer_process import Ninfer
from tests.support.pseudo_terminal import Terminal


class Real(Ninfer):
    """The real program on the real Engine."""

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "ninfer_cli", *arguments]


@pytest.mark.timeout(300)
def test_a_conversation_with_the_demo_model(tmp_path: Path) -> None:
    with Terminal(Real(tmp_path), "chat", "--dtype", "float32", "--seed", "5") as t:
        t.child.timeout = 90
        t.sees("no turn yet")

        def does(line: str, sees: str) -> None:
            t.type(line + "\r")
            t.sees(sees)

        does("Hello!", "TTFT")
        does("/set temperature 1", "temperature = 1.0")
        does("/regen 3", "sibling 4/4: ")
        t.sees("TTFT")
        does("/edit 1 My name is Bela.", "TTFT")
        does("/rewrite Hello Bela", "sibling 6/6")
        does("/continue", "TTFT")
        does("/export talk.json", "1 turn written")
        # so hot that the reply goes on and on: Ctrl-C while decoding
        does("/set temperature 100", "temperature = 100.0")
        t.type("Talk.\r")
        t.child.expect(rb"(?s)replying.{250}")  # the live text moves
        t.type("\x03")
        t.sees("interrupted: what is there stays")
        t.sees("TTFT")
        # a message that takes a while to read: Ctrl-C during prefill
        t.type("\x1b[200~" + "word " * 6000 + "\x1b[201~")
        t.sees("word word")
        t.type("\r")
        t.sees("reading the prompt: ")
        t.type("\x03")
        t.sees("no turn was made")
        t.type("\x03")
        does("/tree", "(interrupted)")
        does("/import talk.json", "1 turn read")
        t.type("\x04\x04")
        assert t.ends() == 0
        assert "Traceback" not in t.text
