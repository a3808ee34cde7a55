"""Where sessions and their key are, and what a person is told when one is opened or written."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_cli.config import directory
from ninfer_cli.kinds import Size
from ninfer_cli.wording import counted
from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.settings import Settings
    from ninfer_core import EngineInfo, RestoredSession, SessionKey

CACHE_OFF = "the context cache is off, so nothing of the state is reused: leave out --no-cache"
UNPROVEN = (
    "the session's state is unproven: nothing shows that this user's ninfer computed it from this text; "
    "restore-session --verify replays it, --rebuild reads the text instead"
)


def session_key() -> SessionKey:
    """The user's own key, in ninfer's state directory. Raises SessionError."""
    from ninfer_core import SessionKey

    return SessionKey.at(directory("XDG_STATE_HOME", "state") / "session-key")


def size_limit(text: str, what: str) -> int | None:
    """A size such as 4GiB; auto is no limit. Raises UsageError."""
    try:
        return Size().from_text(text)
    except ValueError as error:
        raise UsageError(f"{what} is {text!r}: {error}") from error


def checkpoints_json(restored: RestoredSession) -> list[list[dict[str, Any]]]:
    return [
        [{"kind": c.kind.value, "frontier": c.frontier, "placement": c.placement.value} for c in continuation]
        for continuation in restored.checkpoints
    ]


def named_json(checkpoints: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Checkpoints that are not here, or not placed: kind and frontier."""
    return [{"kind": kind, "frontier": frontier} for kind, frontier in checkpoints]


def unused(restored: RestoredSession, info: EngineInfo) -> list[str]:
    """A line for each thing of a session that is not reused, and what would help if anything does."""
    lines = [CACHE_OFF] if restored.checkpoints and not info.cache else []
    if missing := len(restored.dropped) + sum(map(len, restored.left_out)):
        advice = f": raise {restored.advice}" if info.cache else ""
        lines.append(f"{counted(missing, 'checkpoint')} found no room{advice}")
    return lines


def tell_restored(restored: RestoredSession, info: EngineInfo, streams: Streams) -> None:
    """What a person must not miss after a restore."""
    if restored.checkpoints and restored.proven is not True:
        streams.warn(UNPROVEN)
    for line in unused(restored, info):
        streams.note(line)
    if restored.released:
        streams.note(f"given up for it: {counted(restored.released, 'other continuation')}")


def chat_command(path: Path | None, settings: Settings) -> str:
    """How to go on from a session; without a path from the newest that was kept."""
    model = "" if settings.model is None else f"--model {shlex.quote(settings.model)} "
    return f"ninfer chat {model}" + ("--continue" if path is None else f"--session {shlex.quote(str(path))}")
