"""Message and Conversation: what a person hands in, checked once, OpenAI style."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ninfer_core.errors import UsageError
from ninfer_core.strict_json import check_value, load_json

ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an assistant message makes. `arguments` is a JSON object; treat it as read-only."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message. All text is untrusted: none of it can become an added token.

    Attributes:
        role: one of system, developer, user, assistant, tool.
        content: the text; "" where an assistant message only calls tools.
        reasoning_content: an assistant's reasoning, or None.
        tool_calls: an assistant's calls, or None.
        tool_call_id: of a tool message, the call that it answers.
        name: optional name of the speaker or tool.
        token_ids: an assistant's own ids, as they were generated. They stand for the text where the rendering shows
            exactly this reply (see own_ids); never read from JSON.
        unfinished: the last message, an assistant's: the output goes on writing it.
    """

    role: str
    content: str = ""
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    token_ids: tuple[int, ...] | None = field(default=None, repr=False)
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, and the JSON schemas of the tools that they may use (None: no tools)."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] | None = None


def parse_messages(source: str | bytes | list[Any] | dict[str, Any]) -> Conversation:
    """Read a conversation from JSON text or from parsed JSON: a list of messages, or an object with messages and tools.

    Content may be a string, null, or a list of text parts; string `arguments` of tool calls are parsed.

    Raises:
        UsageError: one line that names the message and says what is wrong.
    """
    if isinstance(source, (str, bytes)):
        value = load_json(source, "the messages")
    else:
        check_value(source, "the messages")
        value = source
    tools: Any = None
    if isinstance(value, dict):
        tools = value.get("tools")
        if "messages" not in value:
            raise UsageError("the JSON object has no 'messages': give a list of messages, or an object with 'messages'")
        value = value["messages"]
    if not isinstance(value, list):
        raise UsageError('the messages are not a JSON list: give [{"role": "user", "content": "..."}]')
    if not value:
        raise UsageError("the list of messages is empty: give at least one user message")
    return Conversation(tuple(_message(item, i) for i, item in enumerate(value)), parse_tools(tools))


def parse_tools(tools: Any) -> tuple[dict[str, Any], ...] | None:
    """Check tool schemas: a list of JSON objects, null or empty for none.

    Raises:
        UsageError: not such a list.
    """
    if tools is None:
        return None
    check_value(tools, "the tools")
    if not isinstance(tools, (list, tuple)):
        raise UsageError("'tools' is not a list: give a list of JSON schemas")
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise UsageError(f"tools[{i}] is not a JSON object: give a schema with a name")
    return tuple(tools) or None


def _message(item: Any, index: int) -> Message:
    here = f"messages[{index}]"
    if not isinstance(item, dict):
        raise UsageError(f'{here} is not a JSON object: give {{"role": ..., "content": ...}}')
    role = item.get("role")
    if role not in ROLES:
        named = f"has the unknown role {role[:40]!r}" if isinstance(role, str) else "has no role"
        raise UsageError(f"{here} {named}: use {', '.join(ROLES)}")
    calls = _tool_calls(item.get("tool_calls"), here)
    if calls and role != "assistant":
        raise UsageError(f"{here} has tool_calls, but its role is {role}: only assistant messages call tools")
    return Message(
        role=role,
        content=_content(item.get("content"), here),
        reasoning_content=_optional_text(item, ("reasoning_content", "reasoning"), here),
        tool_calls=calls,
        tool_call_id=_optional_text(item, ("tool_call_id",), here),
        name=_optional_text(item, ("name",), here),
    )


def _content(value: Any, here: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise UsageError(f"{here}: content is neither a string nor a list of text parts")
    parts = []
    for part in value:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type", "text") == "text":
            parts.append(part["text"])
        else:
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise UsageError(f"{here}: a content part of type {kind!r} cannot be read: only text is supported as yet")
    return "".join(parts)


def _optional_text(item: dict[str, Any], keys: tuple[str, ...], here: str) -> str | None:
    for key in keys:
        value = item.get(key)
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{here}: {key} is not a string")
        if value is not None:
            return value
    return None


def _tool_calls(value: Any, here: str) -> tuple[ToolCall, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise UsageError(f"{here}: tool_calls is not a list")
    return tuple(_tool_call(call, f"{here}.tool_calls[{i}]") for i, call in enumerate(value)) or None


def _tool_call(value: Any, here: str) -> ToolCall:
    call = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise UsageError(f"{here} has no function name")
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        arguments = load_json(arguments, f"{here}.arguments") if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise UsageError(f"{here}.arguments is not a JSON object")
    identity = value.get("id")
    if identity is not None and not isinstance(identity, str):
        raise UsageError(f"{here}.id is not a string")
    return ToolCall(call["name"], arguments, identity)
