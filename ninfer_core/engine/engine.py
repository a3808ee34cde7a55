"""The Engine's public face: prepare, submit, stream, generate. Every method may be called from any thread."""

from __future__ import annotations

import itertools
import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from ninfer_core.cache.manager import ResourceManager
from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.plans import RequestWork
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.engine.active import ActiveRequest
from ninfer_core.engine.events import Completion, Event
from ninfer_core.engine.handle import RequestHandle
from ninfer_core.engine.info import EngineInfo
from ninfer_core.engine.options import EngineOptions
from ninfer_core.engine.request import DEFAULT_MAX_NEW, CacheMode, GenerationRequest
from ninfer_core.engine.startup import start_up
from ninfer_core.engine.worker import Worker
from ninfer_core.errors import PromptTooLong, UsageError
from ninfer_core.frontend.messages import Message

Tools = Sequence[Mapping[str, Any]]


class Settings(TypedDict, total=False):
    """Keyword arguments of `stream` and `generate`: those of GenerationRequest, and how to render the messages."""

    tools: Tools | None
    thinking: bool | None
    sampling: SamplingParams
    max_new: int
    stop: tuple[str, ...]
    thinking_budget: int | None
    cache_mode: CacheMode


class Engine:
    """One resident model and its worker thread. Use it as a context manager.

    Raises:
        UsageError: an option is impossible.
        ModelError: the checkpoint is missing, foreign or damaged.
        CapacityError: the machine's memory does not hold it.
    """

    def __init__(self, options: EngineOptions | None = None) -> None:
        options = options or EngineOptions()
        parts = start_up(options)
        self.info: EngineInfo = parts.info
        self._frontend = parts.frontend
        self.default_sampling: SamplingParams = parts.default_sampling
        """From the model's generation_config.json, else the plain distribution."""
        self._ids = itertools.count(1)
        manager = ResourceManager(parts.program, options.max_concurrency)
        self._worker = Worker(parts.program, manager, options.prefill_chunk, options.queue_limit)
        # An Engine that was forgotten, not closed, lets go of its model. No waiting here: collection runs anywhere.
        weakref.finalize(self, self._worker.stop).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End running requests with an error, then the worker. Idempotent."""
        self._worker.close()

    # --- text to tokens -------------------------------------------------------------------------------------------
    def prepare(
        self,
        messages: Sequence[Message],
        *,
        tools: Tools | None = None,
        thinking: bool | None = None,
    ) -> PreparedPrompt:
        """Render a conversation with the model's template and tokenise it.

        Args:
            tools: JSON schemas, as OpenAI-style function tools.
            thinking: None leaves it to the template.

        Raises:
            UsageError: a message that the template does not take; TemplateError when the template itself fails.
        """
        return self._frontend.prepare(messages, tools=tools, thinking=thinking)

    def prepare_text(self, text: str) -> PreparedPrompt:
        """Tokenise raw text, without template and without control tokens. Raises UsageError for an empty one."""
        return self._frontend.prepare_text(text)

    def prepare_tokens(self, token_ids: Sequence[int]) -> PreparedPrompt:
        """A raw prompt of token ids. Raises UsageError for none, or for ids that the model does not have."""
        return self._frontend.prepare_tokens(token_ids)

    def check_thinking(self, thinking: bool | None, budget: int | None) -> None:
        """Raises UsageError when the model's template cannot do what is asked."""
        self._frontend.check_thinking(thinking, budget)

    # --- generation -----------------------------------------------------------------------------------------------
    def submit(self, request: GenerationRequest) -> RequestHandle:
        """Queue a request and return at once.

        Raises:
            PromptTooLong: prompt and one new token exceed max_context.
            UsageError: prompt or logit bias name a token that the model does not have.
            QueueFull: too many requests are waiting.
            EngineClosed: the Engine no longer serves.
        """
        length, context = len(request.prompt), self.info.max_context
        if length >= context:
            raise PromptTooLong(length, context)
        for name, tokens in (("the prompt", request.prompt.token_ids), ("logit-bias", request.sampling.logit_bias)):
            if foreign := [token for token in tokens if not 0 <= token < self.info.vocab_size]:
                raise UsageError(f"{name} names token {foreign[0]}: the model has 0 to {self.info.vocab_size - 1}")
        sampling = request.sampling
        if sampling.seed is None and not sampling.greedy:
            sampling = replace(sampling, seed=secrets.randbits(48))
        work = RequestWork(request.prompt, min(length + request.max_new, context), sampling)
        output = self._frontend.open_output(request.prompt, request.stop, request.ignore_end)
        active = ActiveRequest(RequestId(next(self._ids)), request, work, output)
        self._worker.submit(active)
        return RequestHandle(active, self._worker.wish)

    def stream(self, messages: Sequence[Message] | str, **settings: Unpack[Settings]) -> Iterator[Event]:
        """Generate and yield events until Finished. Closing the iterator early cancels the request.

        Nothing happens, and nothing is raised, before the first event is asked for.

        Args:
            messages: a conversation, or the text of a single user message.
        """
        handle = self.submit(self._request(messages, settings))
        try:
            yield from handle.events()
        finally:
            handle.cancel()

    def generate(self, messages: Sequence[Message] | str, **settings: Unpack[Settings]) -> Completion:
        """Generate and wait for the whole result. See `stream` and `submit`."""
        handle = self.submit(self._request(messages, settings))
        try:
            return handle.result()
        except BaseException:
            handle.cancel()
            raise

    def _request(self, messages: Sequence[Message] | str, settings: Settings) -> GenerationRequest:
        if unknown := settings.keys() - Settings.__annotations__.keys():
            raise TypeError(f"unknown keyword {min(unknown)!r}: use {', '.join(Settings.__annotations__)}")
        if isinstance(messages, str):
            messages = [Message(role="user", content=messages)]
        tools = settings.get("tools")
        return GenerationRequest(
            prompt=self.prepare(messages, tools=tools, thinking=settings.get("thinking")),
            tools=tuple(dict(tool) for tool in tools) if tools else None,
            sampling=settings.get("sampling", self.default_sampling),
            max_new=settings.get("max_new", DEFAULT_MAX_NEW),
            stop=settings.get("stop", ()),
            thinking_budget=settings.get("thinking_budget"),
            cache_mode=settings.get("cache_mode", CacheMode.READ_WRITE),
        )
