"""What is reused when eight sessions ask at the same time, in one lane and in eight: tables worked out by hand.

Places are those of test_reuse_conversations and test_reuse_keeping. The replies are the model's own, six letters, the
last of which is never executed; they must be those of a model that answers each alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ninfer_core import CacheIntent, GenerationRequest, Message, SamplingParams
from ninfer_core.contract.prompt import PreparedPrompt
from tests.support.held import Held
from tests.support.talk import Talk, accounts_for, line, told

B = "b" * 100
LETTERS = SamplingParams(temperature=0, logit_bias=dict.fromkeys(range(97, 123), 1e3))
"""The model's own choice, among letters."""

Reply = tuple[str, int, str, list[str]]
"""(source, frontier, operation, captures)."""


def together(engine: Talk, prompts: Sequence[PreparedPrompt]) -> tuple[list[Reply], list[str]]:
    """All are in the queue before the first begins: (what each did, what it said)."""
    asked = [
        GenerationRequest(prompt, LETTERS, 6, cache=CacheIntent(session=f"s{i}")) for i, prompt in enumerate(prompts)
    ]
    handles = engine.engine._worker.call(lambda: [engine.engine.submit(request) for request in asked])
    done = [handle.result(60) for handle in handles]
    engine.engine._worker.call(engine.manager.audit)
    for request, reply in zip(asked, done, strict=True):
        accounts_for(reply, request.prompt)
        engine.cold.puppet.say(())
        alone = engine.cold.engine.submit(request).result(60)
        assert reply.token_ids == alone.token_ids and len(reply.token_ids) == 6
    return [(*line(reply), told(reply)) for reply in done], [bytes(reply.token_ids).decode() for reply in done]


def conversations(talk: Talk, lanes: int, thinking: bool | None) -> tuple[list[Reply], list[Reply]]:
    """Two turns of eight sessions under one system prompt."""
    talks = [[Message("system", "S" * 50), Message("user", f"{i}" * 100)] for i in range(8)]
    first, said = together(talk, [talk.engine.prepare(messages, thinking=thinking) for messages in talks])
    assert talk.held == firsts_held(lanes, *(("TurnClosure", 186) if thinking is None else ("ResponseReplay", 190)))
    for messages, text in zip(talks, said, strict=True):
        messages += [Message("assistant", text), Message("user", B)]
    second, _ = together(talk, [talk.engine.prepare(messages, thinking=thinking) for messages in talks])
    assert len(list(talk.manager.books.shared)) == 1 and talk.losses.told() == []
    return first, second


def firsts(lanes: int, kind: str) -> list[Reply]:
    """One lane: the second finds what the first has published. Eight lanes: all begin before anything is published, and
    each has its own anchor; the prefix is published once, by the first of them."""
    mine = f"{kind} 168 captured"
    publisher = ("Root", 0, "none", ["LongAnchor 60 captured", "SharedStablePrefix 60 promoted", mine])
    beside = ("Root", 0, "none", ["LongAnchor 60 captured", "SharedStablePrefix 60 present", mine])
    behind = ("SharedStablePrefix", 60, "fork", ["LongAnchor 60 aliased", "SharedStablePrefix 60 present", mine])
    return [publisher, *[beside if lanes == 8 else behind] * 7]


ONE = (
    ("d0", "d2-4", "d2", "d2-3 d1"),
    ("d3", "d5 d7-8", "d4", "d5 d7 d6"),
    ("d5", "d9 d11-12", "d6", "d9 d11 d10"),
    ("d7", "d13 d15-16", "d8", "d13 d15 d14"),
    ("d9", "d17 d19-20", "d10", "d17 d19 d18"),
    ("d11", "d21 d23-24", "d12", "d21 d23 d22"),
    ("d13", "d25 d27-28", "d14", "d25 d27 d26"),
    ("d15", "d29 d31-32", "d16", "d29 d31 d30"),
)
"""Image and pages of each session's end and turn after the first turns in one lane. The first has an image and a page
for the anchor at 60, too: 1 and 0. The others start from that: an image for the run and one for the turn, and four
pages: a copy of the anchor's to write in, one of the turn's last, and two more of their own."""

