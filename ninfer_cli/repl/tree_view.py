"""/tree: every node on a line, turns that follow each other below each other, siblings indented."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ninfer_cli.repl.command import shortened
from ninfer_cli.repl.node import Start
from ninfer_cli.repl.tree import Node, NodeId, Tree
from ninfer_cli.result import Branch

WORDS = 30
MOST_INDENT = 20


States = Mapping[NodeId, str]
"""Where the reply of a node would resume from; a node without is not known."""


def tree_rows(tree: Tree, states: States) -> list[dict[str, Any]]:
    """One object for each node, in the order that people read them."""
    return [_row(tree, at, place) | {"resume": states.get(at)} for at, _, place in _walk(tree)]


def tree_text(tree: Tree, states: States) -> str:
    path = {*tree.path(), tree.current}
    width = len(str(len(tree.nodes) - 1))
    lines = []
    for at, depth, place in _walk(tree):
        node = tree.nodes[at]
        mark = "*" if at == tree.current else "|" if at in path else " "
        name = tree.name(at)
        resume = states.get(at)
        notes = "".join(f"  {note}" for note in (f"[{name}]" if name else None, resume and f"({resume})") if note)
        lines.append(f"{mark} {at:>{width}}  {'  ' * min(depth, MOST_INDENT)}{_words(node, place)}{notes}")
    return "\n".join(lines)


def _words(node: Node, place: Branch | None) -> str:
    if isinstance(node.value, Start):
        system = node.value.system
        return "beginning" + (f", system: {shortened(system, WORDS)}" if system else "")
    assert place is not None
    sibling = f", sibling {place.sibling}/{place.siblings}" if place.siblings > 1 else ""
    reply = node.value.reply
    said = shortened(node.value.text, WORDS)
    end = "" if reply.finish.value == "stop" else f" ({reply.finish.value})"
    return f"turn {place.turn}{sibling}: {said} -> {shortened(reply.text, WORDS)}{end}"


def _row(tree: Tree, at: NodeId, place: Branch | None) -> dict[str, Any]:
    node = tree.nodes[at]
    row: dict[str, Any] = {"node": at, "parent": node.parent, "name": tree.name(at), "current": at == tree.current}
    row |= {
        "turn": place.turn if place else None,
        "sibling": place.sibling if place else None,
        "siblings": place.siblings if place else None,
    }
    if isinstance(node.value, Start):
        return {**row, "system": node.value.system, "said": None, "reply": None, "finish": None}
    reply = node.value.reply
    return {**row, "system": None, "said": node.value.text, "reply": reply.text, "finish": reply.finish.value}


def _walk(tree: Tree) -> list[tuple[NodeId, int, Branch | None]]:
    """Every node with its indentation and, of a turn, its place. Not recursive: a path may be very long."""
    children: dict[NodeId | None, list[NodeId]] = {}
    for i, node in enumerate(tree.nodes):
        children.setdefault(node.parent, []).append(NodeId(i))
    stack: list[tuple[NodeId, int, Branch | None]] = [(at, 0, None) for at in reversed(children[None])]
    found = []
    while stack:
        at, depth, place = stack.pop()
        found.append((at, depth, place))
        behind = children.get(at, [])
        turn = place.turn + 1 if place else 1
        deeper = depth + 1 if len(behind) > 1 else depth
        rows = [(child, deeper, Branch(turn, i, len(behind))) for i, child in enumerate(behind, 1)]
        stack += reversed(rows)
    return found
