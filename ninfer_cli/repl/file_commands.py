"""Commands that read and write: /file, /export, /import, /copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_cli.inputs import read_text_file
from ninfer_cli.private_file import FileThere, check_target, write_private
from ninfer_cli.repl import markdown_transcript, transcript
from ninfer_cli.repl.command import Outcome
from ninfer_cli.wording import counted
from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat

KINDS = (".md", ".json")


def file(chat: Chat, argument: str) -> Outcome:
    if not argument:
        raise UsageError("/file wants the PATH of a text file")
    text = read_text_file(argument, "/file")
    chat.files.append(text)
    said = f"{argument}: {counted(len(text), 'character')} to go before the next message"
    return Outcome(said, {"characters": len(text)})


def export(chat: Chat, argument: str) -> Outcome:
    path = _transcript_path(argument, "/export")
    if chat.tree.turn is None:
        raise UsageError("/export: nothing was said yet")
    conversation = transcript.path_of(chat.tree)
    writer = transcript.to_json if path.suffix == ".json" else markdown_transcript.to_markdown
    overwrite = may_overwrite(chat, path)
    write_private(path, writer(conversation).encode(), overwrite=overwrite)
    turns = len(chat.tree.path())
    return Outcome(f"{counted(turns, 'turn')} written to {path}", {"path": str(path), "turns": turns})


def import_(chat: Chat, argument: str) -> Outcome:
    path = _transcript_path(argument, "/import")
    text = read_text_file(path, "/import")
    reader = transcript.from_json if path.suffix == ".json" else markdown_transcript.from_markdown
    read = transcript.as_path(reader(text, f"/import {path}"), f"/import {path}")
    if not read.turns and not read.unanswered:
        raise UsageError(f"/import {path}: it holds no turn")
    chat.adopt(transcript.grown(chat.tree, read.start, read.turns))
    said = f"{counted(len(read.turns), 'turn')} read from {path}"
    if read.unanswered:
        where = "it is in the input line" if chat.surface.prefills else "it was left out: say it to get a reply"
        said += f"; its last message has no reply: {where}"
    value = {"path": str(path), "turns": len(read.turns), "unanswered": read.unanswered or None}
    return Outcome(said, value, unsent=read.unanswered, show=bool(read.turns))


def copy(chat: Chat, argument: str) -> Outcome:
    turn = chat.tree.turn
    if turn is None:
        raise UsageError("there is no reply to copy yet")
    chat.surface.copy(turn.reply.text)
    count = len(turn.reply.text)
    return Outcome(f"{counted(count, 'character')} sent to the terminal's clipboard", {"characters": count})


def may_overwrite(chat: Chat, path: Path) -> bool:
    """Whether an existing file gives way: with --force, or because a person says so.

    Raises:
        UsageError: it may not, or is no regular file.
    """
    if chat.settings.force:
        return True
    try:
        check_target(path, overwrite=False)
    except FileThere:
        if not chat.surface.interactive:
            raise
        if not chat.surface.ask(f"{path} exists. Overwrite it?"):
            raise UsageError(f"{path} was left as it is") from None
        return True
    return False


def _transcript_path(argument: str, command: str) -> Path:
    path = Path(argument)
    if not argument or path.suffix not in KINDS:
        raise UsageError(f"{command} wants a file whose name ends in .md or .json")
    return path
