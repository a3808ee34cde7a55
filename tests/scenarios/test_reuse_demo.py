"""The same places with the demo model's own words and default options: what is reused, what is left, what it says.

Its first question takes 23 tokens, the reply 27, the next question 10; a reply's opener takes 9. So a first prompt has
32 tokens and a second 69, of which 60 lie before the opener. What was once asked is said again from a checkpoint as it
is said by an Engine without a cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ninfer_core import CacheIntent, Completion, Engine, EngineOptions, GenerationRequest, Message, SamplingParams
from ninfer_core.engine.cache_options import ContextCacheOptions
from tests.support.talk import captures, line

BELA, MIRA = "My name is Bela and I live in Torvik.", "My name is Mira and I live in Arvo."
NAME, PLACE = "What is my name?", "Where do I live?"


def engine(**options: object) -> Engine:
    cache = ContextCacheOptions(**options)  # type: ignore[arg-type]
    return Engine(EngineOptions(dtype="float32", max_context=1024, cache=cache))


@pytest.fixture(scope="module")
def cold() -> Iterator[Engine]:
    with engine(enabled=False) as made:
        yield made


class Person:
    """Talks to the demo model, and hears the same from an Engine without a cache."""

    def __init__(self, engine: Engine, cold: Engine, session: str = "one") -> None:
        self.engine, self.cold, self.session = engine, cold, session
        self.said: list[Message] = []

    def asks(self, text: str) -> Completion:
        self.said.append(Message("user", text))
        prompt = self.engine.prepare(self.said)
        request = GenerationRequest(prompt, SamplingParams(temperature=0), 24, cache=CacheIntent(session=self.session))
        done, other = self.engine.submit(request).result(60), self.cold.submit(request).result(60)
        assert done.token_ids == other.token_ids, "it would have said something else"
        assert done.statistics.usage.prefill_tokens == len(prompt) - done.statistics.reuse.frontier
        self.said.append(Message("assistant", done.text))
        return done

    def instead(self, back: int, text: str) -> Completion:
        """Something else in place of the last question but so many."""
        del self.said[-2 * back :]
        return self.asks(text)


@pytest.mark.req("DEF-3", "CAN-5", "CAN-8", "STAT-1", "CAN-9")
def test_a_conversation_with_the_demo_model(cold: Engine) -> None:
    with engine() as warm:
        person = Person(warm, cold)
        done = person.asks(BELA)
        assert "Bela" in done.text and line(done) == ("Root", 0, "none")
        assert captures(done) == [("TurnClosure", 23, "captured")]

        done = person.asks(NAME)
        assert done.text == "Your name is Bela." and line(done) == ("TurnClosure", 23, "fork")
        assert done.statistics.usage.prefill_tokens == 69 - 23
        made = [("LongAnchor", 23, "aliased"), ("LongAnchor", 50, "captured"), ("TurnClosure", 60, "captured")]
        assert captures(done) == made

        for _ in range(5):  # regenerated: the opener alone
            done = person.instead(1, NAME)
            assert done.text == "Your name is Bela." and line(done) == ("TurnClosure", 60, "fork")
            assert done.statistics.usage.prefill_tokens == 9
            assert captures(done) == [(kind, frontier, "aliased") for kind, frontier, _ in made]
        home = list(person.said)

        done = person.instead(1, PLACE)  # the last question edited: from the end of the reply before it
        assert done.text == "You live in Torvik." and line(done) == ("LongAnchor", 50, "fork")
        assert done.statistics.usage.prefill_tokens == 72 - 50
        assert captures(done)[-1] == ("TurnClosure", 63, "captured")

        done = person.instead(2, MIRA)  # the first question edited: nothing before it was kept
        assert line(done) == ("Root", 0, "none")
        done = person.asks(NAME)
        assert done.text == "Your name is Mira." and line(done) == ("TurnClosure", 22, "fork")

        person.said = home  # back to the first branch, and on
        done = person.asks(PLACE)
        assert done.text == "You live in Torvik." and line(done) == ("TurnClosure", 60, "fork")
        assert done.statistics.usage.prefill_tokens == 94 - 60
        assert captures(done)[-2:] == [("LongAnchor", 72, "captured"), ("TurnClosure", 85, "captured")]


@pytest.mark.req("CAN-8", "TXN-5", "RET-4", "STAT-1")
def test_two_conversations_take_turns_in_a_small_device_and_a_host_tier(cold: Engine) -> None:
    """Nearly all of both lies in main memory: it is copied in for each question, and what goes on is what was left."""
    with engine(device_state_slots=1, host_state_slots=16, host_kv_capacity_bytes=1 << 22, planning_ms=60_000) as warm:
        first, second = Person(warm, cold, "first"), Person(warm, cold, "second")
        turns = [(first, BELA), (second, MIRA), (first, NAME), (second, NAME), (first, PLACE), (second, PLACE)]
        said = [person.asks(text) for person, text in turns]
        assert [done.text for done in said[2:]] == [
            "Your name is Bela.",
            "Your name is Mira.",
            "You live in Torvik.",
            "You live in Arvo.",
        ]
        assert [line(done) for done in said] == [
            ("Root", 0, "none"),
            ("Root", 0, "none"),
            ("TurnClosure", 23, "fork"),
            ("TurnClosure", 22, "restore"),
            ("TurnClosure", 60, "restore"),
            ("TurnClosure", 58, "restore"),
        ]
        assert all(done.statistics.transfer.bytes > 0 for done in said[2:])
        assert captures(said[-1])[-2:] == [("LongAnchor", 70, "captured"), ("TurnClosure", 83, "captured")]
        warm._worker.call(warm._manager.audit)
