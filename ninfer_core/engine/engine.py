"""The Engine's public face: prepare, submit, stream, generate. Every method may be called from any thread."""

from __future__ import annotations

import itertools
import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from ninfer_core.cache.manager import ResourceManager
from ninfer_core.contract.cache_table import CacheTable, Residency
from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.plans import RequestWork
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.verification import Verification
from ninfer_core.engine.active import ActiveRequest
from ninfer_core.engine.events import Completion, Event
from ninfer_core.engine.handle import RequestHandle
from ninfer_core.engine.info import EngineInfo
from ninfer_core.engine.options import EngineOptions
from ninfer_core.engine.request import DEFAULT_MAX_NEW, GenerationRequest
from ninfer_core.engine.sessions import AutosavedSession, FileOptions, RestoredSession, SavedSession, Sessions
from ninfer_core.engine.startup import start_up
from ninfer_core.engine.worker import Worker, WorkerLimits
from ninfer_core.errors import PromptTooLong, UsageError
from ninfer_core.frontend.messages import Message
from ninfer_core.frontend.prefix import open_prefix
from ninfer_core.program.session_key import SessionKey
from ninfer_core.program.session_store import SessionStore

Tools = Sequence[Mapping[str, Any]]

LONG_RAW = 512
"""Tokens from which on a raw prompt gets an anchor at its end, so that it is not read again as a whole (CAN-6)."""


