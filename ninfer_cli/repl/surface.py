"""What the place that a chat happens in can do for a command: a script, a plain terminal, the application."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Protocol

from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.output import Streams

NO_CLIPBOARD = "/copy needs a terminal with a clipboard: /export writes a file"
YES = ("y", "yes")


class Surface(Protocol):
    """
    Attributes:
        interactive: a person reads along: what was moved to is shown, siblings in short.
        prefills: a command's text can be put into the input line.
    """

    interactive: bool
    prefills: bool

    def ask(self, question: str) -> bool:
        """A yes or no; no where nobody can be asked."""

    def copy(self, text: str) -> None:
        """Put text on the clipboard. Raises UsageError where there is none."""

    def progress(self, text: str) -> None:
        """What else is being generated; "" when that is over."""


class ScriptSurface:
    """Nobody is there."""

    interactive = False
    prefills = False

    def ask(self, question: str) -> bool:
        return False

    def copy(self, text: str) -> None:
        raise UsageError(NO_CLIPBOARD)

    def progress(self, text: str) -> None:
        pass


class PlainSurface:
    """TERM=dumb: a person at the terminal's own line editing."""

    interactive = True
    prefills = False

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def ask(self, question: str) -> bool:
        """Ctrl-C and Ctrl-D mean no."""
        self._streams.err.write(self._streams.err.foreign(question) + " [y/N] ")
        old = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return sys.stdin.readline().strip().lower() in YES
        except KeyboardInterrupt:
            self._streams.err.write("\n")
            return False
        finally:
            signal.signal(signal.SIGINT, old)

    def copy(self, text: str) -> None:
        raise UsageError(NO_CLIPBOARD)

    def progress(self, text: str) -> None:
        pass
