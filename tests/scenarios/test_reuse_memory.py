"""What is reused when images are few, with the published template, down to images and pages: tables worked out by hand.

Places are those of test_reuse_conversations: messages start at 0, 60, 168, 183, 291, 306 and 414. Turn k ends at 190,
313 and 436, and no history shows these ends: losing one costs nothing.

Images and pages of 64 tokens get the lowest free number. A checkpoint inside a page has a copy of it, its last here: it
is taken before the pass that writes the sequence's own. So of a first turn the copy is page 0 and the sequence has 1 to
3.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.chat import A, B, C, Chat, Step
from tests.support.talk import Talk

NOTHING = ["LongAnchor 60 skipped", "SharedStablePrefix 60 skipped"]
"""There is room for the turn's own checkpoint alone; later it lies before the reuse base, and nobody has it."""

FIRST: Step = (181, "Root", 0, "none", [*NOTHING, "TurnClosure 168 captured"])
SECOND: Step = (
    304,
    "TurnClosure",
    168,
    "fork",
    [*NOTHING, "LongAnchor 168 present", "LongAnchor 183 skipped", "TurnClosure 291 captured"],
)
"""168 comes along with its source, and is given up for 291 at last: the next turn starts there for certain."""
LATER = [
    "SharedStablePrefix 60 skipped",
    "LongAnchor 168 183 skipped",
    "LongAnchor 291 present",
    "LongAnchor 306 skipped",
]
THIRD: Step = (427, "TurnClosure", 291, "fork", [*LATER, "TurnClosure 414 captured"])
"""With four anchors at most, as few images allow, 60 is not asked for any more."""


@pytest.mark.req("CAN-5", "CAN-8", "INV-15", "CAP-4")
def test_one_slot_holds_where_the_next_turn_starts(talk: Callable[..., Talk]) -> None:
    """Two images in all: the running one's, and one that is kept. The pass ends at the closure: the image that ran so
    far is frozen, and the run goes on in the one of the closure before, which has been read."""
    with talk(device_state_slots=1) as engine:
        chat = Chat(engine)
        chat.ask(A)
        assert chat.steps() == [FIRST]
        assert engine.held == {1: [("TurnClosure", 168, "d1", "d1-2 d0"), ("SessionEndpoint", 190, "d0", "d1-3")]}
        chat.ask(B)
        assert chat.steps() == [SECOND]
        assert engine.held == {2: [("TurnClosure", 291, "d0", "d1-4 d0"), ("SessionEndpoint", 313, "d1", "d1-5")]}
        chat.ask(C)
        assert chat.steps() == [THIRD]
        kept = [("TurnClosure", 414, "d1", "d1-6 d0"), ("SessionEndpoint", 436, "d0", "d1-7")]
        assert engine.held == {3: kept}
        # Regenerated: the branch cannot be held beside the conversation, so it takes its place, image for image.
        chat.again("zz")
        places = ["SharedStablePrefix 60 skipped", "LongAnchor 168 183 291 306 skipped", "TurnClosure 414 present"]
        assert chat.steps() == [(427, "TurnClosure", 414, "fork", places)]
        assert engine.held == {4: kept}


@pytest.mark.req("VAL-4", "EVI-6", "VAL-9")
def test_two_sessions_take_turns_with_one_slot(talk: Callable[..., Talk]) -> None:
    """Only one of them can be kept. Both are worth the same, so nobody is thrown out for the other: the first one goes
    on from its turns, the second reads again. Each run takes the image of the end that the other's last run left."""
    with talk(device_state_slots=1) as engine:
        first, second = Chat(engine, session="first"), Chat(engine, "T" * 50, session="second")
        first.ask(A)
        assert first.steps() == [FIRST] and engine.losses.told() == []
        second.ask(A)
        assert second.steps() == [(*FIRST[:4], [*NOTHING, "TurnClosure 168 skipped"])]
        assert engine.losses.told() == [(2, 1, "shortened", "SessionEndpoint 190")]
        assert engine.held == {
            1: [("TurnClosure", 168, "d1", "d1-2 d0")],
            2: [("SessionEndpoint", 190, "d0", "d3-5")],
        }
        first.ask(B)
        assert first.steps() == [SECOND]
        assert engine.losses.told() == [(3, 2, "evicted", "SessionEndpoint 190")]
        assert engine.held == {3: [("TurnClosure", 291, "d0", "d1-4 d0"), ("SessionEndpoint", 313, "d1", "d1-5")]}
        second.ask(B)
        places = [*NOTHING, "LongAnchor 168 183 skipped", "TurnClosure 291 skipped"]
        assert second.steps() == [(304, "Root", 0, "none", places)]
        assert engine.losses.told() == [(4, 3, "shortened", "SessionEndpoint 313")]
        assert engine.held == {
            3: [("TurnClosure", 291, "d0", "d1-4 d0")],
            4: [("SessionEndpoint", 313, "d1", "d5-9")],
        }
        first.ask(C)
        assert first.steps() == [THIRD]
        second.ask(C)
        places = ["SharedStablePrefix 60 skipped", "LongAnchor 168 183 291 306 skipped", "TurnClosure 414 skipped"]
        assert second.steps() == [(427, "Root", 0, "none", places)]
        assert engine.losses.told() == [
            (5, 4, "evicted", "SessionEndpoint 313"),
            (6, 5, "shortened", "SessionEndpoint 436"),
        ]
        assert engine.held == {
            5: [("TurnClosure", 414, "d1", "d1-6 d0")],
            6: [("SessionEndpoint", 436, "d0", "d7-13")],
        }


