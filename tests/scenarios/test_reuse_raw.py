"""What is reused of raw prompts, which have no messages, and what each leaves behind: tables worked out by hand.

A token is a byte. A reply is "ok", and its last token is never executed: a prompt of n ends at n + 1, from where
whoever goes on starts by Move; an anchor stays there. Nothing else is kept of a raw prompt, unless it is asked for: an
anchor one token before its end, or a marker. There is no thinking to switch, and no loop of tools.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ninfer_core import CacheIntent
from ninfer_core.contract.ids import Frontier
from tests.support.talk import Talk, line, told

Step = tuple[int, str, int, str, list[str]]
"""(prompt tokens, source, frontier, operation, captures)."""


def say(engine: Talk, text: str, session: str | None = "one", **cache: object) -> Step:
    prompt = engine.engine.prepare_text(text)
    done = engine.say(prompt, "ok", CacheIntent(session=session, **cache))  # type: ignore[arg-type]
    return len(prompt), *line(done), told(done)


def reasons(engine: Talk, text: str) -> list[str]:
    """Why the parts of a prompt were read."""
    done = engine.say(engine.engine.prepare_text(text), "ok", CacheIntent(session="one"))
    return [miss.reason.value for miss in done.statistics.reuse.misses]


@pytest.mark.req("CAN-6", "CAN-7", "DEF-4", "DEF-3")
def test_append(talk: Callable[..., Talk]) -> None:
    with talk() as engine:
        assert [
            say(engine, text) for text in ("a" * 10, "a" * 10 + "ok and so on", "a" * 10 + "ok and so onok then")
        ] == [
            (10, "Root", 0, "none", []),
            (22, "SessionEndpoint", 11, "move", ["LongAnchor 11 captured"]),
            (29, "SessionEndpoint", 23, "move", ["LongAnchor 23 captured"]),
        ]


@pytest.mark.req("CAN-6", "STAT-2", "DEF-5", "DEF-6", "EVI-1")
def test_the_same_raw_prompt_twice(talk: Callable[..., Talk]) -> None:
    """By default it is read again; with an anchor at its end only its last token is. Who has no session is a domain of
    his own (DEF-6), so that the second asker shows it to be everybody's: it is published whole, final row included, and
    the third one reads nothing."""
    text = "x" * 600
    with talk() as engine:
        assert [say(engine, text, session=None) for _ in range(3)] == [
            (600, "Root", 0, "none", []),
            (600, "Root", 0, "none", ["SharedStablePrefix 600 captured"]),
            (600, "SharedStablePrefix", 600, "fork", ["SharedStablePrefix 600 present"]),
        ]
    with talk() as engine:
        assert [say(engine, text) for _ in range(2)] == [(600, "Root", 0, "none", [])] * 2
        assert reasons(engine, text) == ["no_checkpoint"], "all of it was read before, and nothing was kept"
    with talk() as engine:
        assert [say(engine, text, session=None, anchor_prompt_end=True) for _ in range(3)] == [
            (600, "Root", 0, "none", ["LongAnchor 599 captured"]),
            (600, "LongAnchor", 599, "fork", ["LongAnchor 599 aliased", "SharedStablePrefix 600 captured"]),
            (600, "SharedStablePrefix", 600, "fork", ["LongAnchor 599 aliased", "SharedStablePrefix 600 present"]),
        ]
        # Who goes on comes through the end of what was said, and finds the prefix on its way.
        (_, *start, _) = say(engine, text + "ok and on", session=None, anchor_prompt_end=True)
        assert start == ["SessionEndpoint", 601, "move"]


@pytest.mark.req("CAN-6", "CAN-8", "DEF-6")
def test_regenerate_five_times(talk: Callable[..., Talk]) -> None:
    """One conversation is one domain: however often it asks, its prompt is nobody else's."""
    with talk() as engine:
        assert say(engine, "x" * 600, anchor_prompt_end=True)[1:] == ("Root", 0, "none", ["LongAnchor 599 captured"])
        for _ in range(5):
            again = say(engine, "x" * 600, anchor_prompt_end=True)
            assert again == (600, "LongAnchor", 599, "fork", ["LongAnchor 599 aliased"])


@pytest.mark.req("CAN-3", "CAN-6", "STAT-2")
def test_edit_the_end_and_the_beginning(talk: Callable[..., Talk]) -> None:
    """Without a boundary there is nothing before a change: read again, and told why. A marker is one."""
    with talk() as engine:
        say(engine, "x" * 600)
        assert say(engine, "x" * 590 + "y" * 10) == (600, "Root", 0, "none", [])
        assert reasons(engine, "x" * 580 + "y" * 20) == ["no_checkpoint", "diverged"]
        marked = {"markers": (Frontier(500),)}
        assert say(engine, "z" * 600, **marked) == (600, "Root", 0, "none", ["SharedStablePrefix 500 captured"])
        edited = ("SharedStablePrefix", 500, "fork", ["SharedStablePrefix 500 present"])
        assert say(engine, "z" * 590 + "y" * 10, **marked) == (600, *edited)
        begun = say(engine, "y" * 10 + "z" * 590, **marked)
        assert begun == (600, "Root", 0, "none", ["SharedStablePrefix 500 captured"])


