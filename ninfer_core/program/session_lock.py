"""SessionLock: of several processes, one writes a session's directory. The lock ends with its process, however."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from ninfer_core.errors import SessionInUse, SessionPlaceError

NAME = "lock"
PATIENCE = 5
"""How often a lock is asked for again."""


class DirectoryGone(SessionPlaceError):
    """Whoever had it has taken the directory away at this moment."""


def is_locked(directory: Path) -> bool:
    """Whether a process writes the directory now. Opens nothing for writing and makes nothing."""
    try:
        handle = os.open(directory / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(handle)


class SessionLock:
    """Held from construction until `release`."""

    def __init__(self, directory: Path) -> None:
        """
        Raises:
            SessionInUse: another process holds it, which is named.
            SessionPlaceError: it cannot be had. DirectoryGone: there is no such directory.
        """
        self._handle = _open(directory)
        try:
            _take(self._handle)
            while not os.fstat(self._handle).st_nlink:  # whoever had it before took the file away
                os.close(self._handle)
                self._handle = _open(directory)
                _take(self._handle)
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            holder = os.pread(self._handle, 20, 0)
            os.close(self._handle)
            who = f" (process {int(holder)})" if holder.isdigit() else ""
            raise SessionInUse(
                f"{directory} is open in another ninfer{who}, nothing was changed: end that one, or use another session"
            ) from None
        except OSError as error:
            os.close(self._handle)
            raise SessionPlaceError(f"{directory} cannot be locked ({error.strerror or error})") from error

    @property
    def held(self) -> bool:
        return self._handle >= 0

    def release(self) -> None:
        """Idempotent."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def _open(directory: Path) -> int:
    """Raises SessionPlaceError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(directory / NAME, flags, 0o600)
    except FileNotFoundError as error:
        raise DirectoryGone(f"{directory} cannot be locked ({error.strerror})") from error
    except OSError as error:
        raise SessionPlaceError(f"{directory} cannot be locked ({error.strerror or error})") from error


def _take(handle: int) -> None:
    """Raises BlockingIOError when another process holds it, and not only for the moment of an `is_locked`."""
    for left in range(PATIENCE, -1, -1):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
        time.sleep(0.02)
