"""What is reused of raw prompts, which have no messages: tables worked out by hand. A token is a byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ninfer_core import CacheIntent
from tests.support.talk import Talk, captures, line


@pytest.mark.req("CAN-6", "DEF-4")
def test_a_raw_prompt_goes_on_from_its_end(talk: Callable[..., Talk]) -> None:
    with talk() as engine:
        prepare = engine.engine.prepare_text
        rows = []
        for text in ("abcdefghij", "abcdefghijok and so on", "abcdefghijok and so onok then", "abcdefghijXX"):
            done = engine.say(prepare(text), "ok")
            rows.append((len(text), *line(done)))
            assert captures(done) == ([] if rows[-1][2] == 0 else [("LongAnchor", rows[-1][2], "captured")])
        # Of two drawn tokens the last is never executed; the fourth leaves the path of all that went on by Move,
        # and finds the anchors where the ends were: none of them before its 10th token.
        assert rows == [
            (10, "Root", 0, "none"),
            (22, "SessionEndpoint", 11, "move"),
            (29, "SessionEndpoint", 23, "move"),
            (12, "Root", 0, "none"),
        ]


@pytest.mark.req("CAN-6", "STAT-2", "DEF-5", "DEF-6", "EVI-1")
def test_the_same_raw_prompt_twice(talk: Callable[..., Talk]) -> None:
    """By default it is read again; with an anchor at its end only its last token is."""
    text = "x" * 600
    with talk() as engine:
        prompt = engine.engine.prepare_text(text)
        for _ in range(2):
            done = engine.say(prompt, "ok")
            assert line(done) == ("Root", 0, "none")
        assert done.statistics.reuse.misses[0].reason.value == "no_checkpoint"
    with talk() as engine:
        rows = []
        for _ in range(3):
            done = engine.say(prompt, "ok", CacheIntent(anchor_prompt_end=True))
            rows.append((*line(done), done.statistics.usage.prefill_tokens))
        # The second asker is the second reuse domain with this prompt: it is published whole, final row included.
        assert rows == [
            ("Root", 0, "none", 600),
            ("LongAnchor", 599, "fork", 1),
            ("SharedStablePrefix", 600, "fork", 0),
        ]
        on = engine.engine.prepare_text(text + "ok and on")
        assert line(engine.say(on, "ok", CacheIntent(anchor_prompt_end=True))) == ("SessionEndpoint", 601, "move")
