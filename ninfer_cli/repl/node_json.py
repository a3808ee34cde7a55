"""Nodes as JSON and back: few values each, so that thousands of turns stay within what a session may hold.

What a reply has as a rule is left out, settings that many replies share stand once in a table, token ids are one
string, and so are a request's statistics.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ninfer_cli.repl import json_checks as check
from ninfer_cli.repl.node import Author, Record, Reply, Start, Turn
from ninfer_cli.repl.node_json_1 import read_start
from ninfer_cli.repl.transcript import message_json
from ninfer_cli.repl.tree import Node, NodeId
from ninfer_core import FinishReason, Message, RequestStatistics, check_value

MOST_STATISTICS = 1 << 16
"""Characters of one request's statistics as a string; longer ones stand as an object, each of its values counted."""

MOST_SETTINGS = 1000
"""Sampling settings, and stop strings, in one row: every node that refers to it is written with it in view."""

_OPTIONAL = ("reasoning", "finish", "author", "think", "ids", "wide_ids", "settings", "seed", "statistics")
_SETTINGS = ("model", "sampling", "max_new", "stop", "thinking_budget")


# --- out --------------------------------------------------------------------------------------------------------------


class NodeWriter:
    """Puts nodes into JSON. What they share is in `settings`, which only grows."""

    def __init__(self) -> None:
        self.settings: list[dict[str, Any]] = []
        self._at: dict[bytes, int] = {}

    def json(self, node: Node) -> dict[str, Any]:
        value = node.value
        if isinstance(value, Start):
            tools = None if value.tools is None else list(value.tools)
            return {"parent": None, "leading": [message_json(m) for m in value.leading], "tools": tools}
        return {"parent": node.parent, "asked": _asked(value.asked), **self._reply(value.reply)}

    def _reply(self, reply: Reply) -> dict[str, Any]:
        found: dict[str, Any] = {"reply": reply.text}
        if reply.tool_calls:
            found["reply"] = message_json(replace(reply.message(), reasoning_content=None))
        if reply.reasoning is not None:
            found["reasoning"] = reply.reasoning
        if reply.finish is not FinishReason.STOP:
            found["finish"] = reply.finish.value
        if reply.author is not Author.MODEL:
            found["author"] = reply.author.value
        if reply.think is not None:
            found["think"] = reply.think
        if reply.token_ids:
            found |= _packed(reply.token_ids)
        if reply.record is not None:
            found |= self._record(reply.record)
        return found

    def _record(self, record: Record) -> dict[str, Any]:
        settings = {name: msgspec.to_builtins(getattr(record, name)) for name in _SETTINGS}
        key = msgspec.json.encode(settings)
        if key not in self._at:
            self._at[key] = len(self.settings)
            self.settings.append(settings)
        statistics = msgspec.to_builtins(record.statistics)
        check_value(statistics, check.WHAT)  # a number that is not finite would not be read again
        text = json.dumps(statistics, ensure_ascii=False, separators=(",", ":"))
        found = {"settings": self._at[key], "statistics": text if len(text) <= MOST_STATISTICS else statistics}
        return found if record.seed is None else found | {"seed": record.seed}


def _asked(asked: Sequence[Message]) -> str | list[dict[str, Any]]:
    if len(asked) == 1 and asked[0] == Message("user", asked[0].content):
        return asked[0].content
    return [message_json(message) for message in asked]


def _packed(ids: Sequence[int]) -> dict[str, str]:
    """Three bytes for each id: no vocabulary is larger. Other numbers, which a hostile file may have, take four."""
    whole = struct.pack(f"<{len(ids)}I", *ids)
    if any(whole[3::4]):
        return {"wide_ids": base64.b64encode(whole).decode("ascii")}
    three = bytearray(3 * len(ids))
    for place in range(3):
        three[place::3] = whole[place::4]
    return {"ids": base64.b64encode(three).decode("ascii")}


# --- in ---------------------------------------------------------------------------------------------------------------


