"""Rescue: what a person can still do with a session whose state is refused."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ninfer_core.errors import NoRoom, SessionError, SessionPlaceError

TEXT_ALONE = "--rebuild reads its text alone"
"""Said by the commands that have the option."""


def into_another(path: Path) -> str:
    """Said by the others."""
    return f"ninfer restore-session {shlex.quote(str(path))} --rebuild --save NEW reads its text alone"


@contextmanager
def rescue(path: Path, advice: str | None = None, *, rebuild: bool = False) -> Iterator[None]:
    """Adds advice to what its body says of a session that is refused, if the text can be had without the state.

    Args:
        advice: None is `into_another`.
        rebuild: the body follows the advice already: nothing is added.

    Raises:
        SessionError: whatever the body raised.
    """
    try:
        yield
    except (SessionPlaceError, NoRoom):
        raise  # nothing is wrong with it
    except SessionError as error:
        if rebuild or not _is_readable(path):
            raise
        raise SessionError(f"{error}; {advice or into_another(path)}") from error


def _is_readable(path: Path) -> bool:
    from ninfer_cli.session_text import SessionText
    from ninfer_core import open_text

    try:
        SessionText.parse(open_text(path).value.get("conversation"), path)
    except SessionError:
        return False
    return True
