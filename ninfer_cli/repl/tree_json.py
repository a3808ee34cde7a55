"""A Tree as JSON and back. What comes in is hostile until checked: size, depth, number of values, every link."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from ninfer_cli.repl.node import Author, Record, Reply, Start, Turn
from ninfer_cli.repl.transcript import message_json
from ninfer_cli.repl.tree import Node, NodeId, Tree, check_name
from ninfer_core import FinishReason, Message, UsageError, check_value, load_json, parse_messages

VERSION = 1
MOST_BYTES = 16 << 20
WHAT = "the conversation"


def to_json(tree: Tree) -> dict[str, Any]:
    """
    Raises:
        UsageError: the conversation is larger than what `from_json` reads.
    """
    value = {
        "version": VERSION,
        "nodes": [_node_json(node) for node in tree.nodes],
        "current": tree.current,
        "names": dict(tree.names),
        "active": tree.active,
    }
    check_value(value, WHAT)
    return value


def from_json(value: object) -> Tree:
    """
    Raises:
        UsageError: not what `to_json` makes. One line that names the place.
    """
    check_value(value, WHAT)
    whole = _object(value, "it", ("version", "nodes", "current", "names", "active"))
    if whole["version"] != VERSION:
        raise _error(f"version {str(whole['version'])[:20]!r} is not {VERSION}: a newer ninfer may read it")
    if not isinstance(whole["nodes"], list) or not whole["nodes"]:
        raise _error("nodes is not a list with a beginning in it")
    nodes = tuple(_node(node, NodeId(i)) for i, node in enumerate(whole["nodes"]))
    count = len(nodes)
    names = _object(whole["names"], "names")
    for name, tip in names.items():
        try:
            check_name(name)
        except ValueError as error:
            raise _error(f"names: {error}") from None
        _index(tip, count, "names")
    current = _index(whole["current"], count, "current")
    active = whole["active"]
    if active is not None and (not isinstance(active, str) or names.get(active) != current):
        raise _error("active is not a branch at the current point")
    return Tree(nodes, current, {name: NodeId(tip) for name, tip in names.items()}, active)


def to_text(tree: Tree) -> str:
    """Raises UsageError as to_json does, and beyond 16 MiB."""
    text = json.dumps(to_json(tree), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise UsageError(f"{WHAT} is larger than {MOST_BYTES >> 20} MiB: /export writes a path of it")
    return text


def from_text(text: str | bytes) -> Tree:
    """Raises UsageError: not JSON, or as from_json does."""
    return from_json(load_json(text, WHAT))


# --- out --------------------------------------------------------------------------------------------------------------


def _node_json(node: Node) -> dict[str, Any]:
    value = node.value
    if isinstance(value, Start):
        tools = None if value.tools is None else list(value.tools)
        return {"parent": None, "leading": [message_json(m) for m in value.leading], "tools": tools}
    return {"parent": node.parent, "asked": [message_json(m) for m in value.asked], "reply": _reply_json(value.reply)}


def _reply_json(reply: Reply) -> dict[str, Any]:
    ids = struct.pack(f"<{len(reply.token_ids)}I", *reply.token_ids)
    return {
        "message": message_json(reply.message()),
        "reasoning": reply.reasoning,
        "finish": reply.finish.value,
        "author": reply.author.value,
        "think": reply.think,
        # one value instead of thousands: a long conversation stays below the limit on values
        "token_ids": base64.b64encode(ids).decode("ascii"),
        "record": None if reply.record is None else msgspec.to_builtins(reply.record),
    }


# --- in ---------------------------------------------------------------------------------------------------------------


def _node(value: object, at: NodeId) -> Node:
    here = f"nodes[{at}]"
    node = _object(value, here)
    parent = node.get("parent")
    if parent is None:
        _object(node, here, ("parent", "leading", "tools"))
        leading = _messages(node["leading"], here, node["tools"])
        if any(message.role not in ("system", "developer") for message in leading):
            raise _error(f"{here}: leading holds another role than system")
        return Node(None, Start(leading, None if not node["tools"] else tuple(node["tools"])))
    _object(node, here, ("parent", "asked", "reply"))
    # A parent comes before its children: so there is no cycle, and every path ends at a beginning.
    earlier = _index(parent, at, f"{here}, its parent")
    asked = _messages(node["asked"], here)
    if any(message.role == "assistant" for message in asked):
        raise _error(f"{here}: asked holds a reply")
    return Node(earlier, Turn(asked, _reply(node["reply"], f"{here}.reply")))


def _reply(value: object, here: str) -> Reply:
    reply = _object(value, here, ("message", "reasoning", "finish", "author", "think", "token_ids", "record"))
    (message,) = _messages([reply["message"]], here)
    if message.role != "assistant":
        raise _error(f"{here} is a {message.role}'s")
    if reply["reasoning"] not in (None, message.reasoning_content or ""):
        raise _error(f"{here}: reasoning is not that of its message")
    try:
        finish, author = FinishReason(reply["finish"]), Author(reply["author"])
        record = None if reply["record"] is None else msgspec.convert(reply["record"], Record, strict=True)
    except ValueError as error:  # msgspec.ValidationError is one
        raise _error(f"{here}: {' '.join(str(error).split())[:200]}") from None
    if reply["think"] not in (None, True, False):
        raise _error(f"{here}: think is neither true, false nor null")
    ids = _token_ids(reply["token_ids"], here)
    return Reply(message.content, reply["reasoning"], message.tool_calls, finish, author, reply["think"], ids, record)


def _messages(value: object, here: str, tools: object = None) -> tuple[Message, ...]:
    if not isinstance(value, list):
        raise _error(f"{here}: its messages are not a list")
    try:
        probe = value or [{"role": "system", "content": ""}]  # an empty list is fine here, its tools are checked
        found = parse_messages({"messages": probe, "tools": tools}).messages
    except UsageError as error:
        raise _error(f"{here}: {error}") from None
    return found if value else ()


def _token_ids(value: object, here: str) -> tuple[int, ...]:
    try:
        if not isinstance(value, str):
            raise ValueError
        data = base64.b64decode(value, validate=True)
        return struct.unpack(f"<{len(data) // 4}I", data)
    except (struct.error, ValueError, binascii.Error):
        raise _error(f"{here}: token_ids is not base64 of 32-bit numbers") from None


def _object(value: object, here: str, keys: tuple[str, ...] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _error(f"{here} is not a JSON object")
    if keys is not None and set(value) != set(keys):
        wrong = sorted(set(value) ^ set(keys))[0]
        raise _error(f"{here} {'has the unknown' if wrong in value else 'lacks the'} key {wrong[:40]!r}")
    return value


def _index(value: object, count: int, here: str) -> NodeId:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise _error(f"{here}: {str(value)[:20]!r} is not a node from 0 to {count - 1}")
    return NodeId(value)


def _error(text: str) -> UsageError:
    return UsageError(f"{WHAT}: {text}")
