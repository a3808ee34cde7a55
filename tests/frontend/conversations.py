"""Hypothesis strategies for conversations."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ninfer_core.frontend.messages import Message, ToolCall

ADDED = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_response>")
_FRAGMENTS = sorted({token[a:b] for token in ADDED for a in range(len(token)) for b in (a + 1, a + 4, len(token))})
_FILL = (
    "a",
    " ",
    "\n",
    "\n\n",
    "user",
    "assistant",
    '"',
    "'",
    "\\",
    "{",
    "}",
    "\t",
    "é",
    "中",
    "\U00020001",
    "😀",
    "A",
)

hostile = st.lists(st.sampled_from((*_FRAGMENTS, *ADDED, *_FILL)), max_size=6).map("".join)
"""Text made of whole and broken added tokens."""

benign = st.text(st.sampled_from("abc XYZ\n.,:'\"09é中😀{}[]#*-\\\t"), max_size=24)
"""Text that holds no part of an added token that could become one."""


def tool_calls(text: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[ToolCall, ...] | None]:
    values = st.recursive(
        text | st.integers(-9, 9) | st.booleans() | st.none(), lambda v: st.lists(v, max_size=2), max_leaves=3
    )
    call = st.builds(ToolCall, name=text, arguments=st.dictionaries(text, values, max_size=2))
    return st.none() | st.lists(call, min_size=1, max_size=2).map(tuple)


@st.composite
def conversations(
    draw: st.DrawFn, text: st.SearchStrategy[str], reasoning: bool = True, tools: bool = True
) -> list[Message]:
    """Turns that the published template takes: a system message perhaps, then questions with replies and tool loops."""
    messages = [Message("system", draw(text))] if draw(st.booleans()) else []
    turns = draw(st.integers(1, 3))
    for turn in range(turns):
        messages.append(Message("user", draw(text)))
        steps = draw(st.integers(0, 2)) if tools else 0
        for _ in range(steps):
            calls = draw(tool_calls(text).filter(bool))
            messages.append(Message("assistant", draw(text), draw(text) if reasoning else None, calls))
            messages += [Message("tool", draw(text)) for _ in calls or ()]
        if turn < turns - 1:
            messages.append(Message("assistant", draw(text), draw(text) if reasoning else None))
    return messages


def schemas(text: st.SearchStrategy[str]) -> st.SearchStrategy[list[dict[str, Any]] | None]:
    tool = st.builds(_schema, text, text, st.dictionaries(text, text, max_size=2))
    return st.none() | st.lists(tool, min_size=1, max_size=2)


def _schema(name: str, description: str, fields: dict[str, str]) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": value} for key, value in fields.items()}
    function = {"name": name, "description": description, "parameters": {"type": "object", "properties": properties}}
    return {"type": "function", "function": function}