class Settings(TypedDict, total=False):
    """Keyword arguments of `stream` and `generate`: those of GenerationRequest, and how to render the messages."""

    tools: Tools | None
    thinking: bool | None
    sampling: SamplingParams
    max_new: int
    stop: tuple[str, ...]
    thinking_budget: int | None
    cache: CacheIntent


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
        self._model = parts.program.model
        self.default_sampling: SamplingParams = parts.default_sampling
        """From the model's generation_config.json, else the plain distribution."""
        self._ids = itertools.count(1)
        manager = self._manager = ResourceManager(parts.program, parts.limits, parts.cost)
        limits = WorkerLimits(options.max_concurrency, options.prefill_chunk, options.queue_limit)
        self._worker = Worker(parts.program, manager, limits)
        self._sessions = Sessions(self._worker, manager.persistence)
        # An Engine that was forgotten, not closed, lets go of its model. No waiting here: collection runs anywhere.
        weakref.finalize(self, self._worker.stop).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End running requests with an error, then the worker. Idempotent."""
        self._model.close()  # the worker may wait for it
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

    def prepare_prefix(
        self,
        messages: Sequence[Message],
        waiting: str = "",
        *,
        tools: Tools | None = None,
        thinking: bool | None = None,
    ) -> PreparedPrompt:
        """The beginning that all prompts with these messages share, whatever the user says next: for `prefill`.

        Args:
            waiting: text, such as a document, that the next message begins with; a blank line follows it.

        Raises:
            UsageError: as `prepare`, or there is no such beginning.
        """
        return open_prefix(self._frontend, messages, waiting, tools, thinking)

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
        if length + min(request.max_new, 1) > context:
            raise PromptTooLong(length, context, self.info.kv_capacity)
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

    def stream(
        self, messages: Sequence[Message] | str | PreparedPrompt, **settings: Unpack[Settings]
    ) -> Iterator[Event]:
        """Generate and yield events until Finished. Closing the iterator early cancels the request.

        Nothing happens, and nothing is raised, before the first event is asked for.

        Args:
            messages: a conversation, the text of a single user message, or what one of the `prepare` calls made.
                Without `cache`, a raw prompt of at least 512 tokens asks for a recovery point at its end, from what is
                spare; with one, its `anchor_prompt_end` decides. `tools` of a prepared prompt only type the calls of
                its reply.

        Raises:
            UsageError: thinking is set for a prepared prompt; and as `prepare` and `submit`.
        """
        handle = self.submit(self._request(messages, settings))
        try:
            yield from handle.events()
        finally:
            handle.cancel()

    def generate(self, messages: Sequence[Message] | str | PreparedPrompt, **settings: Unpack[Settings]) -> Completion:
        """Generate and wait for the whole result. See `stream` and `submit`."""
        handle = self.submit(self._request(messages, settings))
        try:
            return handle.result()
        except BaseException:
            handle.cancel()
            raise

    def prefill(self, prompt: PreparedPrompt, cache: CacheIntent | None = None) -> Completion:
        """Read a prompt and generate nothing: what continues it starts from its end. Waits for the result.

        Raises:
            PromptTooLong, UsageError, QueueFull, EngineClosed: as `submit`.
        """
        handle = self.submit(GenerationRequest(prompt, max_new=0, cache=cache or CacheIntent()))
        try:
            return handle.result()
        except BaseException:
            handle.cancel()
            raise

    # --- the context cache ------------------------------------------------------------------------------------------
    def verify(self, request_id: RequestId) -> Verification:
        """Replay one of the last finished requests cold, by its execution trace, and compare state and tokens (VER-1).

        Runs in the worker, so other requests wait. It takes no memory from the cache and evicts nothing.

        Raises:
            EngineClosed: the Engine no longer serves.
        """
        return self._worker.call(lambda: self._manager.verify(request_id))

    def residency(self, prompts: Sequence[PreparedPrompt]) -> tuple[Residency, ...]:
        """For each prompt the deepest checkpoint that a request would find now. Reserves nothing."""
        return self._worker.call(lambda: tuple(self._manager.residency(prompt) for prompt in prompts))

    def cache_table(self) -> CacheTable:
        """Every owner with its checkpoints, placement and bytes, and the totals per axis (STAT-3)."""
        return self._worker.call(self._manager.table)

    # --- sessions -----------------------------------------------------------------------------------------------------
    def save_session(
        self, path: Path, paths: Sequence[Sequence[int]], conversation: Any, file: FileOptions | None = None
    ) -> SavedSession:
        """Write what is resident of a conversation's branches into one portable file. Nothing in the Engine changes.

        Args:
            paths: token ids of the branches, prompt and output together.
            conversation: JSON-like; goes into the file, readable without a model.
            file: whether an existing file may be replaced, how large the state may get, and who signs it.

        Raises:
            SessionError: the file exists, or cannot be written: it is as it was then.
        """
        return self._sessions.save(path, paths, conversation, file or FileOptions())

    def autosave(self, store: SessionStore, paths: Sequence[Sequence[int]], conversation: Any) -> AutosavedSession:
        """Bring a session's directory up to date: only what it does not hold yet is copied and written.

        Files are written by the calling thread; the worker is held for the copy alone. Call it after each turn.

        Args:
            paths, conversation: as of `save_session`.

        Raises:
            SessionError: it cannot be written: the directory is as it was then.
        """
        return self._sessions.autosave(store, paths, conversation)

    def restore_session(self, where: Path | SessionStore, key: SessionKey | None = None) -> RestoredSession:
        """Read a session of either form and make its state resident: a prompt on its path starts from there.

        Newest continuations come first. What finds no room is left out, and named in the result.

        Args:
            where: a file or a directory, or a store: then what was restored is not written again by `autosave`.
            key: tells whether this user's ninfer wrote it. State that is not proven is used all the same, and nothing
                that is saved from this Engine is signed any more until `verify_session` finds every bit of it right.

        Raises:
            SessionError: one line that names the check that failed, or room for nothing; nothing has changed then.
        """
        return self._sessions.restore(where, key)

    def verify_session(self, restored: RestoredSession) -> tuple[tuple[Verification, ...], ...]:
        """Replay every restored checkpoint cold, from token 0, and compare it bit for bit: for each its result.

        Other requests run between two replays.

        Raises:
            EngineClosed: the Engine no longer serves.
        """
        return self._sessions.verify(restored)

    def audit(self) -> None:
        """Recount the whole cache from nothing. Raises AssertionError naming the first difference (INV)."""
        self._worker.call(self._manager.audit)

    # --- parts ------------------------------------------------------------------------------------------------------
    def _request(self, messages: Sequence[Message] | str | PreparedPrompt, settings: Settings) -> GenerationRequest:
        if unknown := settings.keys() - Settings.__annotations__.keys():
            raise TypeError(f"unknown keyword {min(unknown)!r}: use {', '.join(Settings.__annotations__)}")
        tools, thinking = settings.get("tools"), settings.get("thinking")
        if isinstance(messages, PreparedPrompt):
            if thinking is not None:
                raise UsageError("the prompt is prepared already: give thinking to prepare()")
            prompt = messages
        else:
            said = [Message(role="user", content=messages)] if isinstance(messages, str) else messages
            prompt = self.prepare(said, tools=tools, thinking=thinking)
        is_long = prompt.boundaries is None and len(prompt) >= LONG_RAW
        return GenerationRequest(
            prompt=prompt,
            tools=tuple(dict(tool) for tool in tools) if tools else None,
            sampling=settings.get("sampling", self.default_sampling),
            max_new=settings.get("max_new", DEFAULT_MAX_NEW),
            stop=settings.get("stop", ()),
            thinking_budget=settings.get("thinking_budget"),
            cache=settings.get("cache", CacheIntent(anchor_prompt_end=is_long)),
        )
