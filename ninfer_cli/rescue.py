"""Rescue: what a person can still do with a session whose state is refused."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ninfer_core.errors import NoRoom, SessionError, SessionInUse

TEXT_ALONE = "--rebuild reads its text alone"
"""Said by the commands that have the option."""


def into_another(path: Path) -> str:
    """Said by the others."""
    return f"ninfer restore-session {shlex.quote(str(path))} --rebuild --save NEW reads its text alone"


@contextmanager
def rescue(path: Path, advice: str) -> Iterator[None]:
    """Adds the advice to what is said of a session that is refused, if its text can be had without its state.

    Raises:
        SessionError: whatever the body raised.
    """
    try:
        yield
    except (SessionInUse, NoRoom):
        raise  # nothing is wrong with it
    except SessionError as error:
        if not _is_readable(path):
            raise
        raise SessionError(f"{error}; {advice}") from error


def _is_readable(path: Path) -> bool:
    from ninfer_core import open_text

    try:
        return "conversation" in open_text(path).value
    except SessionError:
        return False
