"""What is reused when images are few, with a template that keeps reasoning: tables worked out by hand.

Places are those of test_reuse_keeping, images and pages as in test_reuse_memory. Every end can be gone on from here, so
that losing one has a price. With the generic coefficients, reading n tokens behind b others costs

    128 + 3.5 n + 0.0005 (b n + n (n + 1) / 2) ms:

168 from nothing 723, 192 809, 300 1200, 324 1288; 168 to 190 207, 192 to 322 600, 168 to 322 686, 168 to 324 693,
168 to 432 1092, 324 to 432 526. A checkpoint is worth what its session would read more without it, of both sessions 16
times (VAL-4), and takes another one's place only if it is worth more (VAL-7).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.chat import A, B, C, Chat, Step
from tests.support.talk import Talk

NOTHING = ["LongAnchor 60 skipped", "SharedStablePrefix 60 skipped"]
FIRST: Step = (181, "Root", 0, "none", [*NOTHING, "ResponseReplay 168 captured"])


@pytest.mark.req("CAN-7", "CAN-8", "DEF-2")
def test_one_slot_beside_the_end_that_goes_on(talk: Callable[..., Talk]) -> None:
    """Two images: the end goes on by Move in one of them; the first turn's place has the other, and stays. So the
    conversation goes on for nothing, and is regenerated from 168."""
    with talk("keeping", device_state_slots=1) as engine:
        chat = Chat(engine)
        chat.ask(A)
        assert chat.steps() == [FIRST]
        assert engine.held == {1: [("ResponseReplay", 168, "d1", "d1-2 d0"), ("SessionEndpoint", 190, "d0", "d1-3")]}
        chat.ask(B)
        second = [*NOTHING, "LongAnchor 168 present", "LongAnchor 190 192 skipped", "ResponseReplay 300 skipped"]
        assert chat.steps() == [(313, "SessionEndpoint", 190, "move", second)]
        assert engine.held == {2: [("LongAnchor", 168, "d1", "d1-2 d0"), ("SessionEndpoint", 322, "d0", "d1-6")]}
        chat.ask(C)
        third = [
            "SharedStablePrefix 60 skipped",
            "LongAnchor 168 present",
            "LongAnchor 192 300 322 324 skipped",
            "ResponseReplay 432 skipped",
        ]
        assert chat.steps() == [(445, "SessionEndpoint", 322, "move", third)]
        chat.again("zz")
        again = [*third[:2], "LongAnchor 192 300 324 skipped", third[3]]
        assert chat.steps() == [(445, "LongAnchor", 168, "fork", again)]
        assert engine.held == {4: [("LongAnchor", 168, "d1", "d1-2 d0"), ("SessionEndpoint", 454, "d0", "d1-8")]}
        assert engine.losses.told() == []


@pytest.mark.req("VAL-4", "VAL-7", "EVI-6")
def test_two_sessions_take_turns_with_one_slot(talk: Callable[..., Talk]) -> None:
    """Two images, of which a run needs one: whoever comes finds nothing of its own, and takes both. Of what the other
    left, its end goes for the run: from the checkpoint before it less would be read again. The checkpoint goes for
    one that is worth more, and one that lies deeper is: 300 ousts 192 and 324 ousts 300. At equal depth the other's
    stays: 168 does not oust 168 nor 192 192, and 324 not 324."""
    with talk("keeping", device_state_slots=1) as engine:
        first, second = Chat(engine, session="first"), Chat(engine, "T" * 50, session="second")
        first.ask(A)
        assert first.steps() == [FIRST]
        second.ask(A)
        assert second.steps() == [(*FIRST[:4], [*NOTHING, "ResponseReplay 168 skipped"])]
        assert engine.losses.told() == [(2, 1, "shortened", "SessionEndpoint 190")]
        assert engine.held == {
            1: [("ResponseReplay", 168, "d1", "d1-2 d0")],
            2: [("SessionEndpoint", 190, "d0", "d3-5")],
        }
        # Going on from 168 would need the image of the other's end, worth 16 * 802; root can do with that of 168, worth
        # 16 * 723, and reads 1248 - 653 more. Then the anchor at 192, worth 16 * 809, takes the other's after all.
        first.ask(B)
        places = [*NOTHING, "LongAnchor 168 skipped", "LongAnchor 192 captured", "ResponseReplay 300 skipped"]
        assert first.steps() == [(313, "Root", 0, "none", places)]
        assert engine.losses.told() == [
            (3, 1, "evicted", "ResponseReplay 168"),
            (3, 2, "evicted", "SessionEndpoint 190"),
        ]
        assert engine.held == {3: [("LongAnchor", 192, "d0", "d0-2"), ("SessionEndpoint", 322, "d1", "d0-5")]}
        second.ask(B)
        places = [*NOTHING, "LongAnchor 168 192 skipped", "ResponseReplay 300 captured"]
        assert second.steps() == [(313, "Root", 0, "none", places)]
        assert engine.losses.told() == [
            (4, 3, "shortened", "SessionEndpoint 322"),
            (4, 3, "evicted", "LongAnchor 192"),
        ]
        assert engine.held == {4: [("ResponseReplay", 300, "d0", "d1-4 d0"), ("SessionEndpoint", 322, "d1", "d1-6")]}
        first.ask(C)
        skipped = ["SharedStablePrefix 60 skipped", "LongAnchor 168 192 300 skipped"]
        places = [*skipped, "LongAnchor 324 captured", "ResponseReplay 432 skipped"]
        assert first.steps() == [(445, "Root", 0, "none", places)]
        second.ask(C)
        places = ["SharedStablePrefix 60 skipped", "LongAnchor 168 192 300 324 skipped", "ResponseReplay 432 captured"]
        assert second.steps() == [(445, "Root", 0, "none", places)]
        assert engine.losses.told() == [
            (5, 4, "shortened", "SessionEndpoint 322"),
            (5, 4, "evicted", "ResponseReplay 300"),
            (6, 5, "shortened", "SessionEndpoint 454"),
            (6, 5, "evicted", "LongAnchor 324"),
        ]
        assert engine.held == {6: [("ResponseReplay", 432, "d0", "d1-6 d0"), ("SessionEndpoint", 454, "d1", "d1-8")]}


@pytest.mark.req("VAL-4", "VAL-7")
def test_two_sessions_take_turns_with_two_slots(talk: Callable[..., Talk]) -> None:
    """Each has its first turn's place, 168, and the third image is who runs: its end goes when the other comes, who
    goes on from 168. Nothing that the second turn would leave is worth a place at 168: not 192 or 300 behind one's own
    168. In the third turn 432 is, 1092 ms behind 168: it takes the other's 168, who must start at root then."""
    with talk("keeping", device_state_slots=2) as engine:
        first, second = Chat(engine, session="first"), Chat(engine, "T" * 50, session="second")
        for chat in (first, second):
            chat.ask(A)
        kept = ["LongAnchor 60 captured", "SharedStablePrefix 60 promoted", "ResponseReplay 168 captured"]
        assert first.steps() == [(*FIRST[:4], kept)] and second.steps() == [FIRST]
        assert engine.losses.told() == [
            (2, 1, "shortened", "SessionEndpoint 190"),
            (2, 1, "shortened", "LongAnchor 60"),
            (2, 2, "evicted", "SharedStablePrefix 60"),
        ]
        for chat in (first, second):
            chat.ask(B)
            places = [*NOTHING, "LongAnchor 168 present", "LongAnchor 192 skipped", "ResponseReplay 300 skipped"]
            assert chat.steps() == [(313, "ResponseReplay", 168, "fork", places)]
        assert engine.losses.told() == [
            (3, 3, "shortened", "SessionEndpoint 190"),
            (4, 4, "shortened", "SessionEndpoint 322"),
        ]
        assert engine.held == {
            4: [("LongAnchor", 168, "d2", "d2-3 d1")],
            5: [("LongAnchor", 168, "d1", "d4-5 d0"), ("SessionEndpoint", 322, "d0", "d4-9")],
        }
        first.ask(C)
        skipped = ["LongAnchor 192 300 324 skipped", "ResponseReplay 432 captured"]
        places = ["SharedStablePrefix 60 skipped", "LongAnchor 168 present", *skipped]
        assert first.steps() == [(445, "LongAnchor", 168, "fork", places)]
        second.ask(C)
        places = [
            "SharedStablePrefix 60 skipped",
            "LongAnchor 168 192 300 skipped",
            "LongAnchor 324 captured",
            "ResponseReplay 432 skipped",
        ]
        assert second.steps() == [(445, "Root", 0, "none", places)]
        assert engine.losses.told() == [
            (5, 5, "shortened", "SessionEndpoint 322"),
            (5, 5, "evicted", "LongAnchor 168"),
            (6, 6, "shortened", "SessionEndpoint 454"),
            (6, 6, "shortened", "LongAnchor 168"),
        ]
        assert engine.held == {
            6: [("ResponseReplay", 432, "d1", "d2-3 d6 d4-5 d7 d0")],
            7: [("LongAnchor", 324, "d2", "d8-12 d1"), ("SessionEndpoint", 454, "d0", "d8-15")],
        }


@pytest.mark.req("OPT-2", "DEF-4", "CAP-6")
def test_no_host_tier_and_no_slot(talk: Callable[..., Talk]) -> None:
    """One image in all: the conversation's end stays in it, and goes on in it. A reply generated again has nothing to
    start from: the end was behind it."""
    with talk("keeping", device_state_slots=0) as engine:
        chat = Chat(engine)
        chat.ask(A)
        chat.ask(B)
        assert engine.held == {2: [("SessionEndpoint", 322, "d0", "d0-5")]} and engine.losses.told() == []
        chat.again("zz")
        assert chat.steps() == [
            (*FIRST[:4], [*NOTHING, "ResponseReplay 168 skipped"]),
            (
                313,
                "SessionEndpoint",
                190,
                "move",
                [*NOTHING, "LongAnchor 168 190 192 skipped", "ResponseReplay 300 skipped"],
            ),
            (313, "Root", 0, "none", [*NOTHING, "LongAnchor 168 192 skipped", "ResponseReplay 300 skipped"]),
        ]
        assert engine.losses.told() == [(3, 2, "evicted", "SessionEndpoint 322")]
        assert engine.held == {3: [("SessionEndpoint", 322, "d0", "d0-5")]}
