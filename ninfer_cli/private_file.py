"""Write a file that only its owner reads: whole or not at all, and never in the place of something that is no file."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from ninfer_core import NinferError, UsageError


class FileThere(UsageError):
    """The target exists and may not be overwritten."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} exists: choose another name, or give --force")


def check_target(path: Path, *, overwrite: bool) -> None:
    """
    Raises:
        FileThere: it exists, and overwrite is false.
        UsageError: something that is no regular file stands there, or there is no directory for it.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise UsageError(f"{path}: there is no directory {path.parent}") from None
        return
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is not a regular file: choose another name")
    if not overwrite:
        raise FileThere(path)


def write_private(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Write beside the target under a random name, then put it in place.

    Raises:
        FileThere, UsageError: as check_target does.
        NinferError: the file cannot be written; nothing is left behind.
    """
    check_target(path, overwrite=overwrite)
    beside = path.parent / f".{path.name[:100]}.{secrets.token_hex(8)}"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if overwrite:
                beside.replace(path)
            else:
                os.link(beside, path)  # unlike a rename it fails if somebody was faster
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
    except FileExistsError:
        raise FileThere(path) from None
    except OSError as error:
        raise NinferError(f"{path} cannot be written: {error.strerror or error}") from None
