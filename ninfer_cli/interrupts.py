"""Signals while a reply is generated: the first asks it to end at a token boundary, the second ends the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(BaseException):
    """SIGTERM or SIGHUP outside of a reply: unwinds like KeyboardInterrupt, ends with 128 + its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def status(self) -> int:
        return 128 + self.number


def install_termination() -> None:
    """From here on SIGTERM and SIGHUP unwind the program, so that the Engine closes and the terminal is restored."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise_terminated)


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated(number)


class Interrupts:
    """Within this context signals are remembered instead of raised.

    The handler only notes the number: it may run anywhere in the main thread, so it takes no lock. on_second is called
    just before the process ends at once; it may only use os.write.
    """

    def __init__(self, on_second: Callable[[], None] | None = None) -> None:
        self.number: int | None = None
        self._on_second = on_second
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup and shells' background jobs stay as they are
                    self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    @property
    def status(self) -> int | None:
        """The exit status that the remembered signal asks for, or None."""
        return None if self.number is None else 128 + self.number

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            if self._on_second:
                self._on_second()
            os._exit(128 + number)
        self.number = number