class _Settings(msgspec.Struct, frozen=True):
    """A row of the table. Converted once: a short file may refer to a long row thousands of times."""

    model: str
    sampling: dict[str, float]
    max_new: int
    stop: tuple[str, ...]
    thinking_budget: int | None

    def shared(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SETTINGS}


class NodeReader:
    """Reads nodes beside a table of settings. Raises UsageError as its methods do."""

    def __init__(self, settings: object) -> None:
        if not isinstance(settings, list):
            raise check.error("settings is not a list")
        self._settings = [_row(check.object_of(one, f"settings[{i}]", _SETTINGS), i) for i, one in enumerate(settings)]

    def node(self, value: object, at: int) -> Node:
        """Raises UsageError."""
        here = f"nodes[{at}]"
        parent = check.object_of(value, here).get("parent")
        if parent is None:
            return Node(None, read_start(value, here))
        node = check.object_of(value, here, ("parent", "asked", "reply"), _OPTIONAL)
        # A parent comes before its children: so there is no cycle, and every path ends at a beginning.
        earlier = check.index(parent, at, f"{here}, its parent")
        asked = node["asked"]
        said = (Message("user", asked),) if isinstance(asked, str) else check.messages(asked, here)
        if any(message.role == "assistant" for message in said):
            raise check.error(f"{here}: asked holds a reply")
        return Node(NodeId(earlier), Turn(said, self._reply(node, here)))

    def _reply(self, node: Any, here: str) -> Reply:
        text, calls = node["reply"], None
        if not isinstance(text, str):
            (message,) = check.messages([text], here)
            if message.role != "assistant":
                raise check.error(f"{here}: its reply is a {message.role}'s")
            text, calls = message.content, message.tool_calls
        reasoning, think = node.get("reasoning"), node.get("think")
        if reasoning is not None and not isinstance(reasoning, str):
            raise check.error(f"{here}: reasoning is not a text")
        if not (think is None or isinstance(think, bool)):
            raise check.error(f"{here}: think is neither true, false nor null")
        try:
            finish, author = FinishReason(node.get("finish", "stop")), Author(node.get("author", "model"))
        except ValueError as problem:
            raise check.error(f"{here}: {check.short(problem)}") from None
        return Reply(text, reasoning, calls, finish, author, think, _ids(node, here), self._record(node, here))

    def _record(self, node: Any, here: str) -> Record | None:
        if "settings" not in node and "statistics" not in node:
            return None
        check.object_of(node, here, ("settings", "statistics", "parent", "asked", "reply"), _OPTIONAL)
        settings = self._settings[check.index(node["settings"], len(self._settings), here, "a row of settings")]
        statistics = node["statistics"]
        try:
            if isinstance(statistics, str):
                if len(statistics) > MOST_STATISTICS:
                    raise ValueError(f"statistics of more than {MOST_STATISTICS} characters")
                statistics = msgspec.json.decode(statistics)
            return Record(
                **settings.shared(),
                seed=msgspec.convert(node.get("seed"), int | None, strict=True),
                statistics=msgspec.convert(statistics, RequestStatistics, strict=True),
            )
        except (ValueError, RecursionError, msgspec.MsgspecError) as problem:
            raise check.error(f"{here}: {check.short(problem)}") from None


def _row(value: Any, at: int) -> _Settings:
    try:
        row = msgspec.convert(value, _Settings, strict=True)
        if len(row.sampling) > MOST_SETTINGS or len(row.stop) > MOST_SETTINGS:
            raise ValueError(f"more than {MOST_SETTINGS} of a kind")
        return row
    except (ValueError, msgspec.MsgspecError) as problem:
        raise check.error(f"settings[{at}]: {check.short(problem)}") from None


def _ids(node: Any, here: str) -> tuple[int, ...]:
    if "ids" in node and "wide_ids" in node:
        raise check.error(f"{here} has token ids twice")
    if "ids" in node:
        three = check.data(node["ids"], here, 3)
        whole = bytearray(len(three) // 3 * 4)
        for place in range(3):
            whole[place::4] = three[place::3]
    else:
        whole = bytearray(check.data(node.get("wide_ids", ""), here, 4))
    return struct.unpack(f"<{len(whole) // 4}I", whole)
