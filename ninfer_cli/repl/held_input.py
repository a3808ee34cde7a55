"""HeldInput: what is typed before the prompt is there waits for it, as it was typed.

Left to itself the terminal turns Enter into a line feed, which the prompt takes as a line break within the message,
and echoes every key over the progress bar.
"""

from __future__ import annotations

import os
import select
import signal
import termios
import tty
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Self, TextIO

from ninfer_cli.output import ERASE_LINE

PASTES_MARKED, PASTES_PLAIN = "\x1b[?2004h", "\x1b[?2004l"
"""Bracketed paste: else the line ends of a paste could not be told from Enter, and would send it."""

Handler = Callable[[int, FrameType | None], None]


class HeldInput:
    """From here to `restore`, or the end of the context, the terminal keeps keys as they are and shows none of them.

    Ctrl-C still interrupts, and Ctrl-Z stops: meanwhile the terminal is the user's. Ctrl-\\ waits like any key. The
    prompt's own mode lies within: it comes and goes as it likes. Nothing happens where input is no terminal, or belongs
    to another job at the moment.

    Args:
        keys, screen: standard input and output.
        wanted: False leaves everything as it is: for those who read lines in the terminal's own mode.
    """

    def __init__(self, keys: TextIO, screen: TextIO, *, wanted: bool) -> None:
        self._wanted = wanted
        self._keys = keys
        self._screen = screen
        self._number = -1
        self._before: list[Any] | None = None
        self._old: dict[int, Any] = {}  # handlers
        self._early = ""  # what had been typed already, in the terminal's own mode

    def __enter__(self) -> Self:
        try:
            if self._wanted:
                self._begin()
        except (OSError, ValueError, termios.error):
            pass  # a terminal that cannot be asked stays as it is
        except BaseException:  # Ctrl-C now: no context has been entered that would end
            self.restore()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Keys that no prompt has taken were meant for the chat: the shell must not run them as commands."""
        try:
            if self._before is not None and self._is_ours():
                with suppress(OSError, termios.error):
                    termios.tcflush(self._number, termios.TCIFLUSH)
        finally:  # Ctrl-C once more
            self.restore()

    def hand_over(self) -> str:
        """A prompt begins, whose own mode rules from here on. Returns its first keys; the others it reads itself."""
        self._end_watch()
        early, self._early = self._early, ""
        return early

    def restore(self) -> None:
        """The user's own settings again; a second time nothing. Never raises: the terminal may have gone."""
        if self._before is None:
            return
        self._end_watch()
        self._give_back()
        self._before = None

    def _begin(self) -> None:
        self._number = self._keys.fileno()
        if self._is_ours():
            self._before = termios.tcgetattr(self._number)
            self._watch(signal.SIGCONT, self._hold_again)
            if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
                self._watch(signal.SIGTSTP, self._stop)
            self._hold()
            self._early = self._waiting()
            self._show(PASTES_MARKED)
            if self._early:  # the prompt will show it: no message shall go on behind it
                self._show(ERASE_LINE)

    def _hold(self) -> None:
        assert self._before is not None
        held = [*self._before[: tty.CC], list(self._before[tty.CC])]
        held[tty.IFLAG] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR)
        held[tty.LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        held[tty.CC][termios.VMIN], held[tty.CC][termios.VTIME] = 1, 0
        held[tty.CC][termios.VQUIT] = b"\0"  # nothing: it would end the process without a chance to restore
        termios.tcsetattr(self._number, termios.TCSANOW, held)

    def _give_back(self) -> None:
        if self._is_ours():  # from the background this would stop the process, and the shell has set its own
            assert self._before is not None
            with suppress(OSError, termios.error):
                termios.tcsetattr(self._number, termios.TCSANOW, self._before)
        self._show(PASTES_PLAIN)

    def _watch(self, number: int, handler: Handler) -> None:
        self._old[number] = signal.signal(number, handler)

    def _end_watch(self) -> None:
        old, self._old = self._old, {}
        for number, handler in old.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z. Not every shell puts its own settings in the place of these."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)

    def _hold_again(self, number: int, frame: FrameType | None) -> None:
        """After Ctrl-Z and fg: the terminal has the user's or the shell's settings."""
        if signal.SIGTSTP in self._old:
            signal.signal(signal.SIGTSTP, self._stop)
        with suppress(OSError, termios.error):
            if self._before is not None and self._is_ours():
                self._hold()
                self._show(PASTES_MARKED)

    def _waiting(self) -> str:
        found = b""
        while select.select([self._number], [], [], 0)[0] and (data := os.read(self._number, 65536)):
            found += data
        # The terminal has kept Ctrl-D as the end of a line without a character.
        return found.decode("utf-8", "surrogateescape").replace("\n", "\r").replace("\0", "\x04")

    def _is_ours(self) -> bool:
        """Whether this process may change the terminal: one in the background is stopped when it tries."""
        try:
            return os.tcgetpgrp(self._number) == os.getpgrp()
        except OSError:
            return os.isatty(self._number)  # not our controlling terminal: nobody is stopped for it

    def _show(self, code: str) -> None:
        with suppress(OSError, ValueError):
            self._screen.write(code)
            self._screen.flush()
