"""Reading tool calls in a reply: the Qwen3.5 form (functions and parameters in tags) and the JSON form (Hermes).

<tool_call>                                      <tool_call>
<function=NAME>                                  {"name": NAME, "arguments": {...}}
<parameter=KEY>                                  </tool_call>
VALUE
</parameter>
</function>
</tool_call>
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninfer_core.errors import UsageError
from ninfer_core.frontend.messages import ToolCall
from ninfer_core.strict_json import load_json

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _END_FUNCTION = "<function=", "</function>"
_PARAMETER, _END_PARAMETER = "<parameter=", "</parameter>"

NOTICE = "the reply holds a tool call that cannot be read; it is left in the text"


@dataclass(frozen=True, slots=True)
class ToolReply:
    """A reply taken apart.

    Attributes:
        text: the answer without the calls that were read.
        calls: the calls, in order.
        notice: one line for the person when a call could not be read and stays in the text, else None.
    """

    text: str
    calls: tuple[ToolCall, ...]
    notice: str | None


class _MalformedError(Exception):
    """A block that is no tool call in either form."""


def parse_tool_calls(text: str, tools: Sequence[Mapping[str, Any]] | None = None) -> ToolReply:
    """Take the tool calls out of a finished answer.

    Args:
        text: the answer.
        tools: JSON schemas; the values of tagged parameters are typed by them, and are strings without them.
    """
    kept: list[str] = []
    calls: list[ToolCall] = []
    notice = None
    done = 0
    while (start := text.find(_OPEN, done)) >= 0:
        end = text.find(_CLOSE, start)
        following = text.find(_OPEN, start + len(_OPEN))
        if end < 0 or 0 <= following < end:  # not closed before the text or the next call
            notice = NOTICE
            stop = following if following >= 0 else len(text)
            kept.append(text[done:stop])
            done = stop
            continue
        stop = end + len(_CLOSE)
        try:
            calls.append(_call(text[start + len(_OPEN) : end].strip(), tools or ()))
            kept.append(text[done:start].strip("\n"))
        except _MalformedError:
            notice = NOTICE
            kept.append(text[done:stop])
        done = stop
    if not calls:
        return ToolReply(text, (), notice)
    kept.append(text[done:].strip("\n"))
    text = "\n\n".join(piece for piece in kept if piece.strip())
    return ToolReply(text.strip("\n"), tuple(calls), notice)


def _call(block: str, tools: Sequence[Mapping[str, Any]]) -> ToolCall:
    if block.startswith("{"):
        return _json_call(block)
    if not block.startswith(_FUNCTION) or not block.endswith(_END_FUNCTION):
        raise _MalformedError
    name, bracket, body = block[len(_FUNCTION) : -len(_END_FUNCTION)].partition(">")
    if not name or not bracket or "\n" in name:
        raise _MalformedError
    schema = _properties(name, tools)
    arguments: dict[str, Any] = {}
    for key, value in _parameters(body.strip()):
        if key in arguments:
            raise _MalformedError
        arguments[key] = _typed(value, _types(schema.get(key)))
    return ToolCall(name, arguments)


def _parameters(body: str) -> Iterator[tuple[str, str]]:
    while body:
        if not body.startswith(_PARAMETER):
            raise _MalformedError
        key, bracket, rest = body[len(_PARAMETER) :].partition(">")
        end = _parameter_end(rest)
        if not key or not bracket or "\n" in key or end < 0:
            raise _MalformedError
        yield key, rest[:end].removeprefix("\n").removesuffix("\n")
        body = rest[end + len(_END_PARAMETER) :].strip()


def _parameter_end(rest: str) -> int:
    """Where a value ends: the first end tag that a parameter or nothing follows, so that values may quote the tag."""
    end = rest.find(_END_PARAMETER)
    while end >= 0:
        behind = rest[end + len(_END_PARAMETER) :].lstrip()
        if not behind or behind.startswith(_PARAMETER):
            break
        end = rest.find(_END_PARAMETER, end + 1)
    return end


def _json_call(block: str) -> ToolCall:
    try:
        value = load_json(block, "the tool call")
        if isinstance(value, dict) and isinstance(value.get("arguments"), str):
            value["arguments"] = load_json(value["arguments"], "the arguments")
    except UsageError:
        raise _MalformedError from None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _MalformedError
    arguments = value.get("arguments", value.get("parameters", {}))
    if not isinstance(arguments, dict):
        raise _MalformedError
    return ToolCall(value["name"], arguments)


def _properties(name: str, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    for tool in tools:
        function = tool.get("function", tool)
        if isinstance(function, Mapping) and function.get("name") == name:
            parameters = function.get("parameters")
            properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
            return properties if isinstance(properties, Mapping) else {}
    return {}


def _types(schema: Any) -> frozenset[str]:
    if not isinstance(schema, Mapping):
        return frozenset()
    named = schema.get("type")
    types = {name for name in (named if isinstance(named, (list, tuple)) else [named]) if isinstance(name, str)}
    for choice in ("anyOf", "oneOf"):
        inner = schema.get(choice)
        for option in inner if isinstance(inner, (list, tuple)) else ():
            types |= _types(option)
    return frozenset(types)


def _typed(value: str, types: frozenset[str]) -> Any:
    """The value as its schema types it; a value that is not of such a type stays a string, as do all without schema."""
    if not types or "string" in types:
        return value
    # Templates write true, false and null as Python does, and models imitate what they read.
    source = {"True": "true", "False": "false", "None": "null"}.get(value.strip(), value)
    try:
        parsed = load_json(source, "the value")
    except UsageError:
        return value
    return parsed if _type_names(parsed) & types else value


def _type_names(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset({"null"})
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        return frozenset({"number"})
    return frozenset({"array" if isinstance(value, list) else "object" if isinstance(value, dict) else "string"})
