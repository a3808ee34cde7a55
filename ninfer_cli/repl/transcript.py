"""Transcripts as JSON: the current path as OpenAI-style messages, and messages as a path."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ninfer_cli.repl.node import Author, Reply, Start, Turn
from ninfer_cli.repl.tree import Tree
from ninfer_core import Conversation, Message, UsageError, parse_messages


@dataclass(frozen=True, slots=True)
class Path:
    """A conversation from its beginning.

    Attributes:
        unanswered: what the user said last, without a reply; "" as a rule.
    """

    start: Start
    turns: tuple[Turn, ...]
    unanswered: str = ""


def message_json(message: Message) -> dict[str, Any]:
    """One message in OpenAI's form; what does not apply is left out."""
    value: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning_content:
        value["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        value["tool_calls"] = [
            {
                **({} if call.id is None else {"id": call.id}),
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        value["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        value["name"] = message.name
    return value


def path_of(tree: Tree) -> Conversation:
    """The current path as messages and tools."""
    return Conversation(tuple(tree.messages()), tree.start.tools)


def to_json(conversation: Conversation) -> str:
    """What `run --messages` and /import read."""
    value: dict[str, Any] = {"messages": [message_json(message) for message in conversation.messages]}
    if conversation.tools:
        value["tools"] = list(conversation.tools)
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def from_json(text: str | bytes, what: str) -> Conversation:
    """Raises UsageError: not JSON, not messages, or larger than the limits."""
    try:
        return parse_messages(text)
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None


def as_path(conversation: Conversation, what: str) -> Path:
    """Messages as turns.

    Raises:
        UsageError: they end with a tool's result, or hold nothing that was said.
    """
    messages = list(conversation.messages)
    first = next((i for i, m in enumerate(messages) if m.role not in ("system", "developer")), len(messages))
    turns: list[Turn] = []
    asked: list[Message] = []
    for message in messages[first:]:
        if message.role == "assistant":
            turns.append(Turn(tuple(asked), _reply(message)))
            asked = []
        else:
            asked.append(message)
    if any(message.role != "user" for message in asked):
        raise UsageError(f"{what}: the last message is a {asked[-1].role}'s: it needs a reply behind it")
    start = Start(tuple(messages[:first]), conversation.tools)
    return Path(start, tuple(turns), "\n\n".join(message.content for message in asked))


def grown(tree: Tree, start: Start, turns: Iterable[Turn]) -> Tree:
    """The tree with another beginning and these turns behind it; the point is at their end."""
    tree = tree.begin(start)
    for turn in turns:
        tree = tree.add(tree.current, turn)
    return tree


def _reply(message: Message) -> Reply:
    reasoning = message.reasoning_content or None
    return Reply(message.content, reasoning, message.tool_calls, author=Author.IMPORT)
