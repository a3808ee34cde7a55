"""Transcripts as Markdown, to read and to read back: a heading for each message, its text below, exactly.

A line of text that looks like one of these headings gets a backslash, which Markdown does not show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ninfer_cli.repl.transcript import message_json
from ninfer_core import Conversation, UsageError, load_json, parse_messages

TITLE = "# Conversation"
ROLES = {"System": "system", "Developer": "developer", "User": "user", "Assistant": "assistant", "Tool": "tool"}
REASONING, CALL, TOOLS = "Reasoning", "Tool call", "Tools"
_NAMES = "|".join((*ROLES, REASONING, CALL, TOOLS))
_HEADING = re.compile(rf"^## ({_NAMES})(?: `(\{{.*\}})`)?$")
_ESCAPED = re.compile(rf"^(\\+)(## (?:{_NAMES})(?: `\{{.*\}}`)?)$")
_NEEDS_ESCAPE = re.compile(rf"^(\\*)(## (?:{_NAMES})(?: `\{{.*\}}`)?)$", re.MULTILINE)
MOST_BYTES = 16 << 20


def to_markdown(conversation: Conversation) -> str:
    sections = [TITLE]
    if conversation.tools:
        sections.append(_section(TOOLS, _fenced(list(conversation.tools))))
    for message in conversation.messages:
        value = message_json(message)
        extra: dict[str, Any] = {key: value[key] for key in ("tool_call_id", "name") if key in value}
        title = next(title for title, role in ROLES.items() if role == message.role)
        if message.reasoning_content:
            sections.append(_section(REASONING, message.reasoning_content))
        sections.append(_section(title, message.content, extra))
        sections += [_section(CALL, _fenced(call)) for call in value.get("tool_calls", ())]
    return "\n\n".join(sections) + "\n"


def from_markdown(text: str, what: str) -> Conversation:
    """
    Raises:
        UsageError: too large, no heading of ours, or sections that make no conversation.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise UsageError(f"{what}: larger than {MOST_BYTES >> 20} MiB")
    messages: list[dict[str, Any]] = []
    reasoning, tools = None, None
    for number, title, extra, body in _sections(text, what):
        here = f"{what}, line {number}"
        if title == TOOLS:
            tools = _unfenced(body, here)
        elif title == REASONING:
            reasoning = body
        elif title == CALL:
            if not messages or messages[-1]["role"] != "assistant":
                raise UsageError(f"{here}: a tool call stands behind no assistant's message")
            messages[-1].setdefault("tool_calls", []).append(_unfenced(body, here))
        else:
            message = {**extra, "role": ROLES[title], "content": body}
            if reasoning is not None:
                if title != "Assistant":
                    raise UsageError(f"{here}: the reasoning before it belongs to an assistant's message")
                message["reasoning_content"], reasoning = reasoning, None
            messages.append(message)
    if reasoning is not None:
        raise UsageError(f"{what}: it ends with reasoning: an assistant's message belongs behind it")
    if not messages:
        raise UsageError(f"{what}: there is no heading such as ## User: is it a transcript of /export?")
    try:
        return parse_messages({"messages": messages, "tools": tools})
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None


def _section(title: str, body: str, extra: dict[str, Any] | None = None) -> str:
    attributes = "" if not extra else " `" + json.dumps(extra).replace("`", "\\u0060") + "`"
    return f"## {title}{attributes}\n\n" + _NEEDS_ESCAPE.sub(r"\\\1\2", body)


def _sections(text: str, what: str) -> Iterator[tuple[int, str, dict[str, Any], str]]:
    """Line number, title, attributes and text of every section."""
    found: re.Match[str] | None = None
    start, lines = 0, list[str]()
    for number, line in enumerate([*text.removesuffix("\n").split("\n"), None], 1):
        match = None if line is None else _HEADING.match(line)
        if line is not None and match is None:
            escaped = _ESCAPED.match(line)
            lines.append(escaped[1][1:] + escaped[2] if escaped else line)
            continue
        if found is not None:
            last = line is None
            body = lines[1:] if lines[:1] == [""] else lines
            body = body[:-1] if not last and body[-1:] == [""] else body
            extra = load_json(found[2], f"{what}, line {start}") if found[2] else {}
            yield start, found[1], extra, "\n".join(body)
        found, start, lines = match, number, []


def _fenced(value: object) -> str:
    return f"```json\n{json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)}\n```"


def _unfenced(body: str, here: str) -> Any:
    inner = body.strip().removeprefix("```json").removesuffix("```")
    return load_json(inner, here)
