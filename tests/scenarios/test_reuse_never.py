"""What other engines get wrong, and must not happen here. Places are those of test_reuse_conversations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ninfer_core import CacheIntent, Message
from tests.scenarios.chat import Chat
from tests.support.talk import Talk, line

A, B = "a" * 100, "b" * 100


@pytest.mark.req("DEF-3")
def test_a_short_prompt_resumes(talk: Callable[..., Talk]) -> None:
    """No least length: a message of one letter starts at 0 and ends at 9."""
    with talk() as engine:
        chat = Chat(engine, "")
        chat.ask("a")
        chat.again("yy")
        chat.ask("b")
        assert chat.table() == [
            (22, "Root", 0, "none"),
            (22, "TurnClosure", 9, "fork"),
            (9 + 15 + 9 + 13, "TurnClosure", 9, "fork"),
        ]


@pytest.mark.req("INV-7", "EVI-6")
def test_nothing_is_erased_while_there_is_room(talk: Callable[..., Talk]) -> None:
    """After five turns every one of them can be regenerated from where it was, the first included."""
    with talk() as engine:
        chat = Chat(engine)
        for letter in "abcde":
            chat.ask(letter * 10)
        said = list(chat.messages)
        chat.table()
        for turn in range(5):
            chat.messages = said[: 2 * turn + 3]
            chat.again("zz")
        # A user's message takes 18 tokens here, a turn with its reply 33.
        rows = [(length, frontier, how) for length, _, frontier, how in chat.table()]
        assert rows == [(78 + 33 * k + 13, 78 + 33 * k, "fork") for k in range(5)]


@pytest.mark.req("RET-4", "CAN-8", "EVI-6")
def test_reuse_goes_on_when_the_catalog_is_full(talk: Callable[..., Talk]) -> None:
    """One private cell and no shared one: the conversation is rewritten instead of kept beside; a new one takes the
    cell, and is reused in its turn; whoever lost it is told for whom."""
    with talk(max_private_continuations=1, max_shared_prefixes=0) as engine:
        first, second = Chat(engine, session="first"), Chat(engine, "T" * 50, session="second")
        rows = [(181, "Root", 0, "none"), (304, "TurnClosure", 168, "fork")]
        for chat in (first, second):
            chat.ask(A)
            chat.ask(B)
            assert chat.table() == rows
            assert len(list(engine.manager.books.private)) == 1
        first.ask(A)
        assert first.table() == [(427, "Root", 0, "none")]
        miss = first.done.statistics.reuse.misses[0]
        assert (miss.start, miss.end, miss.reason.value) == (0, 291, "evicted")
        assert miss.detail == "its checkpoint made room for request 3"


@pytest.mark.req("DEF-3")
@pytest.mark.parametrize("template", ["published", "keeping", "headings"])
@pytest.mark.parametrize("thinking", [None, False])
def test_the_second_turn_reuses_the_first(talk: Callable[..., Talk], template: str, thinking: bool | None) -> None:
    """A think block in the opener and not in history, one that history keeps, and a template without control tokens."""
    with talk(template) as engine:
        messages = [Message("user", A)]
        prompt = engine.engine.prepare(messages, thinking=thinking)
        assert prompt.boundaries is not None
        engine.say(prompt, "ok")
        messages += [Message("assistant", "ok"), Message("user", B)]
        done = engine.say(engine.engine.prepare(messages, thinking=thinking), "ok")
        assert done.statistics.reuse.frontier >= prompt.boundaries.generation_opener >= 100


@pytest.mark.req("RET-3", "ID-1")
def test_a_session_key_proves_nothing(talk: Callable[..., Talk]) -> None:
    """Another conversation of the same length under the same key starts from root, and says what it would say alone."""
    with talk() as engine:
        prompts = [engine.engine.prepare([Message("user", letter * 100)]) for letter in "abab"]
        rows = [line(engine.say(prompt, "ok", CacheIntent(session="same"))) for prompt in prompts]
        assert rows == [("Root", 0, "none")] * 2 + [("TurnClosure", 108, "fork")] * 2


@pytest.mark.req("PLAN-3", "PLAN-13")
def test_no_budget_makes_everything_start_from_root(talk: Callable[..., Talk]) -> None:
    """With no optional planning at all, and with nothing free beside: what matches and fits is resumed."""
    with talk(planning_targets=0, planning_ms=0, device_state_slots=1) as engine:
        chat = Chat(engine)
        for text in (A, B, A):
            chat.ask(text)
        assert chat.table() == [
            (181, "Root", 0, "none"),
            (304, "TurnClosure", 168, "fork"),
            (427, "TurnClosure", 291, "fork"),
        ]


@pytest.mark.req("REQ-1")
def test_a_disabled_request_leaves_nothing(talk: Callable[..., Talk]) -> None:
    from ninfer_core import CacheMode

    with talk() as engine:
        prompt = engine.engine.prepare([Message("system", "S" * 50), Message("user", A)])
        off = CacheIntent(CacheMode.DISABLED, session="one")
        epoch = engine.manager.books.demand.epoch
        for _ in range(2):
            done = engine.say(prompt, "ok", off)
            assert line(done) == ("Root", 0, "none") and done.statistics.captures == ()
            assert [miss.reason.value for miss in done.statistics.reuse.misses] == ["disabled"]
        books = engine.manager.books
        assert not list(books.entries()) and not books.sessions.owners() and books.demand.epoch == epoch
        assert not engine.program.world.owners and not engine.program.world.used().device_images
        engine.say(prompt, "ok", CacheIntent(session="one"))
        assert line(engine.say(prompt, "ok", off)) == ("Root", 0, "none"), "nor does it read"
