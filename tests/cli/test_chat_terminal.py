"""`ninfer chat` in a pseudo-terminal: keys, interrupts, the screen."""

from __future__ import annotations

import os
import re
import signal
import stat
import time

import pytest

from tests.support.ninfer_process import Ninfer
from tests.support.pseudo_terminal import Terminal

SLOW = {"text": "one two three four five six", "delay": 0.4}
READY = "no turn yet"  # the toolbar: the application reads keys now


def prompts(ninfer: Ninfer) -> list[list[str]]:
    return [entry["prepare"] for entry in ninfer.log if "prepare" in entry]


def test_two_turns_and_control_d(ninfer: Ninfer) -> None:
    ninfer.replies({"text": "# Title\n\n**Hello** there.\n\n- a\n- b", "reasoning": "They greet."}, "Goodbye.")
    with Terminal(ninfer, "chat", "-s", "Be kind.") as t:
        t.sees("demo model")
        t.sees(READY)
        t.type("Hi\r")
        t.sees("greet.")
        t.sees("TTFT")
        t.type("Bye\r")
        t.sees("Goodbye.")
        t.sees("TTFT")
        t.sees("turn 2")
        t.type("\x04\x04")
        assert t.ends() == 0
        assert "\x1b[1mHello" in t.raw and "• a" in t.text
    assert prompts(ninfer)[1][0] == "system: Be kind."
    assert prompts(ninfer)[1][2].startswith("assistant: # Title")
    assert [entry["reasoning"] for entry in ninfer.log if "reasoning" in entry][1][2] == "They greet."
    assert ninfer.log[-1] == {"closed": True}


def test_control_c_ends_the_reply_and_keeps_it(ninfer: Ninfer) -> None:
    ninfer.replies(SLOW, "and on")
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("Hi\r")
        t.sees("two")
        t.type("\x03")
        t.sees("interrupted")
        t.type("More\r")
        t.sees("and on")
        t.type("\x04\x04")
        assert t.ends() == 0
    assert prompts(ninfer)[1][1].startswith("assistant: one two") and "six" not in prompts(ninfer)[1][1]


def test_control_c_during_prefill_gives_the_text_back(ninfer: Ninfer) -> None:
    ninfer.replies({"text": "never", "prefill_delay": 3.0}, "now")
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("Question\r")
        t.sees("replying")
        time.sleep(0.2)
        t.type("\x03")
        t.sees("no turn was made")
        t.sees("Question")
        t.type(" again\r")
        t.sees("now")
        t.type("\x04\x04")
        assert t.ends() == 0
    assert prompts(ninfer) == [["user: Question"], ["user: Question again"]]


def test_a_second_control_c_leaves_at_once(ninfer: Ninfer) -> None:
    ninfer.replies({"text": "a b c", "delay": 20, "ignore_cancel": True})
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("Hi\r")
        t.sees("replying")
        t.type("\x03")
        time.sleep(0.3)
        started = time.monotonic()
        t.type("\x03")
        assert t.ends() == 130 and time.monotonic() - started < 5


def test_control_c_at_the_prompt(ninfer: Ninfer) -> None:
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("half a line")
        t.sees("half a line")
        t.type("\x03")
        t.type("\x03")
        t.sees("ninfer: Ctrl-D leaves")
        t.type("whole\r")
        t.sees("You")
        t.sees("TTFT")
        t.type("\x04\x04")
        assert t.ends() == 0
    assert prompts(ninfer) == [["user: whole"]]


def test_typing_during_a_reply_stays_and_enter_queues_one(ninfer: Ninfer) -> None:
    ninfer.replies(SLOW, "second", "third")
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("Hi\r")
        t.sees("one")
        t.type("next\r")
        t.sees("queued: next")
        t.type("too much\r")
        t.sees("queued already")
        t.sees("second")
        t.sees("TTFT")
        t.type("\r")
        t.sees("third")
        t.type("\x04\x04")
        assert t.ends() == 0
    assert prompts(ninfer)[1][-1] == "user: next" and prompts(ninfer)[2][-1] == "user: too much"


def test_new_lines_and_pastes_never_send(ninfer: Ninfer) -> None:
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("\x1b[200~pasted \\\rlines\r\x1b[201~")
        t.sees("lines")
        t.type("\x1b\r")
        t.type("alt\n")
        t.type("ctrl-j\\")
        t.sees("ctrl-j")
        t.type("\r")
        time.sleep(0.5)  # keys that come together are a paste, whose backslashes are text
        t.type("end\r")
        t.sees("TTFT")
        t.type("a\rb\rc\r")  # together, without bracketed paste: one submission
        t.sees("TTFT")
        t.type("\x04\x04")
        assert t.ends() == 0
    first, second = prompts(ninfer)
    assert first == ["user: pasted \\\nlines\n\nalt\nctrl-j\nend"]
    assert second[-1] == "user: a\nb\nc"


