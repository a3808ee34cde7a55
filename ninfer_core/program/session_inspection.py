"""Looking at a session without restoring it: also at one that is damaged behind its header. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_core.contract.statistics import SourceKind
from ninfer_core.errors import SessionError
from ninfer_core.program.session_directory import Directory
from ninfer_core.program.session_file import inconsistent
from ninfer_core.program.session_header import Header
from ninfer_core.program.session_key import SessionKey
from ninfer_core.program.session_reader import READS, open_session, open_text
from ninfer_core.program.session_segments import SegmentGone


@dataclass(frozen=True, slots=True)
class Inspection:
    """
    Attributes:
        header: checked, the state behind it not: `SessionFile.load` verifies that.
        continuations: kind and frontier of each checkpoint, newest continuation first. Of a damaged session what its
            header names, whether it is there or not; None where that makes no sense.
        damage: one line that says what is wrong behind the header, or None.
    """

    header: Header
    continuations: tuple[tuple[tuple[str, int], ...], ...] | None
    damage: str | None = None


def inspect_session(path: Path, key: SessionKey | None = None) -> Inspection:
    """What can be said of a session of either form: its header, held against the length of what is stored.

    Raises:
        SessionError: there is none, or its header is not whole: one line that names the check that failed.
    """
    try:
        header, damage = _whole(path, key), None
    except SessionError as refused:
        header, damage = open_text(path, key), str(refused)
    try:
        return Inspection(header, tuple(map(_named, header.value["continuations"])), damage)
    except (KeyError, TypeError, ValueError) as error:
        return Inspection(header, None, damage or str(inconsistent(error)))


def _whole(path: Path, key: SessionKey | None) -> Header:
    """Raises SessionError for whatever can be seen without reading the state."""
    for attempt in range(1, READS + 1):
        try:
            source = open_session(path, key)
            Directory.parse(source.header.value["continuations"], source.sizes())
            return source.header
        except SegmentGone:
            if attempt == READS:
                raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise inconsistent(error) from None
    raise AssertionError("unreachable")


def _named(continuation: Any) -> tuple[tuple[str, int], ...]:
    """Raises ValueError and its kin for anything but checkpoints."""
    checkpoints: Sequence[Any] = continuation["checkpoints"]
    if not isinstance(checkpoints, list) or not all(type(c["frontier"]) is int for c in checkpoints):
        raise ValueError("checkpoints of another form")
    return tuple((SourceKind(c["kind"]).value, c["frontier"]) for c in checkpoints)
