"""The demo model's own words when memory is short, and when eight sessions ask at once. Lengths are those of
test_reuse_demo: a first turn ends at 32 + 22 = 54 with BELA and 31 + 21 = 52 with MIRA, the second at 69 + 7 and 67 +
7, and no history shows these ends. A page holds 64 tokens.
"""

from __future__ import annotations

import pytest

from tests.scenarios.person import BELA, MIRA, NAME, PLACE, Alone, Person, demo


@pytest.mark.req("VAL-4", "EVI-6", "CAN-8")
def test_two_sessions_take_turns_with_one_slot(cold: Alone) -> None:
    """Two images. The first session's turn is worth a little more, and stays; the second reads again."""
    with demo(cold, device_state_slots=1) as engine:
        first, second = Person(engine, "first"), Person(engine, "second")
        first.asks(BELA)
        second.asks(MIRA)
        assert engine.losses.told() == [(2, 1, "shortened", "SessionEndpoint 54")]
        assert engine.held == {
            1: [("TurnClosure", 23, "d1", "d0")],
            2: [("SessionEndpoint", 52, "d0", "d1")],
        }
        assert first.asks(NAME) == "Your name is Bela."
        assert second.asks(NAME) == "Your name is Mira."
        assert first.steps() == [
            (32, "Root", 0, "none", ["TurnClosure 23 captured"]),
            (
                69,
                "TurnClosure",
                23,
                "fork",
                ["LongAnchor 23 present", "LongAnchor 50 skipped", "TurnClosure 60 captured"],
            ),
        ]
        assert second.steps() == [
            (31, "Root", 0, "none", ["TurnClosure 22 skipped"]),
            (67, "Root", 0, "none", ["LongAnchor 22 48 skipped", "TurnClosure 58 skipped"]),
        ]
        assert engine.losses.told() == [
            (3, 2, "evicted", "SessionEndpoint 52"),
            (4, 3, "shortened", "SessionEndpoint 76"),
        ]


@pytest.mark.req("EVI-3", "EVI-2", "EVI-6")
def test_a_catalog_full_of_automatic_entries_takes_a_new_one(cold: Alone) -> None:
    """Two cells and three system messages, of 24, 21 and 16 tokens. The third takes the place of the second, which was
    not used since; the second is found as its first session's anchor then."""
    with demo(cold, max_shared_prefixes=2) as engine:
        upper, german, rex = "Answer in upper case.", "Answer in German.", "Your name is Rex."
        for i, (system, text, length, start, places) in enumerate(
            (
                (upper, "Spell cat.", 46, "Root 0", "24 captured, 24 promoted, 37"),
                (german, "Spell cat.", 43, "Root 0", "21 captured, 21 promoted, 34"),
                (upper, "What is 2 plus 3?", 49, "SharedStablePrefix 24", "24 aliased, 24 present, 40"),
                (rex, "Spell cat.", 38, "Root 0", "16 captured, 16 promoted, 29"),
                (rex, "What is 2 plus 3?", 41, "SharedStablePrefix 16", "16 aliased, 16 present, 32"),
            ),
            1,
        ):
            person = Person(engine, f"s{i}", system)
            person.asks(text)
            [(prompt, source, frontier, _, made)] = person.steps()
            anchor, shared, turn = places.split(", ")
            assert (prompt, f"{source} {frontier}") == (length, start)
            assert made == [f"LongAnchor {anchor}", f"SharedStablePrefix {shared}", f"TurnClosure {turn} captured"]
            assert engine.losses.told() == ([(0, 4, "evicted", "SharedStablePrefix 21")] if i == 4 else [])
        last = Person(engine, "s6", german)
        last.asks("What is 2 plus 3?")
        lacking = ["SharedStablePrefix 21 skipped", "LongAnchor 21 aliased", "TurnClosure 37 captured"]
        assert last.steps() == [(46, "LongAnchor", 21, "fork", lacking)] and engine.losses.told() == []


@pytest.mark.req("CAN-7", "KV-5", "TXN-5")
def test_main_memory_alone(cold: Alone) -> None:
    """Every checkpoint's image is in main memory; the one on the device is the last run's."""
    with demo(cold, device_state_slots=0, host_state_slots=40, host_kv_capacity_bytes=1 << 22) as engine:
        first, second = Person(engine, "first"), Person(engine, "second")
        first.asks(BELA)
        second.asks(MIRA)
        assert engine.held == {
            1: [("TurnClosure", 23, "h1", "d1")],
            2: [("TurnClosure", 22, "h2", "d2"), ("SessionEndpoint", 52, "d0", "d0")],
        }
        assert first.asks(NAME) == "Your name is Bela."
        assert second.asks(NAME) == "Your name is Mira."
        assert first.instead(1, NAME) == "Your name is Bela."
        assert first.steps() == [
            (32, "Root", 0, "none", ["TurnClosure 23 captured"]),
            (
                69,
                "TurnClosure",
                23,
                "restore",
                ["LongAnchor 23 present", "LongAnchor 50 captured", "TurnClosure 60 captured"],
            ),
            (69, "TurnClosure", 60, "restore", ["LongAnchor 23 50 present", "TurnClosure 60 present"]),
        ]
        turn = ["LongAnchor 22 present", "LongAnchor 48 captured", "TurnClosure 58 captured"]
        assert second.steps() == [
            (31, "Root", 0, "none", ["TurnClosure 22 captured"]),
            (67, "TurnClosure", 22, "restore", turn),
        ]
        assert engine.losses.told() == [
            (2, 1, "shortened", "SessionEndpoint 54"),
            (3, 2, "shortened", "SessionEndpoint 52"),
            (4, 3, "shortened", "SessionEndpoint 76"),
            (5, 4, "shortened", "SessionEndpoint 74"),
        ]


