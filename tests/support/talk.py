"""Talk: a conversation with an Engine, beside an Engine without a cache that must say the same at every place."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ninfer_core import CacheIntent, Completion, Engine, EngineOptions, GenerationRequest, SamplingParams
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.engine.cache_options import ContextCacheOptions
from ninfer_core.program.program import Program
from tests.support.held import Held, Losses, held
from tests.support.puppet import Puppet

GREEDY = SamplingParams(temperature=0)


class Cold:
    """An Engine whose cache is off: what every reply is compared with."""

    def __init__(self, directory: Path) -> None:
        self.engine = Engine(EngineOptions(model=directory, dtype="float32", cache=ContextCacheOptions(enabled=False)))
        self.puppet = Puppet(self.engine._worker._program.model)

        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}

    def own(self, request: GenerationRequest, words: Sequence[int]) -> list[int]:
        """What it would have said at each place; without a cache that depends on nothing else."""
        key = (request.prompt.token_ids, tuple(words))
        if key not in self._known:
            self.puppet.say(words)
            self.engine.submit(request).result(60)
            self._known[key] = self.puppet.own
        return self._known[key]


class Talk:
    """Context manager over one Engine. Every step is audited, and every statistic that follows from another checked.

    Without a Cold nothing is compared with it: for a model that takes long.

    Attributes:
        paths: (tokens that were executed) of every request so far.
    """

    def __init__(
        self,
        directory: Path,
        cold: Cold | None,
        *,
        lanes: int = 1,
        chunk: int = 512,
        dtype: str = "float32",
        patience: float = 60,
        **cache: Any,
    ) -> None:
        # Planning time depends on the machine's load, and what is found in it on the time: here there is enough.
        options = ContextCacheOptions(
            **{"device_state_slots": 40, "host_state_slots": 0, "planning_ms": 60_000, **cache}
        )
        self.engine = Engine(
            EngineOptions(
                model=directory,
                dtype=dtype,
                max_concurrency=lanes,
                prefill_chunk=chunk,
                max_context=4096,
                kv_capacity=64 * 4096 // 16,
                cache=options,
            )
        )
        self.cold, self.patience = cold, patience
        self.puppet = Puppet(self.program.model)
        self.words = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.paths: list[tuple[int, ...]] = []
        self.losses = Losses(self.manager)

    @property
    def program(self) -> Program:
        return self.engine._worker._program

    @property
    def manager(self) -> ResourceManager:
        return self.engine._worker._manager

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def say(
        self,
        prompt: PreparedPrompt,
        reply: str | Sequence[int] = "ok",
        cache: CacheIntent | None = None,
        **request: Any,
    ) -> Completion:
        """Ask, and have the model reply with exactly this (control tokens in a text are read as such)."""
        words = self.words.encode(reply, add_special_tokens=False).ids if isinstance(reply, str) else list(reply)
        asked = GenerationRequest(prompt, GREEDY, len(words), cache=cache or CacheIntent(session="one"), **request)
        self.puppet.say(words)
        done = self.engine.submit(asked).result(self.patience)
        assert list(done.token_ids) == words
        self.engine._worker.call(self.manager.audit)
        self._check(done, prompt)
        if self.cold is not None:
            assert self.puppet.own == self.cold.own(asked, words), "it would have said something else"
        self.paths.append((*prompt.token_ids, *words[:-1]))
        return done

    def _check(self, done: Completion, prompt: PreparedPrompt) -> None:
        accounts_for(done, prompt)
        assert done.statistics.reuse.frontier <= self.common(prompt), "nobody has read so much of it"

    @property
    def held(self) -> Held:
        """What the ledger holds now."""
        return held(self.program.world)

    def common(self, prompt: PreparedPrompt) -> int:
        """Tokens that the prompt shares with the best of all requests before."""
        return max((shared(path, prompt.token_ids) for path in self.paths), default=0)


def accounts_for(done: Completion, prompt: PreparedPrompt) -> None:
    """What follows of every reply's statistics: `prefill = len(prompt) - F`, and a reason for every token of it."""
    usage, reuse = done.statistics.usage, done.statistics.reuse
    assert usage.prompt_tokens == len(prompt) and usage.reused_tokens == reuse.frontier
    assert usage.prefill_tokens == len(prompt) - reuse.frontier, "DEF-3"
    at = reuse.frontier
    for miss in reuse.misses:
        assert miss.start == at < miss.end and miss.detail, "every token has a reason (STAT-2)"
        at = miss.end
    assert at == len(prompt)
    for capture in done.statistics.captures:
        assert (capture.outcome == "skipped") == bool(capture.reason), (
            "whoever is refused, and nobody else, is told why"
        )


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def line(done: Completion) -> tuple[str, int, str]:
    """(source, frontier, operation) of a reply."""
    reuse = done.statistics.reuse
    return reuse.source.value, reuse.frontier, reuse.operation.value


def captures(done: Completion) -> list[tuple[str, int, str]]:
    return [(capture.kind.value, capture.frontier, capture.outcome) for capture in done.statistics.captures]


def told(done: Completion) -> list[str]:
    """The same for tables: "LongAnchor 60 168 aliased" are two in a row that became the same."""
    runs = itertools.groupby(captures(done), key=lambda made: (made[0], made[2]))
    return [f"{kind} {' '.join(str(at) for _, at, _ in made)} {outcome}" for (kind, outcome), made in runs]
