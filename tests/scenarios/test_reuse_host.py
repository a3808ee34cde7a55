"""What is reused when checkpoints have main memory only, down to images and pages: tables worked out by hand.

The device has one image, the running one's: a checkpoint's is a snapshot in main memory, and the pass ends at each
place where one is taken. Pages stay on the device, which has room for them. Places are those of
test_reuse_conversations and test_reuse_keeping. Pages get the lowest free number: of a first turn 0, its copy for the
anchor at 60, two more, their last's copy for 168.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.chat import A, B, C, Chat, Step
from tests.support.talk import Talk

MAIN = {"device_state_slots": 0, "host_state_slots": 40, "host_kv_capacity_bytes": 1 << 22}
SYSTEM = ["LongAnchor 60 present", "SharedStablePrefix 60 present"]
BEHIND = ["LongAnchor 60 aliased", "SharedStablePrefix 60 present"]
KEPT = ("LongAnchor", 60, "h1", "d1")
PUBLIC = [("SharedStablePrefix", 60, "h1", "d1")]


@pytest.mark.req("CAN-7", "KV-5", "TXN-5", "VAL-9")
def test_main_memory_alone(talk: Callable[..., Talk]) -> None:
    """The one image is the last run's end, which no history shows: it goes for the next run. Since that image is taken,
    a branch cannot run beside its conversation: it takes over what lies below its source ("present")."""
    with talk(**MAIN) as engine:
        first, second = Chat(engine, session="first"), Chat(engine, session="second")
        first.ask(A)
        begin = ["LongAnchor 60 captured", "SharedStablePrefix 60 promoted", "TurnClosure 168 captured"]
        assert first.steps() == [(181, "Root", 0, "none", begin)]
        assert engine.held == {
            1: [KEPT, ("TurnClosure", 168, "h2", "d0 d2 d4"), ("SessionEndpoint", 190, "d0", "d0 d2-3")],
            2: PUBLIC,
        }
        first.ask(B)
        on = [*SYSTEM, "LongAnchor 168 present", "LongAnchor 183 captured", "TurnClosure 291 captured"]
        turn: Step = (304, "TurnClosure", 168, "restore", on)
        assert first.steps() == [turn] and engine.losses.told() == []
        points = [
            KEPT,
            ("LongAnchor", 168, "h2", "d0 d2 d4"),
            ("LongAnchor", 183, "h3", "d0 d2 d5"),
            ("TurnClosure", 291, "h4", "d0 d2-3 d6 d8"),
        ]
        assert engine.held == {2: PUBLIC, 3: [*points, ("SessionEndpoint", 313, "d0", "d0 d2-3 d6-7")]}
        second.ask(C)
        assert second.steps() == [
            (181, "SharedStablePrefix", 60, "restore", [*BEHIND, "TurnClosure 168 captured"]),
        ]
        assert engine.losses.told() == [(3, 3, "shortened", "SessionEndpoint 313")]
        second.ask(B)
        assert second.steps() == [turn] and engine.losses.told() == []
        assert second.done.statistics.transfer.bytes > 0
        others = [
            KEPT,
            ("LongAnchor", 168, "h5", "d7 d9 d11"),
            ("LongAnchor", 183, "h6", "d7 d9 d12"),
            ("TurnClosure", 291, "h7", "d7 d9-10 d13 d15"),
        ]
        end = ("SessionEndpoint", 313, "d0", "d7 d9-10 d13-14")
        assert engine.held == {2: PUBLIC, 3: points, 5: [*others, end]}
        first.again("zz")
        first.edit(1, "e" * 100)
        assert first.steps() == [
            (304, "TurnClosure", 291, "restore", [*SYSTEM, "LongAnchor 168 183 present", "TurnClosure 291 present"]),
            (304, "LongAnchor", 183, "restore", [*SYSTEM, "LongAnchor 168 183 present", "TurnClosure 291 captured"]),
        ]
        assert engine.losses.told() == [(5, 5, "shortened", "SessionEndpoint 313")]
        edited = [("TurnClosure", 291, "h4", "d0 d2-3 d6 d14"), ("SessionEndpoint", 313, "d0", "d0 d2-3 d6 d8")]
        assert engine.held == {2: PUBLIC, 5: others, 7: [*points[:3], *edited]}


@pytest.mark.req("CAN-7", "KV-5", "TGT-4", "ID-3")
def test_main_memory_alone_with_ends_that_go_on(talk: Callable[..., Talk]) -> None:
    """An end that can be gone on from is worth its copy: when another conversation runs it goes to main memory, its
    pages stay. Only the one that runs next in the same conversation goes on by Move."""
    with talk("keeping", **MAIN) as engine:
        first, second = Chat(engine, session="first"), Chat(engine, session="second")
        first.ask(A)
        first.ask(B)
        begin = ["LongAnchor 60 captured", "SharedStablePrefix 60 promoted", "ResponseReplay 168 captured"]
        on = [*SYSTEM, "LongAnchor 168 present", "LongAnchor 190 192 captured", "ResponseReplay 300 captured"]
        turn: Step = (313, "SessionEndpoint", 190, "move", on)
        assert first.steps() == [(181, "Root", 0, "none", begin), turn] and engine.losses.told() == []
        points = [
            KEPT,
            ("LongAnchor", 168, "h2", "d0 d2 d4"),
            ("LongAnchor", 190, "h3", "d0 d2 d5"),
            ("LongAnchor", 192, "h4", "d0 d2-3"),  # 192 is three pages: nothing to copy
            ("ResponseReplay", 300, "h5", "d0 d2-3 d6 d8"),
        ]
        assert engine.held == {2: PUBLIC, 3: [*points, ("SessionEndpoint", 322, "d0", "d0 d2-3 d6-7 d9")]}
        second.ask(C)
        assert second.steps() == [
            (181, "SharedStablePrefix", 60, "restore", [*BEHIND, "ResponseReplay 168 captured"]),
        ]
        assert engine.losses.told() == [(3, 3, "to mixed", "SessionEndpoint 322")]
        assert engine.held[3] == [*points, ("SessionEndpoint", 322, "h0", "d0 d2-3 d6-7 d9")]
        second.ask(B)
        assert second.steps() == [turn] and engine.losses.told() == []
        # The first conversation again: the other's end leaves the image, and its own comes back from main memory.
        first.ask("d" * 10)
        back = [*SYSTEM, "LongAnchor 168 192 300 present", "LongAnchor 322 324 captured", "ResponseReplay 342 captured"]
        assert first.steps() == [(355, "SessionEndpoint", 322, "restore", back)]
        assert engine.losses.told() == [(5, 5, "to mixed", "SessionEndpoint 322")]
        first.again("zz")
        first.edit(1, "e" * 10)
        same = [*SYSTEM, "LongAnchor 168 192 300 324 present"]
        assert first.steps() == [
            (355, "ResponseReplay", 342, "restore", [*same, "ResponseReplay 342 present"]),
            (355, "LongAnchor", 324, "restore", [*same, "ResponseReplay 342 captured"]),
        ]
        assert engine.losses.told() == []
