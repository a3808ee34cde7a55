"""A cache full of automatic entries, and then a new conversation: what gives way, and in which order, worked out by
hand.

Places are those of test_reuse_conversations and test_reuse_keeping, in the first turn of which nothing differs but the
name of the checkpoint at 168.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ninfer_core import CacheIntent
from tests.scenarios.chat import Chat
from tests.support.talk import Talk, line, told

REWRITE = {"published": "TurnClosure", "keeping": "ResponseReplay"}


def public(engine: Talk) -> dict[int, tuple[str, str]]:
    """owner -> (image, pages) of the entries of the shared catalog."""
    return {int(e.owner): engine.held[int(e.owner)][0][2:] for e in engine.manager.books.shared}


@pytest.mark.req("EVI-3", "EVI-6", "EVI-2")
@pytest.mark.parametrize("template", ["published", "keeping"])
def test_a_catalog_full_of_automatic_entries_takes_a_new_one(talk: Callable[..., Talk], template: str) -> None:
    """Two cells. A third system prompt takes that of the least recently used entry, and is reused itself.

    A session's first turn has three images: its anchor's, its turn's, its end's; the entry is the anchor's. With the
    anchor in another session's image it is two. So the entries' images are 1, 3 + 1 and 3 + 3 + 2 + 1.
    """
    with talk(template, max_shared_prefixes=2) as engine:
        rewrite = f"{REWRITE[template]} 168 captured"
        new = (181, "Root", 0, "none", ["LongAnchor 60 captured", "SharedStablePrefix 60 promoted", rewrite])
        known = ["LongAnchor 60 aliased", "SharedStablePrefix 60 present", rewrite]
        for i, letter in enumerate("PQPRRQP", 1):
            chat = Chat(engine, letter * 50, session=f"s{i}")
            chat.ask(f"s{i}" * 50)
            if i in (1, 2, 4):
                assert chat.steps() == [new]
            elif i == 6:
                # Q's own conversation has it still, as an anchor: a shared entry would save nobody anything.
                lacking = ["SharedStablePrefix 60 skipped", "LongAnchor 60 aliased", rewrite]
                assert chat.steps() == [(181, "LongAnchor", 60, "fork", lacking)]
            else:
                assert chat.steps() == [(181, "SharedStablePrefix", 60, "fork", known)]
            if i == 3:
                assert public(engine) == {2: ("d1", "d0"), 4: ("d4", "d5")} and engine.losses.told() == []
            if i == 4:
                # Q's gives way: P's was hit since. It goes when R's is published, outside any transition (request 0).
                assert engine.losses.told() == [(0, 4, "evicted", "SharedStablePrefix 60")]
        assert public(engine) == {2: ("d1", "d0"), 7: ("d9", "d14")} and engine.losses.told() == []


@pytest.mark.req("EVI-3", "TGT-5", "VAL-9", "EVI-6")
def test_images_full_of_automatic_entries(talk: Callable[..., Talk]) -> None:
    """Six images, all taken by two conversations: the first and the second one's system messages, turns and ends. A
    third takes, in this order: the older end, for its run; the other end, for its own anchor; the older system
    message's anchor with the public entry that holds the same image, for its turn. A fourth takes the third one's end,
    and the second one's system message; its own is worth no more than the third one's, which stays."""
    with talk(device_state_slots=5) as engine:
        chats = [Chat(engine, letter * 50, session=letter) for letter in "PQRT"]
        kept = ["LongAnchor 60 captured", "SharedStablePrefix 60 promoted", "TurnClosure 168 captured"]
        for chat in chats[:3]:
            assert engine.losses.told() == []
            chat.ask("a" * 100)
            assert chat.steps() == [(181, "Root", 0, "none", kept)]
        assert engine.losses.told() == [
            (3, 1, "shortened", "SessionEndpoint 190"),
            (3, 3, "shortened", "SessionEndpoint 190"),
            (3, 1, "shortened", "LongAnchor 60"),
            (3, 2, "evicted", "SharedStablePrefix 60"),
        ]
        assert engine.held == {
            1: [("TurnClosure", 168, "d2", "d2-3 d1")],
            3: [("LongAnchor", 60, "d4", "d5"), ("TurnClosure", 168, "d5", "d7-8 d6")],
            4: [("SharedStablePrefix", 60, "d4", "d5")],
            5: [
                ("LongAnchor", 60, "d3", "d4"),
                ("TurnClosure", 168, "d1", "d9-10 d0"),
                ("SessionEndpoint", 190, "d0", "d9-11"),
            ],
            6: [("SharedStablePrefix", 60, "d3", "d4")],
        }
        chats[3].ask("a" * 100)
        skipped = ["LongAnchor 60 skipped", "SharedStablePrefix 60 skipped", "TurnClosure 168 captured"]
        assert chats[3].steps() == [(181, "Root", 0, "none", skipped)]
        assert engine.losses.told() == [
            (4, 5, "shortened", "SessionEndpoint 190"),
            (4, 3, "shortened", "LongAnchor 60"),
            (4, 4, "evicted", "SharedStablePrefix 60"),
        ]
        # Every one of them goes on from its turn.
        for chat in chats:
            chat.ask("b" * 100)
            [(_, source, frontier, _, _)] = chat.steps()
            assert (source, frontier) == ("TurnClosure", 168)


@pytest.mark.req("EVI-1", "EVI-3", "DEF-6")
def test_a_catalog_full_of_raw_prompts_takes_a_new_one(talk: Callable[..., Talk]) -> None:
    """One cell. A raw prompt becomes an entry when a second asker shows it, whole, with its last row: a third reads
    nothing. Another one takes the cell in its turn, and the first prompt's next asker, who has the anchor one token
    before its end, takes it back."""
    with talk(max_shared_prefixes=1) as engine:
        rows = []
        for text in ("x", "x", "x", "y", "y", "y", "x"):
            prompt = engine.engine.prepare_text(text * 600)
            done = engine.say(prompt, "ok", CacheIntent(anchor_prompt_end=True))
            rows.append((text, *line(done), told(done)))
        anew = ("Root", 0, "none", ["LongAnchor 599 captured"])
        again = ("LongAnchor", 599, "fork", ["LongAnchor 599 aliased", "SharedStablePrefix 600 captured"])
        whole = ("SharedStablePrefix", 600, "fork", ["LongAnchor 599 aliased", "SharedStablePrefix 600 present"])
        assert rows == [
            ("x", *anew),
            ("x", *again),
            ("x", *whole),
            ("y", *anew),
            ("y", *again),
            ("y", *whole),
            ("x", *again),
        ]
        # Requests 1, 2, 3 are owners 1, 2, 4, and the entry that the second published is 3; and so on.
        assert engine.losses.told() == [
            (5, 3, "evicted", "SharedStablePrefix 600"),
            (7, 7, "evicted", "SharedStablePrefix 600"),
        ]


@pytest.mark.req("CAN-3", "OPT-1")
def test_nothing_is_shared_of_the_engine_s_own_accord_where_that_is_switched_off(talk: Callable[..., Talk]) -> None:
    with talk(allow_engine_automatic_shared_prefixes=False) as engine:
        for _ in range(3):
            done = engine.say(engine.engine.prepare_text("x" * 600), "ok", CacheIntent())
            assert line(done) == ("Root", 0, "none") and told(done) == []
        assert not list(engine.manager.books.shared)
