"""Why tokens were not reused: every one of them has a reason."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_core.cache.misses import REMEMBERED, Graveyard, Lookup, PassedOver, Tombstone, explain
from ninfer_core.contract.ids import Frontier, RequestId
from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt
from ninfer_core.contract.statistics import MissReason
from ninfer_core.program.identity import Identity, encode

BOUNDS = Boundaries(None, None, (Frontier(30), Frontier(60)), Frontier(60), Frontier(60), (), True)
PROMPT = PreparedPrompt(tuple(range(70)), BOUNDS, OutputStart.ANSWER)
TOMB = Tombstone(40, b"", b"", RequestId(7))


def told(**found: object) -> list[tuple[int, int, str]]:
    known = {"reused": 0, "common": 0, "other_identity": False, "passed_over": None, "tomb": None, **found}
    return [(m.start, m.end, m.reason.value) for m in explain(PROMPT, Lookup(**known))]  # type: ignore[arg-type]


@pytest.mark.req("STAT-2")
def test_each_reason() -> None:
    assert told() == [(0, 70, "diverged")]
    assert told(reused=20, common=20) == [(20, 70, "diverged")]
    assert told(reused=20, common=50) == [(20, 50, "no_checkpoint"), (50, 70, "diverged")]
    assert told(common=50, other_identity=True) == [(0, 50, "identity"), (50, 70, "diverged")]
    assert told(common=50, tomb=TOMB) == [(0, 40, "evicted"), (40, 50, "no_checkpoint"), (50, 70, "diverged")]
    for why in (MissReason.CAPACITY, MissReason.BUDGET):
        passed = PassedOver(30, why, "because")
        found = [(0, 30, why.value), (30, 50, "no_checkpoint"), (50, 70, "diverged")]
        assert told(common=50, passed_over=passed) == found
    assert told(reused=70, common=70) == []


@pytest.mark.req("STAT-2")
def test_the_first_new_token_and_its_message_are_named() -> None:
    def last(common: int) -> str:
        return explain(PROMPT, Lookup(0, common, False, None, None))[-1].detail

    assert [last(at) for at in (0, 29, 30, 59, 60)] == [
        "new from token 0 on, in message 1",
        "new from token 29 on, in message 1",
        "new from token 30 on, in message 2",
        "new from token 59 on, in message 2",
        "new from token 60 on, in the reply's opener",
    ]
    document = PreparedPrompt(tuple(range(70)), Boundaries(None, 30, (30,), 70, 70, (), True), OutputStart.ANSWER)
    assert explain(document, Lookup(0, 60, False, None, None))[-1].detail == "new from token 60 on, in message 2"
    raw = PreparedPrompt((1, 2), None, OutputStart.ANSWER)
    assert explain(raw, Lookup(0, 1, False, None, None))[-1].detail == "new from token 1 on, in the raw prompt"


@pytest.mark.req("STAT-2", "EVI-6")
@settings(deadline=None)
@given(st.integers(0, 70), st.integers(0, 70), st.booleans(), st.integers(0, 70), st.integers(0, 70))
def test_no_token_is_left_out(reused: int, common: int, other: bool, passed: int, buried: int) -> None:
    tomb = Tombstone(buried, b"", b"", RequestId(1)) if buried > reused else None
    over = PassedOver(passed, MissReason.CAPACITY, "because") if passed > reused else None
    found = Lookup(reused, max(common, reused), other, over, tomb)
    at = reused
    for miss in explain(PROMPT, found):
        assert miss.start == at < miss.end and miss.detail
        at = miss.end
    assert at == 70


@pytest.mark.req("STAT-2")
def test_the_deepest_grave_on_the_path() -> None:
    graves, prompt = Graveyard(), Identity.of(range(40), (), (), 40)
    digested = []

    def bury(frontier: int, tail: Sequence[int], key: bytes) -> None:
        graves.bury(Tombstone(frontier, key, encode(tail), RequestId(frontier)))

    def path(frontier: int) -> bytes:
        digested.append(frontier)
        return b"%d" % frontier

    bury(10, range(10), b"10")
    bury(20, range(4, 20), b"other")
    bury(30, range(14, 30), b"30")
    bury(35, range(90, 106), b"35")
    bury(50, range(34, 50), b"50")
    found = graves.deepest(0, prompt, path)
    assert found is not None and (found.frontier, found.request) == (30, 30)
    assert digested == [30], "no other prompt's, and none beyond the prompt"
    assert graves.deepest(10, prompt.until(25), path) is None, "what lies there was another path's"
    found = graves.deepest(0, prompt.until(25), path)
    assert found is not None and found.frontier == 10, "shorter than its tail could be"
    assert graves.deepest(30, prompt, path) is None
    for _ in range(REMEMBERED):
        bury(100, (), b"")
    assert graves.deepest(0, prompt, path) is None, "only the last ones are remembered"
