"""The file of typed lines: 0600, in $XDG_STATE_HOME/ninfer; a line that begins with a space stays out."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from ninfer_cli.config import directory


def history_file() -> Path:
    return directory("XDG_STATE_HOME", "state") / "history"


class PrivateHistory(FileHistory):
    """prompt-toolkit's history file, which never fails: a full disk costs the line, not the chat."""

    def append_string(self, string: str) -> None:
        if not string.startswith(" "):
            super().append_string(string)

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []


class SessionHistory(InMemoryHistory):
    def append_string(self, string: str) -> None:
        if not string.startswith(" "):
            super().append_string(string)


def open_history(*, wanted: bool) -> History:
    """The file's history, or one in memory if it is not wanted or the file cannot be had."""
    if not wanted:
        return SessionHistory()
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return SessionHistory()
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError:
        return SessionHistory()
    return PrivateHistory(str(path))
