"""The line below the input: model, context, turn, and what is going on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ninfer_cli.cleaning import one_line

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat


def toolbar(chat: Chat, *, busy: bool, queued: str | None) -> str:
    """Plain text, one line."""
    path = chat.conversation.path()
    parts = [
        one_line(chat.engine.info.model),
        f"{chat.context_used()}/{chat.engine.info.max_context} tok",
        f"turn {len(path)}" if path else "no turn yet",
    ]
    if path and (branch := chat.conversation.branch(path[-1])).siblings > 1:
        parts[-1] += f", sibling {branch.sibling}/{branch.siblings}"
    if chat.files:
        parts.append(f"{len(chat.files)} file{'s' if len(chat.files) > 1 else ''} added")
    if busy:
        parts.append("replying, Ctrl-C ends it")
    if queued is not None:
        words = one_line(queued)
        parts.append(f"queued: {words if len(words) <= 30 else words[:29] + '…'}")
    return " " + " · ".join(parts)
