"""An Engine without a model: it plays queued replies, so that whole transcripts run in tests without torch.

A reply is a `Scripted`. The fake keeps the Engine's promises that the command line relies on: events in order, an end
at a token boundary after cancel, the same statistics, errors raised by `prepare` and `submit` before anything starts.
One delta counts as one token; a prompt's tokens are its words.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ninfer_core import (
    Completion,
    EngineInfo,
    EngineOptions,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    LoadProgress,
    Message,
    Prefilled,
    PreparedPrompt,
    PromptTooLong,
    ReasoningDelta,
    SamplingParams,
    Started,
    TextDelta,
    ToolCall,
    UsageError,
)
from ninfer_core.contract.prompt import OutputStart
from ninfer_core.contract.statistics import (
    Miss,
    MissReason,
    Planning,
    RequestStatistics,
    Reuse,
    Timings,
    Transfer,
    Usage,
)


@dataclass(frozen=True)
class Scripted:
    """One reply to play.

    Attributes:
        text: the answer's deltas; a string is one delta per word.
        reasoning: the same for the think block; None is no block.
        finish: the finish reason; "length" is also what a max_new below the number of deltas gives.
        error: with finish "error".
        delay: seconds before each delta.
        prefill_delay: seconds before the first delta, in ten steps that can each be cancelled.
        ignore_cancel: go on after cancel, as a long step would.
        tool_calls: [name, arguments] pairs.
    """

    text: str | Sequence[str] = ""
    reasoning: str | Sequence[str] | None = None
    finish: str = "stop"
    error: str | None = None
    delay: float = 0.0
    prefill_delay: float = 0.0
    ignore_cancel: bool = False
    notice: str | None = None
    tool_calls: Sequence[Sequence[Any]] | None = None


def deltas(text: str | Sequence[str] | None) -> list[str]:
    if text is None:
        return []
    if not isinstance(text, str):
        return list(text)
    words = text.split(" ")
    return [word + " " for word in words[:-1]] + [words[-1]] if text else []


def fake_info(**changes: Any) -> EngineInfo:
    facts: dict[str, Any] = {
        "model": "fake",
        "model_directory": Path("fake"),
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
        "max_context": 1000,
        "max_concurrency": 1,
        "kv_capacity": 1000,
        "weight_bytes": 12,
        "kv_bytes": 0,
        "state_bytes": 0,
        "vocab_size": 100,
        "has_thinking_switch": True,
        "load_report": "nothing was loaded",
    }
    return EngineInfo(**{**facts, **changes})


class FakeHandle:
    def __init__(self, scripted: Scripted, request: GenerationRequest) -> None:
        self._scripted = scripted
        self._request = request
        self._cancelled = False
        self._steps = self._play()
        self._next: tuple[float, Event] | None = None
        self._now = time.monotonic()

    def interrupt(self) -> None:
        self._cancelled = True

    def cancel(self) -> None:
        self._cancelled = True

    def next_event(self, timeout: float | None = None) -> Event | None:
        if self._next is None:
            delay, event = next(self._steps)
            self._next = (time.monotonic() + delay, event)
        due, event = self._next
        wait = due - time.monotonic()
        if wait > 0 and timeout is not None and wait > timeout:
            time.sleep(timeout)
            return None
        time.sleep(max(wait, 0))
        self._next = None
        return event

    def events(self) -> Iterator[Event]:
        while True:
            event = self.next_event()
            assert event is not None
            yield event
            if isinstance(event, Finished):
                return

    def result(self, timeout: float | None = None) -> Completion:
        return next(event.completion for event in self.events() if isinstance(event, Finished))

    def _play(self) -> Iterator[tuple[float, Event]]:
        s, request = self._scripted, self._request
        total = len(request.prompt)
        yield 0, Started(1, total, Reuse())  # type: ignore[arg-type]
        steps = 10 if s.prefill_delay else 1
        for step in range(1, steps + 1):
            yield s.prefill_delay / steps, Prefilled(total * step // steps, total)
            if self._cancelled and not s.ignore_cancel:
                yield 0, self._finished([], [], FinishReason.INTERRUPTED)
        reasoning: list[str] = []
        text: list[str] = []
        for kind, delta in [(ReasoningDelta, d) for d in deltas(s.reasoning)] + [
            (TextDelta, d) for d in deltas(s.text)
        ]:
            if self._cancelled and not s.ignore_cancel:
                yield 0, self._finished(reasoning, text, FinishReason.INTERRUPTED)
            if len(reasoning) + len(text) >= request.max_new:
                yield 0, self._finished(reasoning, text, FinishReason.LENGTH)
            yield s.delay, kind(delta)
            (reasoning if kind is ReasoningDelta else text).append(delta)
        yield 0, self._finished(reasoning, text, FinishReason(s.finish))

    def _finished(self, reasoning: list[str], text: list[str], reason: FinishReason) -> Finished:
        s, request = self._scripted, self._request
        prompt, tokens = len(request.prompt), len(reasoning) + len(text)
        calls = None if s.tool_calls is None else tuple(ToolCall(name, arguments) for name, arguments in s.tool_calls)
        return Finished(
            Completion(
                request_id=1,  # type: ignore[arg-type]
                text="".join(text),
                reasoning="".join(reasoning) if s.reasoning is not None else None,
                tool_calls=calls,
                notice=s.notice,
                finish_reason=reason,
                error=s.error,
                cause=None,
                seed=None if request.sampling.greedy else request.sampling.seed or 7,
                prompt_token_ids=request.prompt.token_ids,
                token_ids=tuple(range(tokens)),
                statistics=RequestStatistics(
                    usage=Usage(prompt, 0, prompt, tokens),
                    reuse=Reuse(misses=(Miss(0, prompt, MissReason.DISABLED, "reuse is off"),)),
                    transfer=Transfer(),
                    planning=Planning(),
                    captures=(),
                    timings=Timings(0.1, 48.2 if tokens else None, 5.0, 31.24 if tokens > 1 else None),
                ),
            )
        )


class FakeEngine:
    """Plays replies in order; when none is left it says the last user message again."""

    def __init__(
        self,
        options: EngineOptions,
        *,
        replies: Sequence[Scripted] = (),
        info: dict[str, Any] | None = None,
        log: Path | None = None,
        load_error: Exception | None = None,
        load_delay: float = 0.0,
        late_error: Exception | None = None,
        thinking_switch: bool = True,
    ) -> None:
        if load_error is not None:
            raise load_error
        if options.progress:
            for done in (0, 6, 12):
                options.progress(LoadProgress("weights", done, 12))
                time.sleep(load_delay / 3)
        if late_error is not None:
            raise late_error
        self.options = options
        context = {} if options.max_context is None else {"max_context": options.max_context}
        self.info = fake_info(**{**context, "max_concurrency": options.max_concurrency, **(info or {})})
        self.default_sampling = SamplingParams(temperature=0.7, top_p=0.9)
        self.requests: list[GenerationRequest] = []
        self.prepared: list[list[Message]] = []
        self.closed = False
        self._replies = deque(replies)
        self._log = log
        self._thinking_switch = thinking_switch
        self._last_user = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True
        self._record({"closed": True})

    def check_thinking(self, think: bool | None, budget: int | None) -> None:
        if not self._thinking_switch and (think or budget is not None):
            raise UsageError("this model's template has no thinking switch: leave out --think and --thinking-budget")

    def prepare(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        thinking: bool | None = None,
    ) -> PreparedPrompt:
        self.prepared.append(list(messages))
        said = [f"{m.role}: {m.content}" for m in messages]
        self._last_user = next((m.content for m in reversed(messages) if m.role == "user"), "")
        reasoning = [m.reasoning_content for m in messages]
        self._record({"prepare": said, "reasoning": reasoning, "thinking": thinking, "tools": tools})
        return self._fitting(" ".join(said))

    def prepare_text(self, text: str) -> PreparedPrompt:
        return self._fitting(text)

    def prepare_tokens(self, token_ids: Sequence[int]) -> PreparedPrompt:
        return PreparedPrompt(tuple(token_ids), None, OutputStart.ANSWER)

    def submit(self, request: GenerationRequest) -> FakeHandle:
        self.requests.append(request)
        self._record({"submit": request.max_new, "stop": request.stop, "temperature": request.sampling.temperature,
                      "seed": request.sampling.seed, "budget": request.thinking_budget})  # fmt: skip
        if request.ignore_end:
            return FakeHandle(Scripted(text=["x"] * request.max_new, finish="length"), request)
        reply = self._replies.popleft() if self._replies else Scripted(f"You said: {self._last_user}")
        return FakeHandle(reply, request)

    def generate(self, prompt: Any, **settings: Any) -> Completion:
        raise NotImplementedError("the command line submits")

    def _fitting(self, text: str) -> PreparedPrompt:
        words = text.split() or [""]
        if len(words) >= self.info.max_context:
            raise PromptTooLong(len(words), self.info.max_context)
        return PreparedPrompt(tuple(range(len(words))), None, OutputStart.ANSWER, text=text)

    def _record(self, entry: dict[str, Any]) -> None:
        if self._log:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")


def stand_in(**scenario: Any) -> Any:
    """Something to put in the place of `ninfer_core.Engine`."""
    return lambda options=None: FakeEngine(options or EngineOptions(), **scenario)


def scenario_from_json(text: str) -> dict[str, Any]:
    """FakeEngine's keyword arguments, as a subprocess receives them."""
    raw = json.loads(text)
    for name in {"load_error", "late_error"} & raw.keys():
        import builtins

        import ninfer_core

        kind, message = raw[name]
        raw[name] = (getattr(builtins, kind, None) or getattr(ninfer_core, kind))(message)
    raw["replies"] = [Scripted(**reply) for reply in raw.get("replies", [])]
    if raw.get("log"):
        raw["log"] = Path(raw["log"])
    return raw
