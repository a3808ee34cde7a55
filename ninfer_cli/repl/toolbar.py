"""The line below the input: model, context, turn, cache, and what is going on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from ninfer_cli.cache_view import use_text
from ninfer_cli.cleaning import one_line
from ninfer_cli.repl.loop import REPLYING
from ninfer_cli.wording import counted

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat


def toolbar(
    chat: Chat, *, doing: str = "", queued: str | None = None, progress: str = "", columns: int | None = None
) -> str:
    """Plain text, one line.

    Args:
        doing: as of Taker.
        progress: what is being generated besides the reply that is shown.
        columns: cells of the window. Where they are few, model, cache and files give way, in this order.
    """
    if progress:  # all of it must fit into a narrow window
        return f" {progress} · Ctrl-C ends all" + (f" · {_queued(queued)}" if queued is not None else "")
    model, cache = one_line(chat.engine.info.model), use_text(chat.cache_use)
    files = f"{counted(len(chat.files), 'file')} added" if chat.files else ""
    going = f"{doing}, Ctrl-C ends it" if doing == REPLYING else doing
    waiting = "" if queued is None else _queued(queued)
    used = f"{chat.context_used()}/{chat.engine.info.max_context} tok"
    parts = [model, used, _turn(chat), cache, files, going, waiting]
    for spare in (0, 3, 4):
        if columns is None or cell_len(_line(parts)) <= columns:
            break
        parts[spare] = ""
    return _line(parts)


def _line(parts: list[str]) -> str:
    return " " + " · ".join(filter(None, parts))


def _turn(chat: Chat) -> str:
    tree = chat.tree
    path = tree.path()
    if not path:
        return "no turn yet"
    branch = tree.branch(path[-1])
    sibling = f", sibling {branch.sibling}/{branch.siblings}" if branch.siblings > 1 else ""
    return f"turn {len(path)}{sibling}" + (f" [{branch.name}]" if branch.name else "")


def _queued(text: str) -> str:
    words = one_line(text)
    return f"queued: {words if len(words) <= 30 else words[:29] + '…'}"
