"""Setting a session's directory aside before another state takes its place: names for the same bytes, nothing copied
where the file system can link."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

from ninfer_core.errors import SessionError
from ninfer_core.program.session_file import sync_directory
from ninfer_core.program.session_manifest import NAME, SEGMENT

_WITHIN = re.compile(r"before([2-9]|[1-9]\d+)?", re.ASCII)


def is_aside_within(entry: Path) -> bool:
    """Whether it is what `set_aside` made within a directory, and nothing that a person put there."""
    if not _WITHIN.fullmatch(entry.name) or entry.is_symlink() or not entry.is_dir():
        return False
    return all(SEGMENT.fullmatch(held.name) or held.name == NAME for held in entry.iterdir())


def aside_of(path: Path) -> Path | None:
    """Where a directory's state would go: a name beside it that nobody has, or within it where nothing can be made
    beside it. None where it holds no state."""
    if not any(SEGMENT.fullmatch(entry.name) for entry in path.iterdir()):
        return None
    place = path if path.name not in ("", "..") else path.resolve()  # "." has no name to go beside
    first = place.parent / f"{place.name}.before"
    if not os.access(place.parent, os.W_OK | os.X_OK):
        first = path / "before"
    names = (first.with_name(f"{first.name}{n if n > 1 else ''}") for n in count(1))
    return next(name for name in names if not os.path.lexists(name))


def set_aside(path: Path, aside: Path) -> None:
    """Make aside the session that path is now, damage included. What is written in path later does not touch it.

    Raises:
        SessionError: it cannot be written; then it is not there.
    """
    part = aside.with_name(f".{secrets.token_hex(8)}.part")
    try:
        part.mkdir(mode=0o700)
        segments = sorted(entry.name for entry in path.iterdir() if SEGMENT.fullmatch(entry.name))
        for name in (*segments, NAME):
            if (path / name).is_file() and not (path / name).is_symlink():
                _same(path / name, part / name)
        sync_directory(part)
        part.rename(aside)
    except OSError as error:
        with suppress(OSError):
            shutil.rmtree(part)
        reason = error.strerror or error
        raise SessionError(
            f"{aside} cannot be written ({reason}), {path} is unchanged: make room there, or choose another place"
        ) from error
    with suppress(OSError):  # it is there; some directories can be written and not opened
        sync_directory(aside.parent)


def _same(file: Path, name: Path) -> None:
    try:
        os.link(file, name)
    except OSError:  # a file system without links
        shutil.copy2(file, name)
