"""Keys before `ninfer chat` has its prompt: they wait unseen, and on every way out the terminal is as it was."""

from __future__ import annotations

import os
import shlex
import signal
import termios
import time
import tty
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.ninfer_process import Ninfer
from tests.support.pseudo_terminal import Terminal

READY = "no turn yet"
LAST_STEP = "12 B of 12 B"  # the bar's, before the prompt


class InShell(Ninfer):
    """Between two looks at the terminal's settings, from a shell that outlives it."""

    stopping = False
    """Whether it will be stopped: the shell looks once more, and goes on with it."""

    def command(self, *arguments: str) -> list[str]:
        look, program = 'echo "settings $(stty -g)"', shlex.join(super().command(*arguments))
        if self.stopping:
            program = f"set -m; {program}; echo now in the shell; {look}; echo back in the chat; fg"
        return ["sh", "-c", f"trap : INT; {look}; echo; {program}; echo left with $?; {look}"]


@pytest.fixture
def in_shell(tmp_path: Path) -> InShell:
    return InShell(tmp_path)


def prompts(ninfer: Ninfer) -> list[list[str]]:
    return [entry["prepare"] for entry in ninfer.log if "prepare" in entry]


def settings(t: Terminal) -> list[str]:
    return [line.split()[1] for line in t.text.splitlines() if line.startswith("settings ")]


def program(t: Terminal) -> psutil.Process:
    """What the shell is waiting for."""
    (child,) = psutil.Process(t.child.pid).children()
    return child


def answered(t: Terminal) -> None:
    """The reply is there, and the chat ends when it is told to."""
    t.sees("Here I am.")
    t.sees("TTFT")
    t.type("\x04\x04")
    assert t.ends() == 0


def test_a_message_typed_while_the_model_loads_is_sent(ninfer: Ninfer) -> None:
    ninfer.scenario["load_delay"] = 3.0
    ninfer.replies("Here I am.")
    with Terminal(ninfer, "chat") as t:
        t.sees("weights")
        t.type("hello\r")
        t.sees(LAST_STEP)
        assert "hello" not in t.text, "the terminal echoed it over the bar"
        answered(t)
    assert prompts(ninfer) == [["user: hello"]]


def test_a_message_typed_before_anything_was_loaded_is_sent(ninfer: Ninfer) -> None:
    ninfer.replies("Here I am.")
    with Terminal(ninfer, "chat") as t:
        t.type("hello\r")  # the interpreter starts: the terminal makes a line of it
        answered(t)
    assert prompts(ninfer) == [["user: hello"]]


def test_no_message_goes_on_behind_what_the_terminal_echoed(ninfer: Ninfer) -> None:
    with Terminal(ninfer, "chat") as t:
        t.type("hel")  # the interpreter starts: the terminal echoes
        t.sees("hel")
        t.sees(READY)
        rows = [row for row in t.lines() if "hel" in row]
        assert rows[-1] == "> hel" and "ninfer:" in t.text
        assert not [row for row in rows if "helninfer" in row]
        t.type("\x03\x04")
        assert t.ends() == 0


def test_a_paste_while_the_model_loads_waits_for_enter(ninfer: Ninfer) -> None:
    ninfer.scenario["load_delay"] = 3.0
    ninfer.replies("Here I am.")
    with Terminal(ninfer, "chat") as t:
        t.sees("\x1b[?2004h")  # from here on a terminal marks a paste
        t.sees("weights")
        t.type("\x1b[200~one\rtwo\r\x1b[201~")
        t.sees("two")
        t.type("three\r")
        answered(t)
    assert prompts(ninfer) == [["user: one\ntwo\nthree"]]


def end_of_input(t: Terminal) -> None:
    t.sees(READY)
    t.type("\x04\x04")


def two_interrupts(t: Terminal) -> None:
    t.sees(READY)
    t.type("Hi\r")
    t.sees("replying")
    t.type("\x03\x03")


def ended(number: int, when: str) -> Callable[[Terminal], None]:
    def end(t: Terminal) -> None:
        t.sees(when)
        os.kill(program(t).pid, number)

    return end


def interrupt_while_loading(t: Terminal) -> None:
    t.sees("weights")
    t.type("words\x03")


def typing_while_it_fails(t: Terminal) -> None:
    t.sees("weights")
    t.type("echo these are no commands\r")
    t.sees("ninfer: no such weights")


