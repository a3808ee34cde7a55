"""ChatTemplate: a model directory's chat template, compiled once, rendered in the sandbox."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError as JinjaError
from jinja2.exceptions import TemplateSyntaxError

from ninfer_core.errors import ModelError, TemplateError
from ninfer_core.frontend.bounds import MAX_OUTPUT
from ninfer_core.frontend.sandbox import TemplateSandbox
from ninfer_core.models.directory import ModelDirectory

MAX_TEMPLATE_BYTES = 1024 * 1024


class ChatTemplate:
    """A compiled template.

    Attributes:
        digest: SHA-256 of the source, hexadecimal.
    """

    def __init__(self, source: str, constants: Mapping[str, str] | None = None) -> None:
        """Compile source. constants are variables that every rendering sees (bos_token, eos_token, ...).

        Raises:
            ModelError: larger than 1 MiB, or not a Jinja template.
        """
        data = source.encode("utf-8", "surrogatepass")
        if len(data) > MAX_TEMPLATE_BYTES:
            raise ModelError(f"the chat template has {len(data):,} bytes, the limit is {MAX_TEMPLATE_BYTES:,}")
        self.source = source
        self.digest = hashlib.sha256(data).hexdigest()
        self._constants = dict(constants or {})
        try:
            self._template = TemplateSandbox().from_string(source)
        except TemplateSyntaxError as problem:
            raise ModelError(f"the chat template is broken at line {problem.lineno}: {_one_line(problem)}") from None
        except (JinjaError, ValueError, TypeError, RecursionError, MemoryError, SyntaxError) as problem:
            raise ModelError(f"the chat template cannot be compiled: {_one_line(problem)}") from None

    @classmethod
    def load(cls, directory: Path, config: Mapping[str, Any], constants: Mapping[str, str]) -> ChatTemplate:
        """chat_template.jinja, else `chat_template` of tokenizer_config.json (a string, or named ones with a default).

        Raises:
            ModelError: there is none, or it is broken.
        """
        data = ModelDirectory.open(directory).read("chat_template.jinja", MAX_TEMPLATE_BYTES)
        if data is not None:
            try:
                return cls(data.decode("utf-8"), constants)
            except UnicodeDecodeError:
                raise ModelError(f"{directory}: chat_template.jinja is not UTF-8: fetch the file again") from None
            except ModelError as problem:
                raise ModelError(f"{directory}: {problem}") from None
        source = _default_template(config.get("chat_template"))
        if source is None:
            raise ModelError(
                f"{directory}: no chat template: put the model's chat_template.jinja into the directory, "
                "or use an instruction-tuned model"
            )
        try:
            return cls(source, constants)
        except ModelError as problem:
            raise ModelError(f"{directory}: tokenizer_config.json: {problem}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        opener: bool = False,
        thinking: bool | None = None,
    ) -> str:
        """The text of messages.

        Args:
            messages: dictionaries as templates expect them.
            tools: tool schemas or None.
            opener: end with the generation opener of the assistant.
            thinking: `enable_thinking`; None leaves it undefined, which is the template's default.

        Raises:
            TemplateError: with the template's own message.
        """
        variables: dict[str, Any] = {**self._constants, "messages": list(messages), "add_generation_prompt": opener}
        variables["tools"] = list(tools) if tools else None
        variables["documents"] = None
        if thinking is not None:
            variables["enable_thinking"] = thinking
        try:
            text = self._template.render(variables)
        except JinjaError as problem:
            raise TemplateError(f"the chat template refuses the messages: {_one_line(problem)}") from None
        except Exception as problem:
            # A template can raise anything that Python's built-in operations raise, MemoryError and recursion included.
            raise TemplateError(
                f"the chat template fails on the messages: {type(problem).__name__}: {_one_line(problem)}"
            ) from None
        if len(text) > MAX_OUTPUT:
            raise TemplateError(f"the chat template writes more than {MAX_OUTPUT // 2**20} MiB")
        return text


def _default_template(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named
    if isinstance(value, dict):
        default = value.get("default")
        return default if isinstance(default, str) else None
    return None


def _one_line(problem: BaseException) -> str:
    text = " ".join((str(problem) or type(problem).__name__).split())
    return text[:300].rstrip(".")
