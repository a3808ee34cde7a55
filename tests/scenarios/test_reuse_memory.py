"""What is reused when images are few, in main memory only, or wanted by eight lanes: tables worked out by hand.

Places are those of test_reuse_conversations: messages start at 0, 60, 168, 183, 291, 306 and 414.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ninfer_core import CacheIntent, GenerationRequest, Message, SamplingParams
from tests.scenarios.chat import Chat
from tests.support.talk import Talk, captures, line

A, B, C = ("a" * 100, "b" * 100, "c" * 100)
LETTERS = SamplingParams(temperature=0, logit_bias=dict.fromkeys(range(97, 123), 1e3))
"""The model's own choice, among letters."""


@pytest.mark.req("CAN-5", "CAN-8", "INV-15")
def test_one_slot_holds_where_the_next_turn_starts(talk: Callable[..., Talk]) -> None:
    """Two images in all: the running one's, and one that is kept. The turn's own checkpoint is surer than any anchor;
    the next turn's takes the place of the one before, as soon as that has been read."""
    with talk(device_state_slots=1) as engine:
        chat = Chat(engine)
        chat.ask(A)
        assert captures(chat.done) == [
            ("LongAnchor", 60, "skipped"),
            ("SharedStablePrefix", 60, "skipped"),
            ("TurnClosure", 168, "captured"),
        ]
        chat.ask(B)
        chat.ask(C)
        chat.again("zz")
        assert chat.table() == [
            (181, "Root", 0, "none"),
            (304, "TurnClosure", 168, "fork"),
            (427, "TurnClosure", 291, "fork"),
            (427, "TurnClosure", 414, "fork"),
        ]
        for capture in chat.done.statistics.captures:
            assert capture.outcome != "skipped" or capture.reason, "whoever is refused is told why"


@pytest.mark.req("VAL-4", "EVI-6")
def test_two_sessions_take_turns_with_one_slot(talk: Callable[..., Talk]) -> None:
    """Only one of them can be kept. Both are worth the same, so nobody is thrown out for the other: the first one goes
    on from its turns, the second reads again, and is told that nothing of it was kept."""
    with talk(device_state_slots=1) as engine:
        first, second = Chat(engine, session="first"), Chat(engine, "T" * 50, session="second")
        for text in (A, B, C):
            first.ask(text)
            second.ask(text)
        assert first.table() == [
            (181, "Root", 0, "none"),
            (304, "TurnClosure", 168, "fork"),
            (427, "TurnClosure", 291, "fork"),
        ]
        assert second.table() == [(181, "Root", 0, "none"), (304, "Root", 0, "none"), (427, "Root", 0, "none")]


@pytest.mark.req("VAL-4")
def test_two_sessions_take_turns_with_two_slots(talk: Callable[..., Talk]) -> None:
    with talk(device_state_slots=2) as engine:
        first, second = Chat(engine, session="first"), Chat(engine, "T" * 50, session="second")
        for text in (A, B, C):
            first.ask(text)
            second.ask(text)
        rows = [
            (181, "Root", 0, "none"),
            (304, "TurnClosure", 168, "fork"),
            (427, "TurnClosure", 291, "fork"),
        ]
        assert first.table() == second.table() == rows


@pytest.mark.req("CAN-7", "KV-5")
def test_main_memory_alone(talk: Callable[..., Talk]) -> None:
    """No image on the device beside the running one: checkpoints go to main memory, the pass ends at each of them."""
    with talk(device_state_slots=0, host_state_slots=16, host_kv_capacity_bytes=1 << 22) as engine:
        first, second = Chat(engine, session="first"), Chat(engine, session="second")
        for chat, texts in ((first, (A, B)), (second, (C, B))):
            for text in texts:
                chat.ask(text)
        first.again("zz")
        first.edit(1, "e" * 100)
        assert first.table() == [
            (181, "Root", 0, "none"),
            (304, "TurnClosure", 168, "restore"),
            (304, "TurnClosure", 291, "restore"),
            (304, "LongAnchor", 183, "restore"),
        ]
        assert second.table() == [(181, "SharedStablePrefix", 60, "restore"), (304, "TurnClosure", 168, "restore")]
        assert second.done.statistics.transfer.bytes > 0


