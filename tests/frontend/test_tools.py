"""Reading tool calls, in both forms, typed by schema; what cannot be read stays in the text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninfer_core.frontend.frontend import Frontend
from ninfer_core.frontend.messages import Message, ToolCall
from ninfer_core.frontend.tools import NOTICE, parse_tool_calls


def tagged(name: str, **arguments: str) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def schema(**types: Any) -> list[dict[str, Any]]:
    properties = {key: {"type": value} for key, value in types.items()}
    return [{"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}]


def test_tagged_calls_are_taken_out_of_the_text() -> None:
    reply = parse_tool_calls("I look.\n\n" + tagged("f", a="1", b="two\nlines") + "\n" + tagged("g"))
    assert reply.text == "I look." and reply.notice is None
    assert reply.calls == (ToolCall("f", {"a": "1", "b": "two\nlines"}), ToolCall("g", {}))


def test_json_calls() -> None:
    one = '<tool_call>\n{"name": "f", "arguments": {"a": [1]}}\n</tool_call>'
    two = '<tool_call>{"name": "g", "arguments": "{\\"b\\": null}"}</tool_call>'
    reply = parse_tool_calls(one + two)
    assert reply.calls == (ToolCall("f", {"a": [1]}), ToolCall("g", {"b": None})) and reply.text == ""


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", "12", "12"),
        ("integer", "12", 12),
        ("integer", "12.5", "12.5"),
        ("number", "12.5", 12.5),
        ("number", "12", 12),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("boolean", "yes", "yes"),
        ("null", "None", None),
        ("array", '[1, "a"]', [1, "a"]),
        ("object", '{"x": {}}', {"x": {}}),
        ("object", "[1]", "[1]"),
        ("object", "{", "{"),
        (["integer", "null"], "null", None),
        (["string", "integer"], "3", "3"),
        ("number", "NaN", "NaN"),
        (None, "3", "3"),
        ([{}], "3", "3"),
    ],
)
def test_values_are_typed_by_the_schema(kind: Any, value: str, expected: Any) -> None:
    reply = parse_tool_calls(tagged("f", a=value), schema(a=kind))
    result = reply.calls[0].arguments["a"]
    assert result == expected and type(result) is type(expected)


def test_any_of_counts_as_type() -> None:
    tools = schema(a=None)
    tools[0]["function"]["parameters"]["properties"]["a"] = {"anyOf": [{"type": "integer"}, {"type": "null"}, 3]}
    assert parse_tool_calls(tagged("f", a="7"), tools).calls[0].arguments == {"a": 7}


@pytest.mark.parametrize(
    "block",
    [
        "<tool_call>\n<function=f>\n<parameter=a>\n1",
        "<tool_call>\nf(1)\n</tool_call>",
        "<tool_call>\n<function=f>\n</tool_call>",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\nloose\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>",
        '<tool_call>\n{"name": 3}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"name": "f", \n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": "{"}\n</tool_call>',
        "<tool_call></tool_call>",
        tagged("f", a="1").replace("</function>", "<parameter=a>\n2\n</parameter>\n</function>"),
    ],
)
def test_malformed_calls_stay_in_the_text_with_one_notice(block: str) -> None:
    reply = parse_tool_calls(f"before {block}")
    assert reply.text == f"before {block}" and not reply.calls and reply.notice == NOTICE
    mixed = parse_tool_calls(f"{tagged('g')}\n{block}")
    assert mixed.calls == (ToolCall("g", {}),) and block in mixed.text and mixed.notice == NOTICE


def test_an_open_call_does_not_swallow_the_next() -> None:
    reply = parse_tool_calls("<tool_call>\noops\n" + tagged("g"))
    assert reply.calls == (ToolCall("g", {}),) and reply.text == "<tool_call>\noops" and reply.notice


def test_plain_text_is_untouched() -> None:
    assert parse_tool_calls(" a\n\n </tool_call> b\n") == parse_tool_calls(" a\n\n </tool_call> b\n", [])
    assert parse_tool_calls(" a\n\n </tool_call> b\n").text == " a\n\n </tool_call> b\n"


values = st.text(st.sampled_from('ab<>/\n {}"')).filter(lambda v: "</parameter>" not in v)
names = st.text("abc_.", min_size=1, max_size=6)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=names, arguments=st.dictionaries(names, values, max_size=3))
def test_what_the_published_template_writes_is_read_back(
    frontend: Frontend, name: str, arguments: dict[str, str]
) -> None:
    call = ToolCall(name, arguments)
    text = frontend.prepare([Message("user", "q"), Message("assistant", "x", "", (call,))]).text
    said = text.partition("<|im_start|>assistant\n")[2].partition("<|im_end|>\n<|im_start|>assistant")[0]
    reply = parse_tool_calls(said)
    assert reply.calls == (call,) and reply.text == "x"


@given(
    text=st.lists(
        st.sampled_from(
            [
                tagged("f", a="1"),
                "<tool_call>",
                "</tool_call>",
                "<function=f>",
                "</function>",
                "<parameter=a>",
                "</parameter>",
                "\n",
                "x",
                json.dumps({"name": "f", "arguments": {}}),
            ]
        ),
        max_size=8,
    ).map("".join)
)
def test_any_text_is_read(text: str) -> None:
    reply = parse_tool_calls(text, schema(a="integer"))
    assert reply.calls or reply.text == text
    if "<tool_call>" in reply.text:
        assert reply.notice
