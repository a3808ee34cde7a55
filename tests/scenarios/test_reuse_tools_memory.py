"""What is reused in thinking tool loops when images or cells are few, and by eight of them: tables worked out by hand.

Places are those of test_reuse_tools: 959 the tools, 1014 the system message, 1122 the question and the loop's start;
calls end at 1197 and 1320, the results begin at 1199 and 1322, the next openers at 1245 and 1368.

Many lanes are left to test_reuse_lanes: calls are put into the model's mouth, which takes one row at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.loop import Loop
from tests.scenarios.test_reuse_tools import FIRST, FORKED, SECOND, TOOLS
from tests.support.talk import Talk

NOTHING = ["SharedStablePrefix 959 skipped", "LongAnchor 1014 skipped", "SharedStablePrefix 1014 skipped"]
LATER = "SharedStablePrefix 959 1014 skipped"
"""With four anchors at most, 1014 is not asked for any more."""


@pytest.mark.req("CAN-7", "CAN-8", "INV-15")
def test_one_slot_holds_where_the_loop_began(talk: Callable[..., Talk]) -> None:
    """Two images: the steps go on by Move in one of them, the other is the TurnClosure, where the next question starts;
    its own takes that place."""
    with talk(device_state_slots=1) as engine:
        loop = Loop(engine)
        loop.call("1", "1")
        loop.call("2", "2")
        loop.answer()
        began = "TurnClosure 1122 present"
        assert loop.steps() == [
            (*FIRST[:4], [*NOTHING, "TurnClosure 1122 captured"]),
            (*SECOND[:4], [*NOTHING, began, "LongAnchor 1197 1199 skipped", "ResponseReplay 1245 skipped"]),
            (
                1381,
                "SessionEndpoint",
                1320,
                "move",
                [LATER, began, "LongAnchor 1199 1245 1320 1322 skipped", "ResponseReplay 1368 skipped"],
            ),
        ]
        # Two passes of 512 tokens have filled 16 pages when there is one for the copy of that in which 1122 lies, the
        # 18th. The loop's own are the others: it ends at 1381 + 9, in the 22nd.
        kept = [("TurnClosure", 1122, "d1", "d0-15 d17 d16"), ("SessionEndpoint", 1390, "d0", "d0-15 d17-22")]
        assert engine.held == {3: kept}
        loop.ask("b" * 100)
        places = [LATER, "LongAnchor 1238 1308 1354 1371 skipped", "TurnClosure 1479 captured"]
        assert loop.steps() == [(1492, "TurnClosure", 1122, "fork", places)]
        kept = [("TurnClosure", 1479, "d0", "d0-15 d17-23 d16"), ("SessionEndpoint", 1501, "d1", "d0-15 d17-24")]
        assert engine.held == {4: kept} and engine.losses.told() == []


@pytest.mark.req("VAL-4", "VAL-7", "EVI-6")
def test_two_loops_take_turns_with_one_slot(talk: Callable[..., Talk]) -> None:
    """As with a template that keeps reasoning (test_reuse_memory_keeping): each run finds nothing of its own. Reading
    1122 tokens costs 4370 ms, 1197 4676, 1199 4684, 1258 4927, 1122 to 1258 685; a session's checkpoint counts 16
    times.
    """
    with talk(device_state_slots=1) as engine:
        first, second = Loop(engine, session="first"), Loop(engine, system="T", session="second")
        first.call("1", "1")
        assert first.steps() == [(*FIRST[:4], [*NOTHING, "TurnClosure 1122 captured"])]
        second.call("1", "1")
        assert second.steps() == [(*FIRST[:4], [*NOTHING, "TurnClosure 1122 skipped"])]
        assert engine.losses.told() == [(2, 1, "shortened", "SessionEndpoint 1197")]
        # From 1122 it would have to take the other's end, 16 * (4676 - 4370) ms dearer than its own 1122, and read
        # 4927 - 685 ms less: that is not enough.
        first.call("2", "2")
        places = [*NOTHING, "TurnClosure 1122 skipped", "LongAnchor 1199 captured", "ResponseReplay 1245 skipped"]
        assert first.steps() == [(1258, "Root", 0, "none", places)]
        assert engine.losses.told() == [
            (3, 1, "evicted", "TurnClosure 1122"),
            (3, 2, "evicted", "SessionEndpoint 1197"),
        ]


@pytest.mark.req("CAN-7", "KV-5", "TGT-4", "ID-3")
def test_main_memory_alone(talk: Callable[..., Talk]) -> None:
    """The end of the loop that waits goes to main memory, and comes back for its next step."""
    with talk(device_state_slots=0, host_state_slots=40, host_kv_capacity_bytes=1 << 22) as engine:
        first, second = Loop(engine, session="first"), Loop(engine, session="second", question="e")
        first.call("1", "1")
        second.call("1", "1")
        behind = (1135, "SharedStablePrefix", 1014, "restore", [*FORKED[:3], "TurnClosure 1122 captured"])
        assert first.steps() == [FIRST] and second.steps() == [behind]
        assert engine.losses.told() == [(2, 1, "to mixed", "SessionEndpoint 1197")]
        first.call("2", "2")
        second.call("2", "2")
        assert first.steps() == second.steps() == [(*SECOND[:3], "restore", SECOND[4])]
        assert [(request, what, which) for request, _, what, which in engine.losses.told()] == [
            (3, "to mixed", "SessionEndpoint 1197"),
            (4, "to mixed", "SessionEndpoint 1320"),
        ]


@pytest.mark.req("OPT-2", "DEF-4", "CAP-6")
def test_no_host_tier_and_no_slot(talk: Callable[..., Talk]) -> None:
    """One image in all: the loop goes on in it, and a new question, which leaves its path, starts from nothing."""
    with talk(device_state_slots=0) as engine:
        loop = Loop(engine)
        loop.call("1", "1")
        loop.answer()
        loop.ask("b" * 100)
        assert [step[:4] for step in loop.steps()] == [
            (1135, "Root", 0, "none"),
            (1258, "SessionEndpoint", 1197, "move"),
            (
                1258 - 13 - 7 + 17 + 108 + 13,
                "Root",
                0,
                "none",
            ),  # the call 7 shorter, the answer in history, the question
        ]
        assert engine.losses.told() == [(3, 2, "evicted", "SessionEndpoint 1267")]


@pytest.mark.req("CAN-3", "EVI-1", "CAP-4")
def test_eight_loops_under_the_same_instructions(talk: Callable[..., Talk]) -> None:
    """The first publishes tools and system message, the others start from the latter; each goes on from its own end."""
    with talk() as engine:
        loops = [Loop(engine, session=letter, question=letter) for letter in "aebcdfgh"]
        for loop in loops:
            loop.call("1", "1")
        assert loops[0].steps() == [FIRST]
        for loop in loops[1:]:
            assert loop.steps() == [
                (1135, "SharedStablePrefix", 1014, "fork", [*FORKED[:3], "TurnClosure 1122 captured"]),
            ]
        # The tools, the system message; and of each loop 1122 and its end, at 1197.
        assert engine.program.world.used().device_images == 2 + 8 * 2 and engine.losses.told() == []
        for loop in (loops[7], loops[0]):
            loop.call("2", "2")
            assert loop.steps() == [SECOND]
        # And of these two an anchor at 1197, 1199 and 1245.
        assert engine.program.world.used().device_images == 2 + 8 * 2 + 2 * 3 and engine.losses.told() == []


@pytest.mark.req("EVI-3", "EVI-4", "EVI-6")
def test_a_catalog_full_of_automatic_entries_takes_a_new_one(talk: Callable[..., Talk]) -> None:
    """Two cells: the first loop's tools and system message. Another system message takes the place of the latter: the
    tools are what it extends. Who comes with the old one finds it as the first loop's anchor."""
    with talk(max_shared_prefixes=2) as engine:
        first, second = Loop(engine, session="first"), Loop(engine, system="T", session="second")
        first.call("1", "1")
        second.call("1", "1")
        assert first.steps() == [FIRST]
        assert second.steps() == [(1135, "SharedStablePrefix", 959, "fork", [TOOLS, *FIRST[4][1:]])]
        assert engine.losses.told() == [(0, 3, "evicted", "SharedStablePrefix 1014")]
        third = Loop(engine, session="third", question="e")
        third.call("1", "1")
        lacking = [TOOLS, "SharedStablePrefix 1014 skipped", "LongAnchor 1014 aliased", "TurnClosure 1122 captured"]
        assert third.steps() == [(1135, "LongAnchor", 1014, "fork", lacking)]
        assert engine.losses.told() == []
