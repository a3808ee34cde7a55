"""/save and /restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_cli.repl.command import Outcome
from ninfer_cli.repl.file_commands import may_overwrite
from ninfer_cli.session_files import UNPROVEN, unused
from ninfer_cli.wording import counted
from ninfer_core import UsageError, size_text

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat
    from ninfer_core import RestoredSession

REBUILD = "--rebuild"


def save(chat: Chat, argument: str) -> Outcome:
    keeper = chat.keeper
    if chat.tree.turn is None:
        raise UsageError("/save: nothing was said yet")
    path = Path(argument) if argument else keeper.saved_to
    if path is None:
        keeper.keep(chat)
        if keeper.place is None or keeper.unsaved(chat.tree):
            raise UsageError("/save wants a path: this conversation is not kept by itself")
        return Outcome(f"kept in {keeper.place}; /save PATH writes one portable file", {"path": str(keeper.place)})
    again = path == keeper.saved_to
    saved = keeper.save(chat, path, overwrite=again or may_overwrite(chat, path))
    points = sum(map(len, saved.checkpoints))
    owners = counted(len(saved.checkpoints), "continuation")
    text = f"{path}: {size_text(saved.bytes)}, {counted(points, 'checkpoint')} of {owners}"
    if saved.left_out:
        text += f"; left out by --session-limit: {counted(len(saved.left_out), 'older continuation')}"
    return Outcome(
        text, {"path": str(path), "bytes": saved.bytes, "checkpoints": points, "left_out": len(saved.left_out)}
    )


def restore(chat: Chat, argument: str) -> Outcome:
    rebuild = argument.endswith(REBUILD)
    name = argument.removesuffix(REBUILD).strip() if rebuild else argument
    if not name:
        raise UsageError(f"/restore wants a path, and {REBUILD} behind it to read only the text")
    if chat.keeper.unsaved(chat.tree) and not _may_leave(chat):
        raise UsageError("this conversation is not saved: /save PATH first, or give --force")
    restored = chat.restore(Path(name), rebuild=rebuild)
    text, value = restored_text(chat, Path(name), restored)
    return Outcome(text, value, show=chat.tree.turn is not None)


def restored_text(chat: Chat, path: Path, restored: RestoredSession | None) -> tuple[str, dict[str, object]]:
    """What came back, for people and for --json."""
    turns = len(chat.tree.path())
    said = f"{path}: {counted(turns, 'turn')}"
    value: dict[str, object] = {"path": str(path), "turns": turns, "checkpoints": 0, "proven": None}
    if restored is None:
        aside = chat.keeper.aside
        stays = "" if aside is None else f"; with the next turn, what {path} holds now is kept in {aside}"
        return f"{said}; the state was left aside and is computed anew{stays}", value
    points = sum(map(len, restored.checkpoints))
    state = "resumable" if chat.engine.info.cache else "restored"
    lines = [f"{said}, {counted(points, 'checkpoint')} {state}", *unused(restored, chat.engine.info)]
    if points and restored.proven is not True:
        lines.append(UNPROVEN)
    return "\n".join(lines), value | {"checkpoints": points, "proven": restored.proven}


def _may_leave(chat: Chat) -> bool:
    return chat.settings.force or chat.surface.ask("This conversation is not saved. Leave it?")