@pytest.mark.req("CAN-8", "TXN-5", "RET-4", "STAT-1")
def test_two_sessions_take_turns_with_one_slot_and_a_host_tier(cold: Alone) -> None:
    """The first session's first turn has the slot. Everything later lies in main memory and is copied in."""
    with demo(cold, device_state_slots=1, host_state_slots=16, host_kv_capacity_bytes=1 << 22) as engine:
        first, second = Person(engine, "first"), Person(engine, "second")
        said = [
            person.asks(text)
            for person, text in (
                (first, BELA),
                (second, MIRA),
                (first, NAME),
                (second, NAME),
                (first, PLACE),
                (second, PLACE),
            )
        ]
        assert said[2:] == ["Your name is Bela.", "Your name is Mira.", "You live in Torvik.", "You live in Arvo."]
        assert [step[1:] for step in first.steps()] == [
            ("Root", 0, "none", ["TurnClosure 23 captured"]),
            (
                "TurnClosure",
                23,
                "fork",
                ["LongAnchor 23 present", "LongAnchor 50 captured", "TurnClosure 60 captured"],
            ),
            (
                "TurnClosure",
                60,
                "restore",
                ["LongAnchor 23 50 60 present", "LongAnchor 72 captured", "TurnClosure 85 captured"],
            ),
        ]
        assert [step[1:] for step in second.steps()] == [
            ("Root", 0, "none", ["TurnClosure 22 captured"]),
            (
                "TurnClosure",
                22,
                "restore",
                ["LongAnchor 22 present", "LongAnchor 48 captured", "TurnClosure 58 captured"],
            ),
            (
                "TurnClosure",
                58,
                "restore",
                ["LongAnchor 22 48 58 present", "LongAnchor 70 captured", "TurnClosure 83 captured"],
            ),
        ]


@pytest.mark.req("OPT-2", "CAP-6")
def test_no_host_tier_and_no_slot(cold: Alone) -> None:
    """One image in all: it is wanted by whoever runs."""
    with demo(cold, device_state_slots=0) as engine:
        person = Person(engine)
        person.asks(BELA)
        assert person.asks(NAME) == "Your name is Bela."
        assert person.steps() == [
            (32, "Root", 0, "none", ["TurnClosure 23 skipped"]),
            (69, "Root", 0, "none", ["LongAnchor 23 50 skipped", "TurnClosure 60 skipped"]),
        ]
        assert engine.losses.told() == [(2, 1, "evicted", "SessionEndpoint 54")]


@pytest.mark.req("ST-1", "CAN-9", "DEF-3")
@pytest.mark.parametrize("lanes", [1, 8])
def test_eight_sessions_at_once(cold: Alone, lanes: int) -> None:
    """Under one system message of 16 tokens: eight questions, whose openers and whose replies' ends in history lie
    where the table says, and then NAME of all. In one lane the second finds what the first has published; in eight all
    begin before that, and the first publishes it."""
    questions = (
        "How old am I?",
        "I am Kasper.",
        NAME,
        PLACE,
        "Spell cat.",
        "Who are you?",
        "What is 2 plus 3?",
        "Thank you.",
    )
    openers = (28, 29, 26, 29, 29, 26, 32, 27)
    ends = (45, 46, 39, 46, 39, 37, 47, 40)
    with demo(cold, lanes) as engine:
        people = [Person(engine, f"s{i}", "Your name is Rex.") for i in range(8)]
        for texts in (questions, (NAME,) * 8):
            prompts = [person.asking(text) for person, text in zip(people, texts, strict=True)]
            done = engine.say(prompts, [person.session for person in people])
            for person, prompt, reply in zip(people, prompts, done, strict=True):
                person.hears(prompt, reply)
        root = ("Root", 0, "none", ["LongAnchor 16 captured", "SharedStablePrefix 16 present"])
        behind = ("SharedStablePrefix", 16, "fork", ["LongAnchor 16 aliased", "SharedStablePrefix 16 present"])
        publisher = ("Root", 0, "none", ["LongAnchor 16 captured", "SharedStablePrefix 16 promoted"])
        starts = [publisher, *[root if lanes == 8 else behind] * 7]
        for person, opener, end, (*start, places) in zip(people, openers, ends, starts, strict=True):
            turn = [f"LongAnchor {opener} aliased", f"LongAnchor {end} captured", f"TurnClosure {end + 10} captured"]
            assert person.steps() == [
                (opener + 9, *start, [*places, f"TurnClosure {opener} captured"]),
                (end + 19, "TurnClosure", opener, "fork", [*behind[3], *turn]),
            ]
        assert engine.losses.told() == []
