"""What a person is told when a conversation is left: where it is, and how to go on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ninfer_cli.session_files import chat_command
from ninfer_cli.sessions import is_kept_by_itself

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat


def farewell(chat: Chat) -> str:
    """Bring what is kept up to date, and say where it is: one line; nothing where nothing was said, or nothing is kept
    (that was warned of)."""
    keeper, tree = chat.keeper, chat.tree
    if len(tree.nodes) == 1:
        return ""
    keeper.keep(chat)
    place = keeper.place or keeper.saved_to
    if place is None or keeper.unsaved(tree):
        return ""
    newest = is_kept_by_itself(place)  # until another conversation is
    return f"kept in {place}: {chat_command(None if newest else place, chat.settings)} goes on with it"
