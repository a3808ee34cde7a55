"""Frontend: messages to tokens and tokens to text, for one model directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ninfer_core.contract.prompt import OutputStart, PreparedPrompt
from ninfer_core.errors import TemplateError, UsageError
from ninfer_core.frontend.boundaries import BoundaryFinder
from ninfer_core.frontend.composer import Composer, leading_systems, message_texts
from ninfer_core.frontend.guard import strings
from ninfer_core.frontend.messages import ROLES, Message, parse_tools
from ninfer_core.frontend.output import OutputSession
from ninfer_core.frontend.own_ids import with_own_ids, without_end
from ninfer_core.frontend.probe import TemplateFacts, opens_thinking
from ninfer_core.frontend.template import ChatTemplate
from ninfer_core.frontend.thinking import ThinkingSupport
from ninfer_core.frontend.tokenizer import Tokenizer, check_unicode
from ninfer_core.strict_json import check_value


class Frontend:
    """Prepares prompts and reads outputs. Immutable after loading; every method may be called from any thread.

    Attributes:
        tokenizer: the model's tokenizer.
        facts: what probing its chat template showed.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.tokenizer = tokenizer
        self._composer = Composer(template, tokenizer)
        self.facts = TemplateFacts.probe(self._composer)
        self._thinking_close = self._composer.encode_trusted(self.facts.thinking_close)
        self._mode = (("template", template.digest),)

    @classmethod
    def load(cls, directory: str | Path, vocab_size: int) -> Frontend:
        """Read tokenizer and chat template of a model directory.

        Args:
            directory: holds tokenizer.json and chat_template.jinja (or tokenizer_config.json with `chat_template`).
            vocab_size: rows of the model's embedding.

        Raises:
            ModelError: something is missing, damaged or belongs to another model.
        """
        directory = Path(directory)
        tokenizer = Tokenizer.load(directory, vocab_size)
        return cls(tokenizer, ChatTemplate.load(directory, tokenizer.config, tokenizer.special_strings))

    # --- facts ------------------------------------------------------------------------------------------------------
    @property
    def template_digest(self) -> str:
        """SHA-256 of the chat template's source."""
        return dict(self._mode)["template"]

    @property
    def thinking(self) -> ThinkingSupport:
        """What the template lets one decide about reasoning."""
        return self.facts.thinking

    def check_thinking(self, flag: bool | None, budget: int | None = None) -> None:
        """See ThinkingSupport.check.

        Raises:
            UsageError: the template cannot do what the options ask for.
        """
        self.facts.thinking.check(flag, budget)

    # --- text to tokens ---------------------------------------------------------------------------------------------
    def prepare(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
        continue_final: bool = False,
    ) -> PreparedPrompt:
        """Render and tokenise a conversation.

        Args:
            messages: the current path, leading system messages first. A reply's own `token_ids` take the place of the
                rendering's where they show the same text between the same boundaries.
            tools: JSON schemas of tools.
            thinking: the thinking switch; None is the template's default.
            continue_final: the last message is an assistant's, and the output goes on writing it: the prompt is that
                of the messages before it, with the message behind the generation opener: its own ids without the
                end token where they are its text, else the text. A last message that is `unfinished` asks the same.

        Raises:
            UsageError: no messages, text that is no Unicode, or a message that the template does not take.
            TemplateError: the template's own refusal.
        """
        _check(messages)
        if thinking not in (None, True, False):
            raise UsageError(f"thinking is {thinking!r}: it must be True, False or None")
        schemas = parse_tools(None if tools is None else list(tools))
        _check_texts(strings(schemas), "the tools")
        final = messages[-1]
        if continue_final or final.unfinished:
            if final.role != "assistant" or final.tool_calls:
                raise UsageError("only an assistant's message without tool calls can be continued")
            if len(messages) == 1:
                raise UsageError("there is no message before the one to continue")
            return self._behind(self.prepare(messages[:-1], tools, thinking), final)
        normal = self._normalise(messages)
        composition = self._composer.compose(normal, schemas, thinking)
        try:
            rendering = composition.rendering()
        except TemplateError:
            self._refuse_later_system(messages)
            raise
        if not rendering.token_ids:
            raise UsageError("the prompt is empty: the chat template writes nothing for these messages")
        finder = BoundaryFinder(composition, rendering, self.facts, self.tokenizer)
        replies = [m.token_ids for m in normal if m.role == "assistant"]
        starts = finder.assistant_starts()
        if any(replies) and len(starts) == len(replies):
            places = [start + len(self.facts.assistant_head) for start in starts]
            rendering = with_own_ids(rendering, places, replies, self.tokenizer)
            finder = finder.over(rendering)
        opener = [cut for cut in rendering.cuts if cut.start >= finder.opener_start]
        thinks = opens_thinking(" ".join(cut.token.content for cut in opener))
        return PreparedPrompt(
            token_ids=rendering.token_ids,
            boundaries=finder.find(thinking),
            output_start=OutputStart.REASONING if thinks else OutputStart.ANSWER,
            thinking_close=self._thinking_close,
            mode=self._mode,
            text=rendering.text,
        )

    def prepare_text(self, text: str) -> PreparedPrompt:
        """A raw prompt: the text alone, without template, boundaries or added tokens.

        Raises:
            UsageError: empty, or no Unicode.
        """
        ids = self.tokenizer.encode(text)
        if not ids:
            raise UsageError("the prompt is empty: give some text")
        return PreparedPrompt(ids, None, OutputStart.ANSWER, self._thinking_close, text=text)

    def prepare_tokens(self, token_ids: Sequence[int]) -> PreparedPrompt:
        """A raw prompt of token ids, added tokens included: the caller answers for them.

        Raises:
            UsageError: empty, or an id that is no non-negative integer.
        """
        ids = tuple(token_ids)
        if not ids:
            raise UsageError("the prompt is empty: give at least one token id")
        for token_id in ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
                raise UsageError(f"{token_id!r} is not a token id")
        return PreparedPrompt(ids, None, OutputStart.ANSWER, self._thinking_close)

    def continue_with(self, prompt: PreparedPrompt, token_ids: Sequence[int]) -> PreparedPrompt:
        """The prompt behind which a reply goes on: prompt plus the reply's own ids, its end token left out.

        Raises:
            UsageError: no ids are left.
        """
        ids = without_end(token_ids, self.tokenizer)
        if not ids:
            raise UsageError("the reply is empty: there is nothing to continue")
        session = self.open_output(prompt, ignore_end=True)
        for token_id in ids:
            session.push(token_id)
        text = prompt.text + self.tokenizer.decode(ids) if prompt.text else ""
        return replace(prompt, token_ids=(*prompt.token_ids, *ids), output_start=session.state.channel, text=text)

    def reproduces(
        self,
        messages: Sequence[Message],
        reply: Message,
        token_ids: Sequence[int],
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
    ) -> bool:
        """Whether history shows a finished reply exactly as it was generated, so that its endpoint can be reached.

        The next message is a tool's if the reply calls tools, else a user's; token_ids are prompt and reply together,
        as far as they were executed.
        """
        role = "tool" if reply.tool_calls else "user"
        try:
            later = self.prepare([*messages, reply, Message(role, "Mostrec")], tools, thinking)
        except UsageError:
            return False
        return later.token_ids[: len(token_ids)] == tuple(token_ids)

    # --- tokens to text ---------------------------------------------------------------------------------------------
    def open_output(self, prompt: PreparedPrompt, stop: Sequence[str] = (), ignore_end: bool = False) -> OutputSession:
        """A session that reads the reply to prompt.

        Raises:
            ValueError: a stop string is empty.
        """
        edge = self._at_think_edge(prompt.token_ids)
        return OutputSession(self.tokenizer, prompt.output_start, tuple(stop), ignore_end, skip_newlines=edge)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, added tokens included (for people, not for reading a reply)."""
        return self.tokenizer.decode(list(token_ids))

    def _at_think_edge(self, token_ids: Sequence[int]) -> bool:
        for token_id in reversed(token_ids):
            if token_id in (self.tokenizer.think_open, self.tokenizer.think_close):
                return True
            if self.tokenizer.token_bytes(token_id).strip(b"\n"):
                return False
        return False

    # --- helpers ----------------------------------------------------------------------------------------------------
    def _normalise(self, messages: Sequence[Message]) -> list[Message]:
        """developer becomes system where the template does not know it; leading system messages become one."""
        if not self.facts.takes_developer:
            messages = [replace(m, role="system") if m.role == "developer" else m for m in messages]
        leading = leading_systems(messages)
        if leading < 2:
            return list(messages)
        joined = "\n\n".join(message.content for message in messages[:leading])
        return [replace(messages[0], content=joined), *messages[leading:]]

    def _refuse_later_system(self, messages: Sequence[Message]) -> None:
        if self.facts.takes_later_system:
            return
        for i in range(leading_systems(messages), len(messages)):
            if messages[i].role in ("system", "developer"):
                raise UsageError(
                    f"messages[{i}] is a {messages[i].role} message behind others, which this model's chat template "
                    "does not take: move it to the beginning"
                ) from None

    def _shows(self, prompt: PreparedPrompt, reply: Message) -> bool:
        """Whether a reply's own ids, read behind prompt, are its reasoning and text, and no added token besides."""
        ids = without_end(reply.token_ids or (), self.tokenizer)
        framing = self.tokenizer.stop_ids | {self.tokenizer.token_id(self.facts.opener_token or "")}
        if not ids or any(i in framing or not 0 <= i < self.tokenizer.size for i in ids):
            return False
        session = self.open_output(prompt, ignore_end=True)
        for token_id in ids:
            session.push(token_id)
        whole = not session.state.partial  # else the next token's bytes would belong to a character that was shown
        session.flush()
        return whole and (session.reasoning, session.text) == (reply.reasoning_content or "", reply.content)

    def _behind(self, prompt: PreparedPrompt, final: Message) -> PreparedPrompt:
        """prompt with an unfinished reply behind its generation opener."""
        if final.token_ids and self._shows(prompt, final):
            return self.continue_with(prompt, final.token_ids)
        ids, text, start = list(prompt.token_ids), prompt.text, prompt.output_start
        if start is OutputStart.REASONING:
            reasoning = final.reasoning_content or ""
            ids += self.tokenizer.encode(reasoning)
            text += reasoning
            if final.content or not reasoning:
                ids += self._thinking_close
                text += self.facts.thinking_close
                start = OutputStart.ANSWER
        ids += self.tokenizer.encode(final.content)
        text += final.content
        return replace(prompt, token_ids=tuple(ids), output_start=start, text=text)


def _check(messages: Sequence[Message]) -> None:
    if not messages:
        raise UsageError("there are no messages: give at least one user message")
    for i, message in enumerate(messages):
        if not isinstance(message, Message):
            raise UsageError(f"messages[{i}] is a {type(message).__name__}: give a Message, or use parse_messages")
        if message.role not in ROLES:
            raise UsageError(f"messages[{i}] has the unknown role {str(message.role)[:40]!r}: use {', '.join(ROLES)}")
        for call in message.tool_calls or ():
            check_value(call.arguments, f"messages[{i}]: the arguments of {call.name[:40]!r}")
        _check_texts(message_texts(message), f"messages[{i}]")


def _check_texts(texts: Iterable[str], here: str) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"{here}: a {type(text).__name__} stands where text belongs")
        try:
            check_unicode(text)
        except UsageError as problem:
            raise UsageError(f"{here}: {problem}") from None
