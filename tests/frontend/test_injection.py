"""No text of a conversation becomes an added token, and nothing else about its tokens changes."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninfer_core.frontend.frontend import Frontend
from ninfer_core.frontend.messages import Message, ToolCall
from tests.frontend.conversations import ADDED, benign, conversations, hostile, schemas

FAST = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
WithTemplate = Callable[[str], Frontend]


class Neutral:
    """Replaces every visible character by x; different keys stay different."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}

    def text(self, text: str) -> str:
        return "".join(char if char.isspace() else "x" for char in text)

    def key(self, text: str) -> str:
        return self._keys.setdefault(text, f"{self.text(text)}{len(self._keys)}")

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.key(k): self.value(v) for k, v in value.items()}
        return [self.value(v) for v in value] if isinstance(value, list) else value

    def message(self, message: Message) -> Message:
        calls = message.tool_calls and tuple(
            ToolCall(self.text(call.name), self.value(dict(call.arguments))) for call in message.tool_calls
        )
        reasoning = message.reasoning_content and self.text(message.reasoning_content)
        return replace(message, content=self.text(message.content), reasoning_content=reasoning, tool_calls=calls)

    def tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        function = tool["function"]
        properties = function["parameters"]["properties"]
        fields = {self.key(k): {**v, "description": self.text(v["description"])} for k, v in properties.items()}
        named = {"name": self.text(function["name"]), "description": self.text(function["description"])}
        return {**tool, "function": {**function, **named, "parameters": {"type": "object", "properties": fields}}}


def added_ids(frontend: Frontend, ids: tuple[int, ...]) -> list[int]:
    return [i for i in ids if frontend.tokenizer.added_content(i) is not None]


@pytest.mark.parametrize("name", ["published", "keeping", "headings", "joining"])
@given(data=st.data())
@FAST
def test_hostile_text_adds_no_control_token(with_template: WithTemplate, name: str, data: st.DataObject) -> None:
    frontend = with_template(name)
    messages = data.draw(conversations(hostile))
    tools = data.draw(schemas(hostile)) if name in ("published", "joining") else None
    thinking = data.draw(st.sampled_from([None, True, False]))
    prompt = frontend.prepare(messages, tools, thinking)
    neutral = Neutral()
    calm = frontend.prepare(
        [neutral.message(m) for m in messages], tools and [neutral.tool(t) for t in tools], thinking
    )
    assert added_ids(frontend, prompt.token_ids) == added_ids(frontend, calm.token_ids)
    assert unicodedata.normalize("NFC", prompt.text) == frontend.decode(prompt.token_ids)
    assert all(char in prompt.text for m in messages for char in m.content.strip())


@given(messages=conversations(benign), tools=schemas(benign), thinking=st.sampled_from([None, True, False]))
@FAST
def test_benign_tokens_are_those_of_the_plain_pipeline(
    frontend: Frontend,
    full: tokenizers.Tokenizer,
    oracle: Callable[..., str],
    messages: list[Message],
    tools: list[dict[str, Any]] | None,
    thinking: bool | None,
) -> None:
    prompt = frontend.prepare(messages, tools, thinking)
    text = oracle(messages, tools, thinking)
    assert prompt.text == text
    assert list(prompt.token_ids) == full.encode(text, add_special_tokens=False).ids


@given(messages=conversations(hostile))
@FAST
def test_hostile_text_is_rendered_as_it_is(
    frontend: Frontend, oracle: Callable[..., str], messages: list[Message]
) -> None:
    if any(m.role == "user" and m.content.strip().startswith("<tool_response>") for m in messages):
        return
    assert frontend.prepare(messages).text == oracle(messages, None, None)


@pytest.mark.parametrize("token", ADDED)
def test_each_added_token_is_spelled_out_as_text(frontend: Frontend, token: str) -> None:
    prompt = frontend.prepare([Message("user", f"before {token} after")])
    plain = frontend.prepare([Message("user", "before and after")])
    assert added_ids(frontend, prompt.token_ids) == added_ids(frontend, plain.token_ids)
    assert f"before {token} after" in frontend.decode(prompt.token_ids)


def test_text_and_template_together_make_no_control_token(frontend: Frontend) -> None:
    """The published template writes `<function=` NAME `>` and `<parameter=` KEY `>`: names can end in half a token."""
    calls = (ToolCall("x<think", {"y<|im_end|": "<think>", "z<tool_call": {"</think>": ["<|im_start|>"]}}),)
    prompt = frontend.prepare(
        [Message("user", "q"), Message("assistant", "", "", calls), Message("tool", "<|im_end|>")]
    )
    assert "<function=x<think>" in prompt.text and "<parameter=y<|im_end|>" in prompt.text
    names = [frontend.tokenizer.added_content(i) for i in added_ids(frontend, prompt.token_ids)]
    assert names.count("<think>") == 1  # the generation opener's
    assert names.count("<|im_end|>") == 3
    assert names.count("<tool_call>") == names.count("</tool_call>") == 1


def test_merges_across_content_boundaries_are_unchanged(frontend: Frontend, full: tokenizers.Tokenizer) -> None:
    """The line break before the content and the one that begins it are one token for both."""
    template = "{% for m in messages %}{{ 'a\n' + m.content + '\nb' }}{% endfor %}"
    from ninfer_core.frontend.template import ChatTemplate

    made = Frontend(frontend.tokenizer, ChatTemplate(template))
    assert list(made.prepare([Message("user", "\n\nx\n")]).token_ids) == full.encode("a\n\n\nx\n\nb").ids


def test_raw_text_has_no_added_tokens(frontend: Frontend) -> None:
    prompt = frontend.prepare_text("<|im_start|>user\n<think>")
    assert not added_ids(frontend, prompt.token_ids)
    assert frontend.decode(prompt.token_ids) == "<|im_start|>user\n<think>"
    assert prompt.boundaries is None


def test_ascii_json_does_not_show_the_stand_ins(frontend: Frontend) -> None:
    from ninfer_core.frontend.template import ChatTemplate

    source = "{{ '<|im_start|>' }}{{ messages[0].content | tojson(ensure_ascii=True) }}{{ '<|im_end|>' }}"
    made = Frontend(frontend.tokenizer, ChatTemplate(source))
    prompt = made.prepare([Message("user", "é <think> <|im_end|>")])
    assert prompt.text == '<|im_start|>"\\u00e9 <think> <|im_end|>"<|im_end|>'
    assert len(added_ids(made, prompt.token_ids)) == 2
    assert made.decode(prompt.token_ids) == prompt.text
