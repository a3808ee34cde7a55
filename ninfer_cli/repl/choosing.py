"""Choosing one of the conversations that were kept: a numbered list, and a question."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_cli.cleaning import one_line
from ninfer_cli.repl.command import shortened, whole_number
from ninfer_cli.wording import counted, span
from ninfer_core import NinferError, UsageError

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.sessions import SessionEntry

MOST = 20
"""Conversations that are offered, the newest."""
NOTHING = "--resume: nothing was kept yet; ninfer chat begins a conversation"


def named(entries: Sequence[SessionEntry]) -> UsageError:
    """What is said where nobody can be asked."""
    if not entries:
        return UsageError(NOTHING)
    names = ", ".join(entry.name for entry in entries[:MOST])
    return UsageError(f"--resume needs a NAME where there is no terminal, one of: {names}")


def choose(entries: Sequence[SessionEntry], streams: Streams) -> Path:
    """Show the newest conversations and read a number, or a name, until it is one of theirs.

    Raises:
        UsageError: nothing was kept, or none was chosen: an empty line, or Ctrl-D.
    """
    from ninfer_cli.sessions import find_session

    if not entries:
        raise UsageError(NOTHING)
    shown = entries[:MOST]
    width = len(str(len(shown)))
    for number, entry in enumerate(shown, 1):
        streams.err.write(streams.err.fitted(f"{number:>{width}}  {one_line(_described(entry))}") + "\n")
    while True:
        streams.err.write(f"Which one? [{span(1, len(shown))}, or a name; Enter leaves] ")
        line = sys.stdin.readline()
        if not line:
            streams.err.write("\n")
        if not (answer := line.strip()):
            raise UsageError("--resume: no conversation was chosen")
        try:
            if (chosen := whole_number(answer)) is None:
                return find_session(answer)
            if 1 <= chosen <= len(shown):
                return shown[chosen - 1].path
            streams.warn(f"--resume: there is no number {answer}: give {span(1, len(shown))}")
        except UsageError as error:
            streams.warn(str(error))


def _described(entry: SessionEntry) -> str:
    """A line: when, which, how long, and how it began."""
    from ninfer_cli.sessions import read_conversation
    from ninfer_core import open_text

    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.changed))
    try:
        value = open_text(entry.path).value.get("conversation")
        tree = read_conversation(value, entry.path).tree
    except NinferError:
        return f"{when} {entry.name}, cannot be read: ninfer restore-session --inspect says why"
    turns = tree.path()
    first = f": {shortened(tree.turn_at(turns[0]).text, 40)}" if turns else ""
    state = ", open" if isinstance(value, Mapping) and value.get("open") is True else ""
    place = f", {entry.path}" if entry.elsewhere else ""
    return f"{when} {entry.name}, {counted(len(turns), 'turn')}{state}{first}{place}"
