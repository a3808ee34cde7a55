"""SessionPlace: a session's directory while one process has it. One that holds nothing goes again."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

from ninfer_core.errors import SessionPlaceError
from ninfer_core.program.session_aside import is_aside_within
from ninfer_core.program.session_lock import NAME as LOCK
from ninfer_core.program.session_lock import PATIENCE, DirectoryGone, SessionLock
from ninfer_core.program.session_manifest import NAME, PART, SEGMENT


def is_new_session(path: Path) -> bool:
    """Whether a session would begin there: nothing is there, or nothing but what a process left that died before its
    first save. Segments may be among that, or a session's whose manifest was lost: SessionStore keeps them aside.

    Raises SessionPlaceError when that cannot be seen.
    """
    try:
        return not path.exists() or (path.is_dir() and all(map(_is_ours, path.iterdir())))
    except OSError as error:
        raise SessionPlaceError(f"{path} cannot be read ({error.strerror or error})") from error


class SessionPlace:
    """Held from construction until `release`."""

    def __init__(self, path: Path) -> None:
        """Make the directory, or make sure that it is a session's, and lock it.

        Raises:
            SessionInUse: another process has it.
            SessionPlaceError: it is no session's, or cannot be had.
        """
        self.path = path
        self._ours: bool
        """Whether it may go, once there is nothing in it."""
        self._lock: SessionLock
        for left in range(PATIENCE, -1, -1):
            try:
                self._have(path)
                return
            except DirectoryGone:  # with who had it before: it is made once more
                if not left:
                    raise

    def _have(self, path: Path) -> None:
        made = _make(path)
        self._ours = made or _left_over(path)
        try:
            self._lock = SessionLock(path)
        except BaseException:
            if made:
                with suppress(OSError):  # not empty: somebody else has it already
                    path.rmdir()
            raise

    def release(self) -> None:
        """Let others have it. One that holds nothing is as it was found, or gone if no person made it.

        Idempotent.
        """
        if self._lock.held:
            with suppress(OSError):
                if all(entry.name == LOCK for entry in self.path.iterdir()):
                    (self.path / LOCK).unlink()
                    if self._ours:
                        self.path.rmdir()
        self._lock.release()


def _make(path: Path) -> bool:
    """Returns whether the directory was made.

    Raises:
        SessionPlaceError: it is no session's, or cannot be made. DirectoryGone: it was there, and is not any more.
    """
    try:
        try:
            path.mkdir(mode=0o700, parents=True)
            return True
        except FileExistsError:
            nowhere = path.is_symlink() and not path.exists()
            if nowhere or not stat.S_ISDIR(path.stat().st_mode):
                raise SessionPlaceError(f"{path} is a file, not a session's directory: choose another name") from None
        if not (path / NAME).exists() and not all(map(_is_ours, path.iterdir())):
            raise SessionPlaceError(f"{path} is a directory without a session in it: choose a new or an empty one")
        return False
    except FileNotFoundError as error:
        raise DirectoryGone(f"{path} cannot be written ({error.strerror})") from error
    except OSError as error:
        raise SessionPlaceError(f"{path} cannot be written ({error.strerror or error})") from error


def _left_over(path: Path) -> bool:
    """Whether it holds what a process left that died before its first save, and nothing else."""
    with suppress(OSError):
        return (path / LOCK).exists() and all(map(_is_ours, path.iterdir()))
    return False


def _is_ours(entry: Path) -> bool:
    """What a session's directory may hold without a manifest."""
    name = entry.name
    return name == LOCK or bool(SEGMENT.fullmatch(name) or PART.fullmatch(name)) or is_aside_within(entry)