def test_commands_and_their_errors(ninfer: Ninfer) -> None:
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("/hepl\r")
        t.sees("did you mean /help?")
        t.type("//literally\r")
        t.sees("TTFT")
        t.type("/undo\r")
        t.sees("0 turns left")
        t.type("/bye\r")
        assert t.ends() == 0
    assert prompts(ninfer) == [["user: /literally"]]


def test_nothing_foreign_reaches_the_terminal_raw(ninfer: Ninfer) -> None:
    ninfer.replies({"text": ["safe \x1b", "]0;title\x07 \u202eevil [bold]x[/bold] [l](http://h)"]})
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("Hi\r")
        t.sees("TTFT")
        t.type("\x04\x04")
        assert t.ends() == 0
        assert "\x1b]0;" not in t.raw and "\x07" not in t.raw and "\u202e" not in t.raw and "\x1b]8" not in t.raw
        assert "\\x1b]0;title\\x07 \\u202eevil [bold]x[/bold]" in t.text


def test_history_is_private_and_leaves_out_spaces(ninfer: Ninfer) -> None:
    path = ninfer.home / "state" / "ninfer" / "history"
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("remember me\r")
        t.sees("TTFT")
        t.type(" secret\r")
        t.sees("TTFT")
        t.type("\x04\x04")
        assert t.ends() == 0
    assert "remember me" in path.read_text() and "secret" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    before = path.read_text()
    with Terminal(ninfer, "chat", "--no-history") as t:
        t.sees(READY)
        t.type("unseen\r")
        t.sees("TTFT")
        t.type("\x04\x04")
        assert t.ends() == 0
    assert path.read_text() == before


def test_a_failed_turn_leaves_the_conversation_unchanged(ninfer: Ninfer) -> None:
    ninfer.replies({"text": "so", "finish": "error", "error": "the row failed"}, "fine")
    with Terminal(ninfer, "chat", "--max-context", "12") as t:
        t.sees(READY)
        t.type("one\r")
        t.sees("ninfer: the row failed")
        t.type("a b c d e f g h i j k l m\r")
        t.sees("the context holds 12")
        t.type("two\r")
        t.sees("fine")
        t.type("\x04\x04")
        assert t.ends() == 0
    assert prompts(ninfer)[-1] == ["user: two"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_termination_ends_the_reply_first(ninfer: Ninfer, number: int, status: int) -> None:
    ninfer.replies(SLOW)
    with Terminal(ninfer, "chat") as t:
        t.sees(READY)
        t.type("Hi\r")
        t.sees("one")
        os.kill(t.child.pid, number)
        assert t.ends() == status
        assert "interrupted" in t.text
    assert ninfer.log[-1] == {"closed": True}


def test_dumb_terminal_gets_no_escape_code(ninfer: Ninfer) -> None:
    ninfer.replies({"text": "**plain** text", "reasoning": "r"}, SLOW)
    with Terminal(ninfer, "chat", environment={"TERM": "dumb"}) as t:
        t.sees("> ")
        t.type("Hi\n")
        t.sees("**plain** text")
        t.sees("> ")
        t.type("\x03")
        t.sees("Ctrl-D leaves")
        t.type("again\n")
        t.sees("two")
        t.type("\x03")
        t.sees("interrupted")
        t.sees("> ")
        t.type("\x04\x04")
        assert t.ends() == 0
        assert "\x1b" not in t.raw


def test_no_color_keeps_the_editor_without_colours(ninfer: Ninfer) -> None:
    ninfer.replies("**plain** text")
    with Terminal(ninfer, "chat", environment={"NO_COLOR": "1"}) as t:
        t.sees(READY)
        t.type("Hi\r")
        t.sees("TTFT")
        t.type("\x04\x04")
        assert t.ends() == 0
        assert "**plain** text" in t.text and "\x1b[2m" not in t.raw
        assert not re.search(r"\x1b\[(?:\d+;)*(?:[349]\d|10\d)(?:;\d+)*m", t.raw)


def test_run_on_a_terminal(ninfer: Ninfer) -> None:
    ninfer.replies({"text": "**bold** \x1b[31m", "reasoning": "why"})
    with Terminal(ninfer, "run", "Hi") as t:
        assert t.ends() == 0
        assert "\x1b[1mbold\x1b[0m \\x1b[31m" in t.raw and "\x1b[2mwhy\x1b[0m" in t.raw
    with Terminal(ninfer, "run", "Hi", environment={"NO_COLOR": "1"}) as t:
        assert t.ends() == 0
        assert "**bold** \\x1b[31m" in t.raw and "\x1b" not in t.raw
    with Terminal(ninfer, "run") as t:
        assert t.ends() == 2 and "ninfer chat" in t.text
