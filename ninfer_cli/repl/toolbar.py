"""The line below the input: model, context, turn, cache, and what is going on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ninfer_cli.cache_view import use_text
from ninfer_cli.cleaning import one_line
from ninfer_cli.repl.loop import REPLYING

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat


def toolbar(chat: Chat, *, doing: str = "", queued: str | None = None, progress: str = "") -> str:
    """Plain text, one line. doing: as of Taker. progress: what is being generated besides the reply that is shown."""
    if progress:  # all of it must fit into a narrow window
        return f" {progress} · Ctrl-C ends all" + (f" · {_queued(queued)}" if queued is not None else "")
    tree = chat.tree
    path = tree.path()
    parts = [
        one_line(chat.engine.info.model),
        f"{chat.context_used()}/{chat.engine.info.max_context} tok",
        f"turn {len(path)}" if path else "no turn yet",
    ]
    if path:
        branch = tree.branch(path[-1])
        parts[-1] += f", sibling {branch.sibling}/{branch.siblings}" if branch.siblings > 1 else ""
        parts[-1] += f" [{branch.name}]" if branch.name else ""
    if use := use_text(chat.cache_use):
        parts.append(use)
    if chat.files:
        parts.append(f"{len(chat.files)} file{'s' if len(chat.files) > 1 else ''} added")
    if doing:
        parts.append(f"{doing}, Ctrl-C ends it" if doing == REPLYING else doing)
    if queued is not None:
        parts.append(_queued(queued))
    return " " + " · ".join(parts)


def _queued(text: str) -> str:
    words = one_line(text)
    return f"queued: {words if len(words) <= 30 else words[:29] + '…'}"
