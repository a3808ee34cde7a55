"""Reuse scenarios: what a conversation's next prompt costs with the context cache, and without, side by side."""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_cli.benchmark.measure import BenchmarkFailed
from ninfer_cli.benchmark.sample import Sample
from ninfer_core import CacheIntent, CacheMode, GenerationRequest, Message, SamplingParams, UsageError

if TYPE_CHECKING:
    from ninfer_core import Completion, Engine

SCENARIOS = ("cold", "append", "regenerate", "edit", "branch", "rewrite", "shared-system", "restore")
"""In the order in which they follow each other in one conversation."""

TOKENS = 2048
NEW_TOKENS = 8
_NAME = re.compile(rf"(?P<name>{'|'.join(SCENARIOS)}|reuse)(?:@d(?P<tokens>\d{{2,7}}))?")


@dataclass(frozen=True, slots=True)
class ReuseTest:
    """One scenario on a conversation of about so many tokens."""

    name: str
    tokens: int

    @property
    def label(self) -> str:
        return f"{self.name}@d{self.tokens}"


def parse_reuse(names: Sequence[str]) -> tuple[list[ReuseTest], list[str]]:
    """(the scenarios among the names, each once, as they are measured; the other names). `reuse` is all of them."""
    found: list[ReuseTest] = []
    others = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            others.append(name)
            continue
        tokens = int(match["tokens"] or TOKENS)
        if tokens < 64:
            raise UsageError(f"{name}: a conversation needs at least 64 tokens")
        found += [ReuseTest(n, tokens) for n in (SCENARIOS if match["name"] == "reuse" else (match["name"],))]
    return list(dict.fromkeys(found)), others


@dataclass(frozen=True, slots=True)
class Pair:
    """One scenario once: with the cache, and the same prompt without."""

    on: Sample
    off: Sample


@dataclass(slots=True)
class Story:
    """One conversation of invented words; another one for every repetition, so that nothing is reused by accident."""

    engine: Engine
    tokens: int
    rng: random.Random
    session: str
    messages: list[Message] = field(default_factory=list)
    paths: list[tuple[int, ...]] = field(default_factory=list)
    reply: str = ""

    def text(self, share: float) -> str:
        """Words of about so many tokens of the whole."""
        want, words = max(4, int(self.tokens * share)), []
        while True:
            words += ["".join(self.rng.choices("bcdfghklmnprstvw", k=1)) + self.rng.choice("aeiou") for _ in range(8)]
            text = " ".join(words)
            if len(words) >= want // 8 and len(self.engine.prepare_text(text)) >= want:
                return text

    def begin(self) -> None:
        self.messages = [
            Message("system", self.text(0.5)),
            Message("user", self.text(0.2)),
            Message("assistant", self.text(0.2)),
            Message("user", self.text(0.05)),
        ]

    def ask(self, messages: Sequence[Message], session: str | None = None) -> Pair:
        """The same prompt without the cache first, then with it."""
        off, _ = self._run(messages, CacheIntent(CacheMode.DISABLED))
        on, completion = self._run(messages, CacheIntent(session=session or self.session))
        self.paths.append((*completion.prompt_token_ids, *completion.token_ids))
        self.reply = completion.text
        return Pair(on, off)

    def with_reply(self, messages: Sequence[Message], user: str) -> list[Message]:
        return [*messages, Message("assistant", self.reply), Message("user", user)]

    def _run(self, messages: Sequence[Message], cache: CacheIntent) -> tuple[Sample, Completion]:
        prompt = self.engine.prepare(messages)
        request = GenerationRequest(
            prompt, SamplingParams(temperature=0), max_new=NEW_TOKENS, ignore_end=True, cache=cache
        )
        completion = self.engine.submit(request).result()
        if completion.error:
            raise BenchmarkFailed(completion.error)
        usage, timings = completion.statistics.usage, completion.statistics.timings
        ttft, decode = timings.ttft_ms, timings.decode_tokens_per_s
        assert ttft is not None
        step = 1e3 / decode if decode else None
        rate = _rate(usage.prompt_tokens, ttft)
        return Sample(rate, ttft, usage.reused_tokens, usage.prefill_tokens, step), completion


OpenEngine = Callable[[], AbstractContextManager["Engine"]]


def run_reuse(open_engine: OpenEngine, tokens: int, repetitions: int) -> dict[str, list[Pair]]:
    """All scenarios, after one warm-up. restore runs in an Engine that has just been started."""
    found: dict[str, list[Pair]] = {name: [] for name in SCENARIOS}
    with tempfile.TemporaryDirectory() as directory:
        for repetition in range(repetitions + 1):
            kept = {} if repetition == 0 else found
            path = Path(directory) / f"{repetition}.ninfer"
            with open_engine() as engine:
                story = Story(engine, tokens, random.Random(repetition), f"bench {repetition}")
                for name, pair in _conversation(story):
                    kept.setdefault(name, []).append(pair)
                engine.save_session(path, story.paths, None)
            with open_engine() as engine:
                story.engine = engine
                story.ask([Message("user", "something else")], "another")
                began = time.perf_counter()
                engine.restore_session(path)
                took = (time.perf_counter() - began) * 1e3
                pair = story.ask(story.with_reply(story.messages, story.text(0.05)))
                kept.setdefault("restore", []).append(Pair(_later(pair.on, took), pair.off))
    return found


def _rate(tokens: int, ttft_ms: float) -> float:
    """Prompt tokens per second until the first token."""
    return tokens / max(ttft_ms / 1e3, 1e-9)


def _later(sample: Sample, ms: float) -> Sample:
    """The same with so much more before its first token."""
    assert sample.ttft_ms is not None
    ttft = sample.ttft_ms + ms
    return replace(sample, ttft_ms=ttft, tokens_per_s=_rate(sample.reused_tokens + sample.prefill_tokens, ttft))


def _conversation(story: Story) -> list[tuple[str, Pair]]:
    story.begin()
    base = list(story.messages)
    pairs = [("cold", story.ask(base))]
    longer = story.with_reply(base, story.text(0.05))
    pairs.append(("append", story.ask(longer)))
    pairs.append(("regenerate", story.ask(longer)))
    edited = [*longer[:-1], Message("user", story.text(0.05))]
    pairs.append(("edit", story.ask(edited)))
    back = story.with_reply(longer, story.text(0.05))
    pairs.append(("branch", story.ask(back)))
    rewritten = [base[0], Message("user", story.text(0.2)), *base[2:]]
    pairs.append(("rewrite", story.ask(rewritten)))
    other = [base[0], Message("user", story.text(0.2))]
    pairs.append(("shared-system", story.ask(other, "a second conversation")))
    story.messages = back
    return pairs