EIGHT = (
    ("d0", "d2-4", "d9", "d2-3 d1", "d8", "d0"),
    ("d1", "d7-9", "d11", "d7-8 d6", "d10", "d5"),
    ("d2", "d12-14", "d13", "d12-13 d11", "d12", "d10"),
    ("d3", "d17-19", "d15", "d17-18 d16", "d14", "d15"),
    ("d4", "d22-24", "d17", "d22-23 d21", "d16", "d20"),
    ("d5", "d27-29", "d19", "d27-28 d26", "d18", "d25"),
    ("d6", "d32-34", "d21", "d32-33 d31", "d20", "d30"),
    ("d7", "d37-39", "d23", "d37-38 d36", "d22", "d35"),
)
"""The same in eight lanes, and then of each one's own anchor. The runs have the first eight images; then come, session
by session, the anchor's and the turn's. Of pages each takes five: a copy for the anchor, one for the turn, three
more."""


def firsts_held(lanes: int, kind: str, end: int) -> Held:
    """The prefix is the first one's anchor once more. It is published when that has been read: in one lane before the
    others begin, in eight after that, so that its number is 2 or 9."""
    held: Held = {}
    rows = [(*row, "d1", "d0") for row in ONE] if lanes == 1 else EIGHT
    for owner, (run, its, turn, places, anchor, page) in enumerate(rows, 1):
        number = owner + 1 if lanes == 1 and owner > 1 else owner
        held[number] = [
            ("LongAnchor", 60, anchor, page),
            (kind, 168, turn, places),
            ("SessionEndpoint", end, run, its),
        ]
    held[2 if lanes == 1 else 9] = [("SharedStablePrefix", *held[1][0][1:])]
    return held


@pytest.mark.req("ST-1", "CAN-9", "DEF-3")
@pytest.mark.parametrize("lanes", [1, 8])
def test_eight_sessions_at_once(talk: Callable[..., Talk], lanes: int) -> None:
    """Each goes on from its own turn. The six letters are cut reasoning when they are said, and the reply in history:
    the second message starts at 168 + 13 + 6 = 187."""
    with talk(lanes=lanes, device_state_slots=64) as engine:
        first, second = conversations(engine, lanes, thinking=None)
        assert first == firsts(lanes, "TurnClosure")
        places = ["LongAnchor 168 aliased", "LongAnchor 187 captured", "TurnClosure 295 captured"]
        system = ["LongAnchor 60 aliased", "SharedStablePrefix 60 present"]
        assert second == [("TurnClosure", 168, "fork", [*system, *places])] * 8


@pytest.mark.req("ST-1", "CAN-9", "DEF-3", "CAN-7")
@pytest.mark.parametrize("lanes", [1, 8])
def test_eight_sessions_that_keep_what_was_said(talk: Callable[..., Talk], lanes: int) -> None:
    """Each goes on from its own end, at 168 + 17 + 5 = 190. In history the reply has 17 + 6 + 2 tokens: the second
    message starts at 193 and ends at 301."""
    with talk("keeping", lanes=lanes, device_state_slots=64) as engine:
        first, second = conversations(engine, lanes, thinking=False)
        assert first == firsts(lanes, "ResponseReplay")
        system = ["LongAnchor 60 present", "SharedStablePrefix 60 present"]
        places = ["LongAnchor 168 present", "LongAnchor 190 193 captured", "ResponseReplay 301 captured"]
        assert second == [("SessionEndpoint", 190, "move", [*system, *places])] * 8


@pytest.mark.req("ST-1", "CAN-6", "DEF-4")
@pytest.mark.parametrize("lanes", [1, 8])
def test_eight_raw_prompts_at_once(talk: Callable[..., Talk], lanes: int) -> None:
    """100 letters and five executed ones: each goes on at 105, and leaves an anchor there."""
    with talk(lanes=lanes, device_state_slots=64) as engine:
        texts = [f"{i}" * 100 for i in range(8)]
        first, said = together(engine, [engine.engine.prepare_text(text) for text in texts])
        assert first == [("Root", 0, "none", [])] * 8
        on = [engine.engine.prepare_text(text + reply + "z" * 10) for text, reply in zip(texts, said, strict=True)]
        second, _ = together(engine, on)
        assert second == [("SessionEndpoint", 105, "move", ["LongAnchor 105 captured"])] * 8
