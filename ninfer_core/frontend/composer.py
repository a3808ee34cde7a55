"""Composer: a conversation's untrusted strings are guarded, the template rendered, the result tokenised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ninfer_core.errors import TemplateError
from ninfer_core.frontend.guard import KEYWORDS, AddedTokenEdges, Guard, Owner, rewrite, strings
from ninfer_core.frontend.messages import Message
from ninfer_core.frontend.rendering import AddedTokenFinder, Rendering
from ninfer_core.frontend.template import ChatTemplate
from ninfer_core.frontend.tokenizer import Tokenizer

Rewriter = Callable[[str], str]


class Composer:
    """Makes Compositions for one template and tokenizer."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self.template = template
        self.tokenizer = tokenizer
        self.edges = AddedTokenEdges(tokenizer.added)
        self.finder = AddedTokenFinder(tokenizer.added)

    def compose(self, messages: Sequence[Message], tools: Sequence[Any] | None, thinking: bool | None) -> Composition:
        """Nothing is rendered yet; see Composition."""
        return Composition(self, tuple(messages), tuple(tools or ()), thinking)

    def encode_trusted(self, text: str) -> tuple[int, ...]:
        """Token ids of text that a template wrote: added tokens in it are added tokens."""
        ids: list[int] = []
        done = 0
        for cut in self.finder.find(text):
            ids += [*self.tokenizer.encode(text[done : cut.start]), cut.token.id]
            done = cut.end
        return (*ids, *self.tokenizer.encode(text[done:]))


class Composition:
    """One conversation under one Guard, so that its renderings can be compared character by character."""

    def __init__(
        self, composer: Composer, messages: tuple[Message, ...], tools: tuple[Any, ...], thinking: bool | None
    ) -> None:
        self.messages = messages
        self.tools = tools
        self._composer = composer
        self._thinking = thinking
        texts = [text for message in messages for text in message_texts(message)]
        self._guard = Guard(composer.edges, [composer.template.source, *texts, *strings(tools)])
        self._guarded_tools = rewrite(tools, self._guard.guard, self._guard.guard, KEYWORDS)

    def render(self, messages: Sequence[Message], opener: bool) -> str:
        """The guarded rendering of messages (these or others) with the conversation's tools.

        Raises:
            TemplateError: the template refuses them.
        """
        guard = self._guard.guard
        values = [message_value(message, guard, guard) for message in messages]
        return self._composer.template.render(values, self._guarded_tools, opener, self._thinking)

    def rendering(self) -> Rendering:
        """The whole conversation with the generation opener, tokenised.

        Raises:
            TemplateError: the template refuses the messages.
        """
        guarded = self.render(self.messages, opener=True)
        composer = self._composer
        return Rendering.make(guarded, self._veiled(), self._guard, composer.finder, composer.tokenizer)

    def real_length(self, guarded: str) -> int:
        """Length of the real text that a guarded one stands for."""
        return len(self._guard.restore(guarded))

    def _veiled(self) -> str | None:
        veil, veil_key = self._guard.veil, self._guard.veil_key
        leading = leading_systems(self.messages)
        values = []
        for i, message in enumerate(self.messages):
            text = partial(veil, owner=Owner.SYSTEM if i < leading else Owner.REST)
            values.append(message_value(message, text, veil_key))
        tools = rewrite(self.tools, partial(veil, owner=Owner.TOOLS), veil_key, KEYWORDS)
        try:
            return self._composer.template.render(values, tools, True, self._thinking)
        except TemplateError:
            return None


def leading_systems(messages: Sequence[Message]) -> int:
    """How many system (or developer) messages the conversation begins with."""
    for i, message in enumerate(messages):
        if message.role not in ("system", "developer"):
            return i
    return len(messages)


def message_value(message: Message, text: Rewriter, key: Rewriter) -> dict[str, Any]:
    """The dictionary that a template sees; text and key rewrite every untrusted string.

    An assistant's reasoning is always a string: templates then do not look for it in the content.
    """
    value: dict[str, Any] = {"role": message.role, "content": text(message.content)}
    if message.role == "assistant":
        value["reasoning_content"] = text(message.reasoning_content or "")
    if message.tool_calls:
        value["tool_calls"] = [
            {
                "type": "function",
                **({} if call.id is None else {"id": text(call.id)}),
                "function": {"name": text(call.name), "arguments": rewrite(call.arguments, text, key)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        value["tool_call_id"] = text(message.tool_call_id)
    if message.name is not None:
        value["name"] = text(message.name)
    return value


def message_texts(message: Message) -> Iterable[str]:
    """Every untrusted string of a message."""
    yield message.content
    yield message.reasoning_content or ""
    yield message.tool_call_id or ""
    yield message.name or ""
    for call in message.tool_calls or ():
        yield call.name
        yield call.id or ""
        yield from strings(call.arguments)
