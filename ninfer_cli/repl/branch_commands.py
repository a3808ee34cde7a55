"""Commands that move the current point: /undo, /redo, /branch, /switch, /prev, /next, /tree, /new, /system."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ninfer_cli.repl.command import Outcome, shortened, whole_number
from ninfer_cli.repl.node import Start
from ninfer_cli.repl.transcript import grown
from ninfer_cli.repl.tree import NodeId, Tree
from ninfer_cli.repl.tree_view import tree_rows, tree_text
from ninfer_cli.result import branch_json
from ninfer_cli.wording import counted, span
from ninfer_core import Message, UsageError

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat


MOST_NAMES = 8
"""Names of branches in one message."""


def undo(chat: Chat, argument: str) -> Outcome:
    count = whole_number(argument or "1") or 0  # what is no number is refused as 0 is
    left = chat.tree.path()
    chat.tree = _moved(f"/undo {shortened(argument)}".rstrip(), lambda: chat.tree.undo(count))
    turns = len(chat.tree.path())
    first = shortened(chat.tree.turn_at(left[turns]).text)
    return Outcome(
        f"back before: {first} ({counted(turns, 'turn')} left)", {"undone": len(left) - turns, "turns": turns}
    )


def redo(chat: Chat, argument: str) -> Outcome:
    chat.tree = _moved("/redo", chat.tree.redo)
    return _at(chat)


def branch(chat: Chat, argument: str) -> Outcome:
    if not argument:
        tree = chat.tree
        names = {name: {"node": tip, "turn": len(tree.path(tip))} for name, tip in tree.names.items()}
        lines = [
            f"{'*' if name == tree.active else ' '} {name}: turn {at['turn']}, node {at['node']}"
            for name, at in names.items()
        ]
        return Outcome("\n".join(lines) or "no branch has a name yet: /branch NAME gives this one a name", names)
    chat.tree = _moved("/branch", lambda: chat.tree.call(argument))
    return Outcome(f"branch {argument}: turn {len(chat.tree.path())}", _value(chat.tree))


def switch(chat: Chat, argument: str) -> Outcome:
    tree = chat.tree
    if not argument:
        raise UsageError(f"/switch wants a place to go to: {_places(tree)}")
    if (number := whole_number(argument)) is not None:
        if not 0 <= number < len(tree.nodes):
            raise UsageError(f"/switch: there is no node {argument}: {_places(tree)}")
        chat.tree = tree.switch(NodeId(number))
        return _at(chat)
    if argument not in tree.names:
        near = difflib.get_close_matches(argument, tree.names, n=1)
        hint = f"did you mean {near[0]}?" if near else _places(tree)
        raise UsageError(f"/switch: there is no branch {shortened(argument)}: {hint}")
    chat.tree = replace(tree.switch(tree.names[argument]), active=argument)
    return _at(chat)


def previous(chat: Chat, argument: str) -> Outcome:
    chat.tree = _moved("/prev", lambda: chat.tree.beside(-1))
    return _at(chat)


def next_(chat: Chat, argument: str) -> Outcome:
    chat.tree = _moved("/next", lambda: chat.tree.beside(1))
    return _at(chat)


def tree(chat: Chat, argument: str) -> Outcome:
    states = chat.resume_states()
    return Outcome(tree_text(chat.tree, states), tree_rows(chat.tree, states))


def new(chat: Chat, argument: str) -> Outcome:
    kept = chat.begin_anew()
    text = "a new conversation"
    if kept is not None:
        text += f"; the one before stays in {kept}"
    elif len(chat.tree.nodes) > 1:
        text += "; the one before is not saved: it stays in /tree"
    return Outcome(text, {"node": chat.tree.current})


def system(chat: Chat, argument: str) -> Outcome:
    old = chat.tree.start
    if not argument:
        return Outcome(f"system message: {old.system}" if old.system else "there is no system message", old.system)
    text = None if argument == "none" else argument
    start = Start((Message("system", text),) if text else (), old.tools)
    turns = [chat.tree.turn_at(at) for at in chat.tree.path()]
    tokens = chat.adopt(grown(chat.tree, start, turns))
    again = f"; the next reply reads {counted(tokens, 'token')} again" if tokens else ""
    return Outcome(f"system message {'set' if text else 'removed'}{again}", {"system": text, "tokens": tokens})


def _places(tree: Tree) -> str:
    """What /switch takes."""
    node = f"the number of a node, {span(0, len(tree.nodes) - 1)} (/tree shows them)"
    if not tree.names:
        return f"give {node}; no branch has a name yet"
    names = list(tree.names)
    more = f" and {len(names) - MOST_NAMES} more, /branch lists them" if len(names) > MOST_NAMES else ""
    return f"give the name of a branch ({', '.join(names[:MOST_NAMES])}{more}) or {node}"


def _moved(what: str, verb: Callable[[], Tree]) -> Tree:
    try:
        return verb()
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from None


def _at(chat: Chat) -> Outcome:
    """Where the point is now, in words and for --json."""
    tree = chat.tree
    turn = tree.turn
    if turn is None:
        system = tree.start.system
        return Outcome("at the beginning" + (f", system: {shortened(system)}" if system else ""), _value(tree))
    branch = tree.branch(tree.current)
    name = f" [{branch.name}]" if branch.name else ""
    words = "" if chat.surface.interactive else f": {shortened(turn.text, 30)} -> {shortened(turn.reply.text, 30)}"
    text = f"turn {branch.turn}, sibling {branch.sibling}/{branch.siblings}{name}{words}"
    return Outcome(text, _value(tree), show=True)


def _value(tree: Tree) -> dict[str, object]:
    if tree.turn is None:
        return {"node": tree.current, "turn": 0, "sibling": None, "siblings": None, "name": tree.name(tree.current)}
    return {"node": tree.current, **branch_json(tree.branch(tree.current))}
