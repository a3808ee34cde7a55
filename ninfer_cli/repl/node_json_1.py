"""Nodes as the first version of a conversation's JSON had them: read, never written."""

from __future__ import annotations

import struct

import msgspec

from ninfer_cli.repl import json_checks as check
from ninfer_cli.repl.node import Author, Record, Reply, Start, Turn
from ninfer_cli.repl.tree import Node, NodeId
from ninfer_core import FinishReason


def read_node(value: object, at: int) -> Node:
    """Raises UsageError."""
    here = f"nodes[{at}]"
    node = check.object_of(value, here)
    parent = node.get("parent")
    if parent is None:
        return Node(None, read_start(value, here))
    check.object_of(node, here, ("parent", "asked", "reply"))
    # A parent comes before its children: so there is no cycle, and every path ends at a beginning.
    earlier = check.index(parent, at, f"{here}, its parent")
    asked = check.messages(node["asked"], here)
    if any(message.role == "assistant" for message in asked):
        raise check.error(f"{here}: asked holds a reply")
    return Node(NodeId(earlier), Turn(asked, _reply(node["reply"], f"{here}.reply")))


def read_start(value: object, here: str) -> Start:
    """A beginning, which is the same in every version."""
    node = check.object_of(value, here, ("parent", "leading", "tools"))
    leading = check.messages(node["leading"], here, node["tools"])
    if any(message.role not in ("system", "developer") for message in leading):
        raise check.error(f"{here}: leading holds another role than system")
    return Start(leading, None if not node["tools"] else tuple(node["tools"]))


def _reply(value: object, here: str) -> Reply:
    keys = ("message", "reasoning", "finish", "author", "think", "token_ids", "record")
    reply = check.object_of(value, here, keys)
    (message,) = check.messages([reply["message"]], here)
    if message.role != "assistant":
        raise check.error(f"{here} is a {message.role}'s")
    if reply["reasoning"] not in (None, message.reasoning_content or ""):
        raise check.error(f"{here}: reasoning is not that of its message")
    try:
        finish, author = FinishReason(reply["finish"]), Author(reply["author"])
        record = None if reply["record"] is None else msgspec.convert(reply["record"], Record, strict=True)
    except (ValueError, msgspec.MsgspecError) as problem:
        raise check.error(f"{here}: {check.short(problem)}") from None
    if reply["think"] not in (None, True, False):
        raise check.error(f"{here}: think is neither true, false nor null")
    ids = check.data(reply["token_ids"], here, 4)
    numbers = struct.unpack(f"<{len(ids) // 4}I", ids)
    return Reply(
        message.content, reply["reasoning"], message.tool_calls, finish, author, reply["think"], numbers, record
    )
