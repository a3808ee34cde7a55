"""The bundled demo model's tokenizer and template, under the same properties as the published ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninfer_core.contract.prompt import OutputStart
from ninfer_core.frontend import frontend as facade
from ninfer_core.frontend.frontend import Frontend
from ninfer_core.frontend.messages import Message
from tests.frontend.conftest import transformers_oracle
from tests.frontend.conversations import benign, conversations, hostile, schemas
from tests.frontend.test_injection import Neutral, added_ids

DEMO = Path(facade.__file__).parent.parent / "demo"
FAST = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
switches = st.sampled_from([None, True, False])


@pytest.fixture(scope="module")
def demo() -> Frontend:
    return Frontend.load(DEMO, 1024)


@pytest.fixture(scope="module")
def demo_full() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json"))


@pytest.fixture(scope="module")
def demo_oracle() -> Callable[..., str]:
    return transformers_oracle(DEMO)


def test_facts(demo: Frontend) -> None:
    assert demo.thinking.has_switch and not demo.thinking.default
    assert demo.prepare([Message("user", "x")], None, True).output_start is OutputStart.REASONING
    assert demo.prepare([Message("user", "x")]).output_start is OutputStart.ANSWER
    assert {demo.decode([i]) for i in demo.tokenizer.stop_ids} == {"<|im_end|>", "<|endoftext|>"}


@given(messages=conversations(benign), tools=schemas(benign), thinking=switches)
@FAST
def test_tokens_are_those_of_the_plain_pipeline(
    demo: Frontend,
    demo_full: tokenizers.Tokenizer,
    demo_oracle: Callable[..., str],
    messages: list[Message],
    tools: list[dict[str, Any]] | None,
    thinking: bool | None,
) -> None:
    prompt = demo.prepare(messages, tools, thinking)
    text = demo_oracle(messages, tools, thinking)
    assert prompt.text == text
    assert list(prompt.token_ids) == demo_full.encode(text, add_special_tokens=False).ids


@given(messages=conversations(hostile), tools=schemas(hostile), thinking=switches)
@FAST
def test_hostile_text_adds_no_control_token(
    demo: Frontend, messages: list[Message], tools: list[dict[str, Any]] | None, thinking: bool | None
) -> None:
    prompt = demo.prepare(messages, tools, thinking)
    neutral = Neutral()
    calm = [neutral.message(m) for m in messages]
    plain = demo.prepare(calm, tools and [neutral.tool(t) for t in tools], thinking)
    assert added_ids(demo, prompt.token_ids) == added_ids(demo, plain.token_ids)


@given(messages=conversations(benign), thinking=switches)
@FAST
def test_boundaries(demo: Frontend, messages: list[Message], thinking: bool | None) -> None:
    prompt = demo.prepare(messages, None, thinking)
    found = prompt.boundaries
    assert found is not None
    assert demo.decode(prompt.token_ids[found.generation_opener :]).startswith("<|im_start|>assistant\n")
    assert len(found.rewrite_execution_frontiers) == 1 + sum(m.role == "assistant" for m in messages)
    later = demo.prepare([*messages, Message("assistant", "reply"), Message("user", "next")], None, thinking)
    assert later.token_ids[: found.turn_closure] == prompt.token_ids[: found.turn_closure]