@pytest.mark.req("VAL-4", "EVI-3")
def test_two_sessions_take_turns_with_two_slots(talk: Callable[..., Talk]) -> None:
    """Room for the last turn of both. The system message of the first, kept while nobody else was there, goes for the
    second one's turn: owner and public entry together, since they hold one image (TGT-5)."""
    with talk(device_state_slots=2) as engine:
        first, second = Chat(engine, session="first"), Chat(engine, "T" * 50, session="second")
        first.ask(A)
        kept = ["LongAnchor 60 captured", "SharedStablePrefix 60 promoted", "TurnClosure 168 captured"]
        assert first.steps() == [(*FIRST[:4], kept)]
        assert engine.held == {
            1: [
                ("LongAnchor", 60, "d1", "d0"),
                ("TurnClosure", 168, "d2", "d2-3 d1"),
                ("SessionEndpoint", 190, "d0", "d2-4"),
            ],
            2: [("SharedStablePrefix", 60, "d1", "d0")],
        }
        second.ask(A)
        assert second.steps() == [FIRST]
        assert engine.losses.told() == [
            (2, 1, "shortened", "SessionEndpoint 190"),  # for the run
            (2, 1, "shortened", "LongAnchor 60"),  # for the closure, together with
            (2, 2, "evicted", "SharedStablePrefix 60"),
        ]
        assert engine.held == {
            1: [("TurnClosure", 168, "d2", "d2-3 d1")],
            3: [("TurnClosure", 168, "d1", "d4-5 d0"), ("SessionEndpoint", 190, "d0", "d4-6")],
        }
        for text, step in ((B, SECOND), (C, THIRD)):
            for chat in (first, second):
                chat.ask(text)
                assert chat.steps() == [step]
        assert engine.losses.told() == [
            (3, 3, "shortened", "SessionEndpoint 190"),
            (4, 4, "shortened", "SessionEndpoint 313"),
            (5, 5, "shortened", "SessionEndpoint 313"),
            (6, 6, "shortened", "SessionEndpoint 436"),
        ]
        assert engine.held == {
            6: [("TurnClosure", 414, "d1", "d2-3 d6-7 d10-11 d1")],
            7: [("TurnClosure", 414, "d0", "d4-5 d8-9 d12-13 d0"), ("SessionEndpoint", 436, "d2", "d4-5 d8-9 d12-14")],
        }


@pytest.mark.req("OPT-2", "DEF-4", "CAP-6")
def test_no_host_tier_and_no_slot(talk: Callable[..., Talk]) -> None:
    """One image in all: a conversation's end stays in it, and no history shows that. Each turn is read from nothing."""
    with talk(device_state_slots=0) as engine:
        chat = Chat(engine)
        for text in (A, B):
            chat.ask(text)
        chat.again("zz")
        places = [*NOTHING, "LongAnchor 168 183 skipped", "TurnClosure 291 skipped"]
        assert chat.steps() == [
            (181, "Root", 0, "none", [*NOTHING, "TurnClosure 168 skipped"]),
            (304, "Root", 0, "none", places),
            (304, "Root", 0, "none", places),
        ]
        assert engine.losses.told() == [
            (2, 1, "evicted", "SessionEndpoint 190"),
            (3, 2, "evicted", "SessionEndpoint 313"),
        ]
        assert engine.held == {3: [("SessionEndpoint", 313, "d0", "d0-4")]}


@pytest.mark.req("VAL-9", "TGT-5")
def test_an_end_that_costs_nothing_goes_for_a_turn(talk: Callable[..., Talk]) -> None:
    """Eight sessions, nine images: the system message's, a turn's of each, and an end's of each that no history shows.
    From the fifth session on one such end goes for its run and another one for its turn, also where five owners that
    are older look as cheap. The eighth finds none for its turn, and the others' are worth as much."""
    with talk(device_state_slots=8) as engine:
        turns, losses = [], []
        for i in range(8):
            chat = Chat(engine, session=f"s{i}")
            chat.ask(f"{i}" * 100)
            [(*_, captures)] = chat.steps()
            turns.append(captures[-1])
            losses += engine.losses.told()
        assert turns == ["TurnClosure 168 captured"] * 7 + ["TurnClosure 168 skipped"]
        requests = (5, 5, 6, 6, 7, 7, 8)
        owners = (1, 3, 4, 5, 6, 7, 8)
        assert losses == [
            (request, owner, "shortened", "SessionEndpoint 190")
            for request, owner in zip(requests, owners, strict=True)
        ]
