"""A Tree as JSON and back. What comes in is hostile until checked: size, depth, number of values, every link."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ninfer_cli.repl import json_checks as check
from ninfer_cli.repl import node_json_1
from ninfer_cli.repl.node_json import NodeReader, NodeWriter
from ninfer_cli.repl.tree import Node, NodeId, Tree, check_name
from ninfer_core import check_value
from ninfer_core.strict_json import MAX_BYTES, MAX_NODES

VERSION = 2


class TreeWriter:
    """Writes a tree again and again while it grows: each node is put into JSON and measured once."""

    _nodes: NodeWriter
    _written: list[dict[str, Any]]
    _last: Node | None
    _values: int
    _size: int

    def __init__(self) -> None:
        self._clear()

    def json(self, tree: Tree) -> dict[str, Any]:
        """
        Raises:
            UsageError: the conversation is larger than what `from_json` reads.
        """
        self._follow(tree)
        value = {
            "version": VERSION,
            "settings": list(self._nodes.settings),
            "nodes": list(self._written),
            "current": tree.current,
            "names": dict(tree.names),
            "active": tree.active,
        }
        check_value(value, check.WHAT)
        return value

    def share(self, tree: Tree) -> float:
        """How much of what one JSON may be the tree takes, values or bytes, whichever is nearer: beyond 1 it is not
        read again. Names and settings count, the room that a session's state needs beside it does not."""
        self._follow(tree)
        rest = [list(self._nodes.settings), dict(tree.names)]
        values, size = self._values + _values(rest), self._size + _size(rest)
        return max(values / MAX_NODES, size / MAX_BYTES)

    def _follow(self, tree: Tree) -> None:
        known = len(self._written)
        if known > len(tree.nodes) or (known and tree.nodes[known - 1] is not self._last):
            self._clear()  # another tree: nodes only ever come behind those that are there
        for node in tree.nodes[len(self._written) :]:
            value = self._nodes.json(node)
            self._written.append(value)
            self._values += _values(value)
            self._size += _size(value)
            self._last = node

    def _clear(self) -> None:
        self._nodes, self._written, self._last = NodeWriter(), [], None
        self._values = self._size = 0


def to_json(tree: Tree) -> dict[str, Any]:
    """Raises UsageError as `TreeWriter.json` does."""
    return TreeWriter().json(tree)


def from_json(value: object) -> Tree:
    """
    Raises:
        UsageError: not what `to_json` makes, or has made in earlier versions. One line that names the place.
    """
    check_value(value, check.WHAT)
    version = check.object_of(value, "it").get("version")
    keys = ("version", "nodes", "current", "names", "active")
    if version == 1:
        whole = check.object_of(value, "it", keys)
        read: Callable[[object, int], Node] = node_json_1.read_node
    elif version == VERSION:
        whole = check.object_of(value, "it", (*keys, "settings"))
        read = NodeReader(whole["settings"]).node
    else:
        raise check.error(f"version {str(version)[:20]!r} is not 1 or {VERSION}: a newer ninfer may read it")
    if not isinstance(whole["nodes"], list) or not whole["nodes"]:
        raise check.error("nodes is not a list with a beginning in it")
    nodes = tuple(read(node, i) for i, node in enumerate(whole["nodes"]))
    count = len(nodes)
    names = check.object_of(whole["names"], "names")
    for name, tip in names.items():
        try:
            check_name(name)
        except ValueError as problem:
            raise check.error(f"names: {problem}") from None
        check.index(tip, count, "names")
    current = NodeId(check.index(whole["current"], count, "current"))
    active = whole["active"]
    if active is not None and (not isinstance(active, str) or names.get(active) != current):
        raise check.error("active is not a branch at the current point")
    return Tree(nodes, current, {name: NodeId(tip) for name, tip in names.items()}, active)


def _values(value: object) -> int:
    """As the reader counts them."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return 1 + sum(map(_values, inner))


def _size(value: object) -> int:
    """Bytes of it as JSON, with what stands between it and the next."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass")) + 1
