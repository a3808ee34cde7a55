"""parse_messages: what is read, and that hostile input is refused in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_core.errors import UsageError
from ninfer_core.frontend.messages import Message, ToolCall, parse_messages
from ninfer_core.strict_json import check_value, load_json

USER = {"role": "user", "content": "hi"}


def test_a_list_and_an_object_are_read() -> None:
    listed = parse_messages('[{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]')
    assert listed.messages == (Message("system", "s"), Message("user", "hi")) and listed.tools is None
    tool = {"type": "function", "function": {"name": "f"}}
    both = parse_messages({"messages": [USER], "tools": [tool]})
    assert both.tools == (tool,)
    assert parse_messages({"messages": [USER], "tools": []}).tools is None


def test_parts_of_text_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, "b", {"text": "c"}]
    assert parse_messages([{"role": "user", "content": parts}]).messages[0].content == "abc"


def test_tool_calls_with_string_arguments() -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": [1, null]}'}},
        {"name": "g", "arguments": {"y": "z"}},
        {"function": {"name": "h", "arguments": ""}},
    ]
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": calls, "reasoning_content": "r"}]
    messages.append({"role": "tool", "content": "out", "tool_call_id": "1", "name": "f"})
    read = parse_messages(json.dumps(messages)).messages
    assert read[1] == Message(
        "assistant", "", "r", (ToolCall("f", {"x": [1, None]}, "1"), ToolCall("g", {"y": "z"}), ToolCall("h", {}))
    )
    assert read[2] == Message("tool", "out", tool_call_id="1", name="f")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('[{"role": "user",\n "content": }]', r"line 2, column 13"),
        ("", "line 1, column 1"),
        ("[]", "empty"),
        ("{}", "no 'messages'"),
        ("3", "not a JSON list"),
        ('[{"role": "robot", "content": "x"}]', r"messages\[0\] has the unknown role 'robot'"),
        ('[{"role": "user", "content": "x"}, {"content": "x"}]', r"messages\[1\] has no role"),
        ('["x"]', r"messages\[0\] is not a JSON object"),
        ('[{"role": "user", "content": 3}]', r"messages\[0\]: content"),
        ('[{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]', "only text is supported as yet"),
        ('[{"role": "user", "content": [{"type": "video"}]}]', "'video'"),
        (
            '[{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "[1]"}]}]',
            r"arguments is not a JSON",
        ),
        (
            '[{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{"}]}]',
            r"broken JSON at line 1",
        ),
        ('[{"role": "assistant", "tool_calls": [{"arguments": {}}]}]', "no function name"),
        ('[{"role": "assistant", "tool_calls": {}}]', "not a list"),
        ('[{"role": "user", "content": "x", "tool_calls": [{"name": "f"}]}]', "only assistant messages call tools"),
        ('[{"role": "user", "content": "x", "name": 3}]', "name is not a string"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": {}}', "'tools' is not a list"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": [1]}', r"tools\[0\]"),
        ('[{"role": "user", "content": "x", "extra": NaN}]', "not a finite number"),
        ("[" * 70 + "]" * 70, "deeper than 64"),
        ("[" + "1," * 100_001 + "1]", "more than 100,000"),
        ('["' + "x" * (16 * 2**20) + '"]', "16 MiB"),
        (b'["\xff"]', "not UTF-8 at byte 2"),
        ('[{"role": "user", "content": ' + "9" * 5000 + "}]", "unreadable JSON"),
    ],
)
def test_refusals_are_one_line_that_names_the_place(source: str | bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_messages(source)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_parsed_values_are_held_to_the_same_limits() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value, said in (
        (loop, "deeper"),
        ([1] * 100_001, "more than"),
        ([float("inf")], "finite"),
        ([b"x"], "not JSON"),
        ([{1: 2}], "key"),
    ):
        with pytest.raises(UsageError, match=said):
            check_value(value, "it")


def test_hostile_strings_are_scanned_in_linear_time() -> None:
    with pytest.raises(UsageError, match="broken JSON"):
        load_json('["' + '\\"' * 1_000_000, "it")


leaves = st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["user", "assistant", "tool"])
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "function", "name", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(value=trees)
def test_any_json_is_read_or_refused(value: Any) -> None:
    try:
        read = parse_messages(json.dumps(value))
    except UsageError as problem:
        assert "\n" not in str(problem)
    else:
        assert read.messages


@given(text=st.text('[]{},"\\: 1a\n', max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = load_json(text, "it")
    except UsageError as problem:
        assert "\n" not in str(problem)
    else:
        assert value == json.loads(text)