@pytest.mark.req("CAN-7", "CAN-8", "DEF-2")
def test_branch_and_return(talk: Callable[..., Talk]) -> None:
    """The first end went on by Move: the branch forks the anchor that is there since. Both go on from their own
    ends."""
    with talk() as engine:
        begin = "a" * 100 + "ok"
        old, new = begin + "b" * 10, begin + "c" * 10
        assert [say(engine, text) for text in (begin[:-2], old, new, old + "ok" + "d" * 5, new + "ok" + "e" * 5)] == [
            (100, "Root", 0, "none", []),
            (112, "SessionEndpoint", 101, "move", ["LongAnchor 101 captured"]),
            (112, "LongAnchor", 101, "fork", []),
            (119, "SessionEndpoint", 113, "move", ["LongAnchor 113 captured"]),
            (119, "SessionEndpoint", 113, "move", ["LongAnchor 113 captured"]),
        ]


@pytest.mark.req("CAN-3", "VAL-5", "CAP-4")
def test_a_prefix_under_eight_sessions(talk: Callable[..., Talk]) -> None:
    """60 tokens that somebody marked. One image for all; an end and an anchor of each."""
    with talk() as engine:
        marked = {"markers": (Frontier(60),)}
        texts = ["S" * 60 + f"{i}" * 100 for i in range(8)]
        rows = [say(engine, text, text[-1], **marked) for text in texts]
        assert rows[0] == (160, "Root", 0, "none", ["SharedStablePrefix 60 captured"])
        assert rows[1:] == [(160, "SharedStablePrefix", 60, "fork", ["SharedStablePrefix 60 present"])] * 7
        for text in texts:
            on = say(engine, text + "ok" + "z" * 8, text[-1], **marked)
            places = ["SharedStablePrefix 60 present", "LongAnchor 161 captured"]
            assert on == (170, "SessionEndpoint", 161, "move", places)
        assert engine.program.world.used().device_images == 1 + 8 * 2 and engine.losses.told() == []


@pytest.mark.req("VAL-4", "DEF-4", "CAP-4", "CAN-7")
def test_two_sessions_take_turns_with_one_slot(talk: Callable[..., Talk]) -> None:
    """Two images hold the ends of both, and each goes on in its own. An anchor at 101 would be worth more than the
    other's end at 51, but so near to the conversation's beginning it takes spare room only."""
    with talk(device_state_slots=1) as engine:
        assert say(engine, "a" * 100, "a") == (100, "Root", 0, "none", [])
        assert say(engine, "b" * 50, "b") == (50, "Root", 0, "none", [])
        assert engine.held == {
            1: [("SessionEndpoint", 101, "d0", "d0-1")],
            2: [("SessionEndpoint", 51, "d1", "d2")],
        }
        on = say(engine, "a" * 100 + "ok" + "c" * 10, "a")
        assert on == (112, "SessionEndpoint", 101, "move", ["LongAnchor 101 skipped"])
        on = say(engine, "b" * 50 + "ok" + "c" * 10, "b")
        assert on == (62, "SessionEndpoint", 51, "move", ["LongAnchor 51 skipped"])
        assert engine.held == {
            3: [("SessionEndpoint", 113, "d0", "d0-1")],
            4: [("SessionEndpoint", 63, "d1", "d2")],
        }
        assert engine.losses.told() == []


@pytest.mark.req("CAN-7", "KV-5", "TGT-4")
def test_main_memory_alone(talk: Callable[..., Talk]) -> None:
    """The end of who does not run goes to main memory, and comes back. Where it was an anchor stays, with a copy of its
    last page."""
    with talk(device_state_slots=0, host_state_slots=16, host_kv_capacity_bytes=1 << 22) as engine:
        rows = [say(engine, letter * 100, letter) for letter in "ab"]
        assert rows == [(100, "Root", 0, "none", [])] * 2
        assert engine.losses.told() == [(2, 1, "to mixed", "SessionEndpoint 101")]
        assert engine.held == {
            1: [("SessionEndpoint", 101, "h0", "d0-1")],
            2: [("SessionEndpoint", 101, "d1", "d2-3")],
        }
        rows = [say(engine, letter * 100 + "ok" + "c" * 10, letter) for letter in "ab"]
        assert rows == [(112, "SessionEndpoint", 101, "restore", ["LongAnchor 101 captured"])] * 2
        assert engine.losses.told() == [
            (3, 2, "to mixed", "SessionEndpoint 101"),
            (4, 3, "to mixed", "SessionEndpoint 113"),
        ]
        assert engine.held == {
            3: [("LongAnchor", 101, "h2", "d0 d4"), ("SessionEndpoint", 113, "h0", "d0-1")],
            4: [("LongAnchor", 101, "h3", "d2 d5"), ("SessionEndpoint", 113, "d1", "d2-3")],
        }


@pytest.mark.req("OPT-2", "DEF-4", "CAP-6")
def test_no_host_tier_and_no_slot(talk: Callable[..., Talk]) -> None:
    """One image in all: whoever was last goes on in it, and somebody else takes it away."""
    with talk(device_state_slots=0) as engine:
        assert say(engine, "a" * 100, "a") == (100, "Root", 0, "none", [])
        on = say(engine, "a" * 100 + "ok" + "c" * 10, "a")
        assert on == (112, "SessionEndpoint", 101, "move", ["LongAnchor 101 skipped"])
        assert say(engine, "b" * 100, "b") == (100, "Root", 0, "none", [])
        assert engine.losses.told() == [(3, 2, "evicted", "SessionEndpoint 113")]
        assert say(engine, "a" * 100 + "ok" + "c" * 10, "a") == (112, "Root", 0, "none", [])
        assert engine.losses.told() == [(4, 3, "evicted", "SessionEndpoint 101")]
        assert engine.held == {4: [("SessionEndpoint", 113, "d0", "d0-1")]}
