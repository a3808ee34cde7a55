"""Sessions on this machine: where they lie, what conversation one holds, and which was the newest."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from ninfer_cli.config import directory
from ninfer_cli.repl import tree_json
from ninfer_core import SessionError, UsageError

if TYPE_CHECKING:
    from ninfer_cli.repl.tree import Tree

MANIFEST = "manifest"
"""The file of a session's directory that is replaced with every change."""


def sessions_directory() -> Path:
    """Where conversations are kept by themselves."""
    return directory("XDG_STATE_HOME", "state") / "sessions"


def is_kept_by_itself(path: Path) -> bool:
    """Whether a conversation lies where no person has chosen the place."""
    return path.resolve().parent == sessions_directory().resolve()


def new_path() -> Path:
    """A name for a conversation that begins now."""
    now = time.strftime("%Y-%m-%d-%H%M%S")
    return sessions_directory() / f"{now}-{secrets.token_hex(2)}"


# --- the conversation in a session ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Kept:
    """A conversation as a session holds it.

    Attributes:
        files: texts that wait for the next message.
        open: the chat that wrote it has not ended, or not in peace.
    """

    tree: Tree
    files: tuple[str, ...] = ()
    open: bool = False


def conversation_json(kept: Kept, model: str, writer: tree_json.TreeWriter | None = None) -> dict[str, Any]:
    """The form that every command reads (see session_text). Raises UsageError when the tree is too large for it.

    Args:
        writer: knows the tree from before it grew.
    """
    return {
        "tree": (writer or tree_json.TreeWriter()).json(kept.tree),
        "files": list(kept.files),
        "model": model,
        "open": kept.open,
    }


def holds_conversation(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether it is a conversation's JSON, sound or not. A library's session may hold anything."""
    return isinstance(value, Mapping) and "tree" in value


def read_conversation(value: object, where: Path) -> Kept:
    """Raises SessionError: a session without a conversation, or not one of ours. One line that names the place."""
    if not holds_conversation(value):
        raise SessionError(f"{where} holds state but no conversation: ninfer restore-session --inspect looks into it")
    files = value.get("files", [])
    if not isinstance(files, list) or not all(isinstance(text, str) for text in files):
        raise SessionError(f"{where}: its files are not a list of texts")
    try:
        return Kept(tree_json.from_json(value["tree"]), tuple(files), value.get("open") is True)
    except UsageError as error:
        raise SessionError(f"{where}: {error}") from None


# --- what there is ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SessionEntry:
    """A conversation that was kept.

    Attributes:
        path: where it lies.
        name: what --resume calls it.
        changed: seconds since the epoch.
    """

    path: Path
    name: str
    changed: float

    @property
    def elsewhere(self) -> bool:
        """Whether a person has chosen the place."""
        return not is_kept_by_itself(self.path)


def kept_sessions() -> list[SessionEntry]:
    """Newest first, those at places of a person's choice among them; what cannot be looked at is left out."""
    return sorted(_entries(), key=lambda entry: (-entry.changed, entry.name))


def _entries() -> Iterator[SessionEntry]:
    try:
        found = list(sessions_directory().iterdir())
    except OSError:
        return
    for path in found:
        try:
            place = path.resolve()  # of a link: where the conversation itself is
            yield SessionEntry(place, path.name, (place / MANIFEST).stat().st_mtime)
        except (OSError, RuntimeError):  # the latter is a link that leads to itself
            continue


def find_session(name: str) -> Path:
    """The kept conversation of a name, or of its beginning.

    Raises:
        UsageError: none, or several.
    """
    entries = kept_sessions()
    found = [e for e in entries if e.name == name] or [e for e in entries if e.name.startswith(name)]
    if len(found) == 1:
        return found[0].path
    names = ", ".join(entry.name for entry in (found or entries)[:5]) or "none is there yet"
    raise UsageError(f"--resume {name}: {'several begin so' if found else 'there is no such conversation'} ({names})")


def newest_session() -> Path:
    """Raises UsageError when nothing was kept yet."""
    entries = kept_sessions()
    if not entries:
        raise UsageError(f"--continue: no conversation was kept in {sessions_directory()} yet")
    return entries[0].path


def crashed() -> SessionEntry | None:
    """The newest conversation, if its chat did not end in peace and is not running."""
    from ninfer_core import is_locked, open_session

    entries = kept_sessions()
    if not entries or is_locked(entries[0].path):
        return None
    try:
        conversation = open_session(entries[0].path).header.value.get("conversation")
    except SessionError:
        return None  # damaged: --resume says how
    return entries[0] if isinstance(conversation, Mapping) and conversation.get("open") is True else None
