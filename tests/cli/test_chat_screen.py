"""`ninfer chat` in a pseudo-terminal: every command, questions, and what a person sees, drawn by an emulator."""

from __future__ import annotations

import re
import signal
import time
from base64 import b64encode
from pathlib import Path

from ninfer_cli.repl.render import LIVE_ROWS, fitting
from tests.support.ninfer_process import Ninfer
from tests.support.pseudo_terminal import Terminal

READY = "no turn yet"


def prompts(ninfer: Ninfer) -> list[list[str]]:
    return [entry["prepare"] for entry in ninfer.log if "prepare" in entry]


def test_every_command_on_a_terminal(ninfer: Ninfer, tmp_path: Path) -> None:
    slow = {"text": "one two three", "delay": 0.05}
    ninfer.replies("First.", slow, {"text": "Second other.", "delay": 0.2}, "Third.", "Fourth.", "Fifth. Sixth.")
    (tmp_path / "doc.txt").write_text("DOC\n")
    (tmp_path / "there.md").write_text("mine")
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)

        def does(command: str, sees: str) -> None:
            t.type(command + "\r")
            t.sees(sees)

        does("hello", "TTFT")
        does("/branch main", "branch main: turn 1")
        t.sees("[main]")  # the toolbar
        does("/regen 2", "2/2: ")  # how far the other sibling is
        t.sees("sibling 3/3: Second other.  (/next)")
        t.sees("TTFT")
        t.sees("sibling 2/3")
        does("/next", "turn 1, sibling 3/3")
        t.sees("> hello")
        t.sees("Second other.")
        does("/prev", "turn 1, sibling 2/3")
        does("/switch main", "turn 1, sibling 1/3 [main]")
        t.type("/edit\r")
        t.sees("/edit 1 hello")
        does(" again", "Third.")
        t.sees("TTFT")
        t.type("/rewrite\r")
        t.sees("/rewrite Third.")
        does(" Truly.", "rewritten: turn 1, sibling 5/5")
        does("/continue", "Fourth.")
        t.sees("TTFT")
        does("/tree", "* 6")
        does("/undo", "0 turns left")
        does("/redo", "sibling 6/6")
        does("/export there.md", "there.md exists. Overwrite it?")
        t.sees("[y/N]")
        does("n", "was left as it is")
        does("/export there.md", "[y/N]")
        t.type("\x03")
        t.sees("was left as it is")
        assert (tmp_path / "there.md").read_text() == "mine"
        does("/export there.md", "[y/N]")
        does("y", "1 turn written")
        does("/new", "a new conversation")
        does("/import there.md", "1 turn read")
        t.sees("Truly.Fourth.")
        does("/copy", "20 characters sent")
        does("/file doc.txt", "4 characters to go before")
        does("/set top-k 3", "top-k = 3")
        does("/think on", "thinking: on")
        does("/system Be kind.", "reads")
        does("sum", "Fifth. Sixth.")
        does("/stats", "finish stop")
        does("/help edit", "/edit [K] [TEXT]")
        t.type("/exit\r")
        assert t.ends() == 0
        assert f"\x1b]52;c;{b64encode(b'Third. Truly.Fourth.').decode()}\x07" in t.raw
    said = prompts(ninfer)
    assert said[-1] == ["system: Be kind.", "user: hello again", "assistant: Third. Truly.Fourth.", "user: DOC\n\nsum"]


def test_what_is_seen_is_there_once(ninfer: Ninfer) -> None:
    """Tall, wide and long output while the window changes: every line once, in order, none left over."""
    paragraphs = [f"L{i:02d} " + ("\u4f60\u597d\u4e16\u754c " * 12 if i % 3 else "x" * 150) for i in range(30)]
    text = "\n\n".join([*paragraphs, "```\n" + "\n".join(f"code {i:02d}" for i in range(30)) + "\n```", "END"])
    pieces = [text[i : i + 40] for i in range(0, len(text), 40)]
    ninfer.replies({"text": pieces, "delay": 0.01})
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("Hi\r")
        t.sees("L05")
        t.type("half a question")
        t.sees("L08")
        t.resize(100, 30)
        t.sees("L14")
        t.resize(120, 18)
        t.sees("END")
        t.sees("TTFT")
        t.sees("half a question")
        seen = t.lines()
        t.type("\x03\x04\x04")
        assert t.ends() == 0
    found = [match[0] for line in seen for match in re.finditer(r"\bL\d\d\b|code \d\d|END", line)]
    assert found == [*(f"L{i:02d}" for i in range(30)), *(f"code {i:02d}" for i in range(30)), "END"]
    assert sum("half a question" in line for line in seen) == 1
    glyphs = "".join(seen).replace(" ", "")
    assert glyphs.count("\u4f60\u597d\u4e16\u754c") == 20 * 12