@pytest.mark.req("OPT-3", "DEF-4")
@pytest.mark.parametrize("template", ["published", "keeping"])
def test_no_place_but_the_lane(talk: Callable[..., Talk], template: str) -> None:
    """One image in all: a conversation's end stays in it, where history shows that."""
    with talk(template, device_state_slots=0) as engine:
        chat = Chat(engine)
        for text in (A, B):
            chat.ask(text)
        assert (
            chat.table()
            == {
                "published": [(181, "Root", 0, "none"), (304, "Root", 0, "none")],
                "keeping": [(181, "Root", 0, "none"), (313, "SessionEndpoint", 190, "move")],
            }[template]
        )


@pytest.mark.req("EVI-3", "EVI-6", "EVI-2")
def test_a_catalog_full_of_automatic_entries_takes_a_new_one(talk: Callable[..., Talk]) -> None:
    """Two cells. A third system prompt takes that of the least recently used entry, and is reused itself."""
    with talk(max_shared_prefixes=2) as engine:
        rows = []
        for session, letter in (
            ("s1", "P"),
            ("s2", "Q"),
            ("s3", "P"),
            ("s4", "R"),
            ("s5", "R"),
            ("s6", "Q"),
            ("s7", "P"),
        ):
            chat = Chat(engine, letter * 50, session=session)
            chat.ask(session * 50)
            shares = [c for c in captures(chat.done) if c[0] == "SharedStablePrefix"]
            rows.append((letter, chat.table()[0][1:], shares[0][2]))
        root, shared = ("Root", 0, "none"), ("SharedStablePrefix", 60, "fork")
        assert rows == [
            ("P", root, "promoted"),
            ("Q", root, "promoted"),
            ("P", shared, "present"),
            ("R", root, "promoted"),  # in the place of Q: P was hit since
            ("R", shared, "present"),
            # Q's own conversation has it still, as an anchor: a shared entry would save nobody anything.
            ("Q", ("LongAnchor", 60, "fork"), "skipped"),
            ("P", shared, "present"),
        ]


@pytest.mark.req("ST-1", "CAN-9")
@pytest.mark.parametrize("lanes", [1, 8])
def test_eight_sessions_at_once(talk: Callable[..., Talk], lanes: int) -> None:
    """They start together under one system prompt and go on together, each from its own turn. The model says what it
    would say alone, and the prefix is published once."""
    with talk(lanes=lanes, device_state_slots=24) as engine:
        prepare = engine.engine.prepare

        def together(conversations: list[list[Message]]) -> list[tuple[str, int, str]]:
            asked = [
                GenerationRequest(prepare(messages), LETTERS, 6, cache=CacheIntent(session=f"s{i}"))
                for i, messages in enumerate(conversations)
            ]
            handles = [engine.engine.submit(request) for request in asked]
            done = [handle.result(60) for handle in handles]
            engine.engine._worker.call(engine.manager.audit)
            for messages, request, reply in zip(conversations, asked, done, strict=True):
                engine.cold.puppet.say(())
                alone = engine.cold.engine.submit(request).result(60)
                assert reply.token_ids == alone.token_ids and len(reply.token_ids) == 6
                messages.append(Message("assistant", "ok"))
            return [line(reply) for reply in done]

        talks = [[Message("system", "S" * 50), Message("user", f"{i}" * 100)] for i in range(8)]
        rows = together(talks)
        assert rows[0] == ("Root", 0, "none")
        assert rows[1:] == [("Root", 0, "none") if lanes == 8 else ("SharedStablePrefix", 60, "fork")] * 7
        assert len(list(engine.manager.books.shared)) == 1
        for messages in talks:
            messages.append(Message("user", B))
        assert together(talks) == [("TurnClosure", 168, "fork")] * 8