@pytest.mark.parametrize(
    ("scenario", "leave", "status"),
    [
        ({}, end_of_input, 0),
        ({"load_delay": 20.0}, interrupt_while_loading, 130),
        ({"load_delay": 20.0}, ended(signal.SIGTERM, "weights"), 143),
        ({"load_delay": 20.0}, ended(signal.SIGHUP, "weights"), 129),
        ({}, ended(signal.SIGTERM, READY), 143),
        ({"load_delay": 2.0, "late_error": ["ModelError", "no such weights"]}, typing_while_it_fails, 1),
        ({"replies": [{"text": "a b c", "delay": 20, "ignore_cancel": True}]}, two_interrupts, 130),
    ],
    ids=["control-d", "control-c", "sigterm", "sighup", "sigterm-at-the-prompt", "error", "twice-control-c"],
)
def test_the_terminal_is_left_as_it_was(
    in_shell: InShell, scenario: dict[str, object], leave: Callable[[Terminal], None], status: int
) -> None:
    in_shell.scenario.update(scenario)
    with Terminal(in_shell, "chat") as t:
        leave(t)
        t.sees(f"left with {status}")
        assert t.ends() == 0
        before, after = settings(t)
        assert before == after
        assert t.raw.count("\x1b[?2004h") and t.raw.rindex("\x1b[?2004l") > t.raw.rindex("\x1b[?2004h")


def test_after_a_stop_the_terminal_is_held_again(in_shell: InShell) -> None:
    in_shell.scenario["load_delay"] = 6.0
    with Terminal(in_shell, "chat") as t:
        t.sees("weights")
        held = termios.tcgetattr(t.child.child_fd)
        assert not held[tty.LFLAG] & termios.ECHO
        shells = [*held]
        shells[tty.IFLAG] |= termios.ICRNL
        shells[tty.LFLAG] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(t.child.child_fd, termios.TCSANOW, shells)  # as a shell does while a job is stopped
        program(t).send_signal(signal.SIGCONT)
        while termios.tcgetattr(t.child.child_fd) != held:
            time.sleep(0.02)
        t.type("hello\r")
        t.sees(LAST_STEP)
        assert "hello" not in t.text
        t.sees("You said: hello")
        t.sees("TTFT")
        t.type("\x04\x04")
        t.sees("left with 0")
        assert t.ends() == 0


def test_a_dumb_terminal_reads_lines_as_ever(ninfer: Ninfer) -> None:
    ninfer.scenario["load_delay"] = 1.0
    with Terminal(ninfer, "chat", environment={"TERM": "dumb"}) as t:
        t.sees("loading the model")
        t.type("hello\r")
        t.sees("You said: hello")
        t.sees("> ")
        t.type("\x04\x04")
        assert t.ends() == 0
        assert "\x1b" not in t.raw


def test_stopped_while_the_model_loads_the_terminal_is_the_users(in_shell: InShell) -> None:
    """Of a shell that leaves the terminal's settings alone."""
    in_shell.scenario["load_delay"] = 6.0
    in_shell.stopping = True
    with Terminal(in_shell, "chat") as t:
        t.sees("weights")
        t.type("\x1a")
        t.sees("now in the shell")
        t.sees("settings")
        t.sees("back in the chat")
        t.type("hello\r")
        t.sees(LAST_STEP)
        assert "hello" not in t.text
        t.sees("You said: hello")
        t.sees("TTFT")
        t.type("\x04\x04")
        t.sees("left with 0")
        assert t.ends() == 0
        before, meanwhile, after = settings(t)
        assert before == meanwhile == after
        stopped = t.raw.index("now in the shell")
        assert t.raw.rindex("\x1b[?2004l", 0, stopped) > t.raw.rindex("\x1b[?2004h", 0, stopped)
        assert "\x1b[?2004h" in t.raw[stopped : t.raw.index(LAST_STEP)]


def test_control_d_before_anything_was_loaded_leaves(ninfer: Ninfer) -> None:
    """The terminal does not keep it as a character."""
    with Terminal(ninfer, "chat") as t:
        t.type("\x04")
        assert t.ends() == 0
    assert prompts(ninfer) == []


def test_control_backslash_while_the_model_loads_is_a_key(in_shell: InShell) -> None:
    in_shell.scenario["load_delay"] = 3.0
    with Terminal(in_shell, "chat") as t:
        t.sees("weights")
        t.type("\x1chello\r")
        t.sees("You said: ")
        t.sees("TTFT")
        t.type("\x04\x04")
        t.sees("left with 0")
        assert t.ends() == 0