def test_the_rows_of_a_line_without_end_stay_while_it_grows() -> None:
    text = "".join(chr(0x4E00 + i % 5000) if i % 3 else "x" for i in range(20_000))
    moved = 0
    last = ""
    for end in range(3, len(text) + 1, 7):
        rows = fitting(text[:end], 80, 24).split("\n")
        assert len(rows) <= LIVE_ROWS and text[:end].endswith("".join(rows))
        moved += not any(row.startswith(last) for row in rows[-2:])
        last = rows[-1]
    assert moved <= 4  # where what was read long ago is let go


def test_pastes_of_ten_thousand_lines(ninfer: Ninfer) -> None:
    lines = [f"line {i}" for i in range(10_000)]
    ninfer.scenario["info"] = {"max_context": 100_000}
    ninfer.replies("Got it.", "Got that.")
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("\x1b[200~" + "\r".join(lines) + "\x1b[201~")
        t.sees("line 9999")
        t.type("\r")
        t.sees("and 9960 more lines")
        t.sees("Got it.")
        t.sees("TTFT")
        t.type("".join(f"row {i}\r" for i in range(600)) + "end\r")  # no bracketed paste, several reads: one message
        t.sees("Got that.")
        t.type("\x04\x04")
        assert t.ends() == 0
    first, second = prompts(ninfer)
    assert first == ["user: " + "\n".join(lines)]
    assert second[-1] == "user: " + "\n".join([*(f"row {i}" for i in range(600)), "end"])


def test_control_c_while_loading(ninfer: Ninfer) -> None:
    ninfer.scenario["load_delay"] = 20.0
    with Terminal(ninfer, "chat") as t:
        t.sees("weights")
        t.type("\x03")
        assert t.ends() == 130
        assert "Traceback" not in t.text and not ninfer.log


def test_a_dumb_terminal_asks_and_regenerates(ninfer: Ninfer, tmp_path: Path) -> None:
    ninfer.replies("A", "B", "C")
    (tmp_path / "t.md").write_text("mine")
    nowhere = {"XDG_STATE_HOME": "/dev/null/state", "HOME": "/dev/null/home"}  # a home that cannot be written to
    with Terminal(ninfer, "chat", environment={"TERM": "dumb", **nowhere}) as t:
        t.sees("> ")
        t.type("Hi\n")
        t.sees("TTFT")
        t.type("/regen 2\n")
        t.sees("sibling 3/3: C  (/next)")
        t.type("/export t.md\n")
        t.sees("[y/N] ")
        t.type("\x03")
        t.sees("was left as it is")
        t.type("/export t.md\n")
        t.sees("[y/N] ")
        t.type("y\n")
        t.sees("1 turn written")
        t.type("/edit 1\n")
        t.sees("give the TEXT behind it")
        t.type("/copy\n")
        t.sees("/copy needs a terminal with a clipboard")
        t.type("\x04\x04")
        assert t.ends() == 0
        assert "\x1b" not in t.raw


def test_a_home_that_cannot_be_written_costs_the_history_only(ninfer: Ninfer) -> None:
    nowhere = {"XDG_STATE_HOME": "/dev/null/state", "HOME": "/dev/null/home"}
    with Terminal(ninfer, "chat", environment=nowhere) as t:
        t.sees(READY)
        t.type("Hi\r")
        t.sees("TTFT")
        t.type("\x1b[A\r")  # the arrow still finds the line
        t.sees("turn 2")
        t.type("\x04\x04")
        assert t.ends() == 0
    assert prompts(ninfer)[1][-1] == "user: Hi"


def test_control_c_ends_all_siblings_and_the_edit_comes_back(ninfer: Ninfer) -> None:
    slow = {"text": "one two three four five six", "delay": 0.4}
    ninfer.replies("A", slow, slow, slow, {"text": "never", "prefill_delay": 5.0})
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("Hi\r")
        t.sees("TTFT")
        t.type("/regen 3\r")
        t.sees("3/3: ")
        t.sees("two")
        t.type("\x03")
        t.sees("interrupted")
        t.sees("sibling 4/4")
        t.type("/edit 1 Hello\r")
        t.sees("replying")
        time.sleep(0.3)
        t.type("\x03")
        t.sees("no turn was made")
        t.sees("/edit 1 Hello")
        t.type("\x03")
        t.type("/tree\r")
        t.sees("sibling 4/4: Hi -> one")
        t.type("\x04\x04")
        assert t.ends() == 0
    submitted = [entry for entry in ninfer.log if "submit" in entry]
    assert len(submitted) == 5


def test_a_pipe_that_closes_ends_a_script_quietly(ninfer: Ninfer, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("one\ntwo\nthree\n")
    process = ninfer.replies({"text": ["x" * 1000] * 200, "delay": 0.01}).start("chat", "-q", "--script", "s")
    assert process.stdout and process.stderr
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(timeout=20) == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else Ctrl-C is ignored in all of these
