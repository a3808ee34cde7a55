"""Person: talks to the demo model, and hears the same from an Engine without a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ninfer_core import CacheIntent, Completion, Engine, EngineOptions, GenerationRequest, Message, SamplingParams
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.engine.cache_options import ContextCacheOptions
from tests.scenarios.chat import Step
from tests.support.held import Held, Losses, held
from tests.support.talk import accounts_for, line, told

BELA, MIRA = "My name is Bela and I live in Torvik.", "My name is Mira and I live in Arvo."
NAME, PLACE = "What is my name?", "Where do I live?"
GREEDY = SamplingParams(temperature=0)
MOST_NEW = 64


class Alone:
    """An Engine without a cache: what every reply is compared with."""

    def __init__(self) -> None:
        cache = ContextCacheOptions(enabled=False)
        self.engine = Engine(EngineOptions(dtype="float32", max_context=1024, cache=cache))
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def says(self, request: GenerationRequest) -> tuple[int, ...]:
        """That depends on nothing but the prompt, as long as it is greedy and ends by itself."""
        key = request.prompt.token_ids
        if key not in self._known:
            self._known[key] = tuple(self.engine.submit(request).result(60).token_ids)
        return self._known[key]


class Demo:
    """Two Engines with the demo model: one with default options but for those given, one without a cache."""

    def __init__(self, warm: Engine, cold: Alone) -> None:
        self.warm, self.cold = warm, cold
        self.losses = Losses(warm._worker._manager)

    @property
    def held(self) -> Held:
        return held(self.warm._worker._program.world)

    def say(self, prompts: Sequence[PreparedPrompt], sessions: Sequence[str | None]) -> list[Completion]:
        """All are in the queue before the first begins. Each must be what the other Engine says to it alone."""
        asked = [
            GenerationRequest(prompt, GREEDY, MOST_NEW, cache=CacheIntent(session=session))
            for prompt, session in zip(prompts, sessions, strict=True)
        ]
        handles = self.warm._worker.call(lambda: [self.warm.submit(request) for request in asked])
        done = [handle.result(60) for handle in handles]
        self.warm._worker.call(self.warm._worker._manager.audit)
        for request, reply in zip(asked, done, strict=True):
            accounts_for(reply, request.prompt)
            assert tuple(reply.token_ids) == self.cold.says(request), "it would have said something else"
        return done


@contextmanager
def demo(cold: Alone, lanes: int = 1, **options: object) -> Iterator[Demo]:
    # Planning time depends on the machine's load, and what is found in it on the time: here there is enough.
    cache = ContextCacheOptions(**{"planning_ms": 60_000, **options})  # type: ignore[arg-type]
    with Engine(EngineOptions(dtype="float32", max_context=1024, max_concurrency=lanes, cache=cache)) as warm:
        yield Demo(warm, cold)


class Person:
    """The rows of the steps since it was asked last are kept, as in a Chat."""

    def __init__(self, demo: Demo, session: str = "one", system: str = "", thinking: bool | None = None) -> None:
        self.demo, self.session, self.thinking = demo, session, thinking
        self.said = [Message("system", system)] if system else []
        self._steps: list[Step] = []

    def asking(self, text: str) -> PreparedPrompt:
        self.said.append(Message("user", text))
        return self.demo.warm.prepare(self.said, thinking=self.thinking)

    def hears(self, prompt: PreparedPrompt, done: Completion) -> str:
        self.said.append(Message("assistant", done.text, reasoning_content=done.reasoning))
        self._steps.append((len(prompt), *line(done), told(done)))
        return done.text

    def asks(self, text: str) -> str:
        """Returns the reply."""
        prompt = self.asking(text)
        [done] = self.demo.say([prompt], [self.session])
        return self.hears(prompt, done)

    def instead(self, back: int, text: str) -> str:
        """Something else in place of the last question but so many."""
        del self.said[-2 * back :]
        return self.asks(text)

    def steps(self) -> list[Step]:
        steps, self._steps = self._steps, []
        return steps
