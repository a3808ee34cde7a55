"""One real tokenizer per test session, and Frontends over it with several templates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from ninfer_core.frontend.composer import message_value
from ninfer_core.frontend.frontend import Frontend
from ninfer_core.frontend.messages import Message
from ninfer_core.frontend.template import ChatTemplate
from ninfer_core.frontend.tokenizer import Tokenizer
from tests.support.tokenizers import DATA, REAL_VOCAB_SIZE, write_real

TEMPLATES = ("published", "keeping", "headings", "joining")


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the real tokenizer and the published template."""
    return write_real(tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="session")
def frontend(qwen: Path) -> Frontend:
    return Frontend.load(qwen, REAL_VOCAB_SIZE)


@pytest.fixture(scope="session")
def tokenizer(frontend: Frontend) -> Tokenizer:
    return frontend.tokenizer


@pytest.fixture(scope="session")
def full(qwen: Path) -> tokenizers.Tokenizer:
    """The tokenizers library's own reading of the file, added tokens included."""
    return tokenizers.Tokenizer.from_file(str(qwen / "tokenizer.json"))


@pytest.fixture(scope="session")
def with_template(frontend: Frontend) -> Callable[[str], Frontend]:
    """A Frontend with the real tokenizer and the named template."""

    @cache
    def make(name: str) -> Frontend:
        if name == "published":
            return frontend
        source = (DATA / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
        return Frontend(frontend.tokenizer, ChatTemplate(source))

    return make


@pytest.fixture(scope="session")
def oracle(qwen: Path) -> Callable[..., str]:
    """transformers' rendering with the published template."""
    return transformers_oracle(qwen)


def transformers_oracle(directory: Path) -> Callable[..., str]:
    """transformers' rendering of messages, tools and thinking with the template of a model directory."""
    from transformers.utils.chat_template_utils import render_jinja_template

    source = (directory / "chat_template.jinja").read_text(encoding="utf-8")

    def render(messages: list[Message], tools: list[dict[str, Any]] | None, thinking: bool | None) -> str:
        values = [message_value(message, str, str) for message in messages]
        switch = {} if thinking is None else {"enable_thinking": thinking}
        texts, _ = render_jinja_template(
            conversations=[values], tools=tools, chat_template=source, add_generation_prompt=True, **switch
        )
        return str(texts[0])

    return render
