"""Private recovery points of a prompt: where they are, what they may do, and which gives way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_core import CacheIntent
from ninfer_core.cache.anchors import select_long_anchor_replacement, shallowest, wishes
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt


def prompt(ends: tuple[int, ...], t: int, reproduces: bool) -> PreparedPrompt:
    """Messages that end at `ends`, the last of which is where the reply's opener starts; 10 tokens of opener."""
    frontiers = tuple(Frontier(end) for end in ends)
    bounds = Boundaries(None, None, frontiers, frontiers[-1], Frontier(t), (), reproduces)
    return PreparedPrompt(tuple(range(ends[-1] + 10)), bounds, OutputStart.ANSWER)


def found(asked: PreparedPrompt, anchors: int, intent: CacheIntent | None = None) -> list[tuple[int, str, bool]]:
    limits = CacheLimits(4, 7, long_anchors=anchors, automatic_anchors=anchors)
    return [(w.frontier, w.kind.value, w.spare) for w in wishes(asked, intent or CacheIntent(), limits)]


@pytest.mark.req("DEF-3", "CKP-3")
def test_rewrite_checkpoints_follow_what_history_shows() -> None:
    plain, replay, closure = (100,), ("ResponseReplay", False), ("TurnClosure", False)
    assert found(prompt(plain, 100, True), 0) == [(100, *replay)]
    assert found(prompt(plain, 100, False), 0) == [(100, *closure)], "t = g: one image"
    loop = (100, 150, 200)
    assert found(prompt(loop, 100, True), 0) == [(200, *replay)]
    assert found(prompt(loop, 100, False), 0) == [(100, *closure), (200, *replay)]


@pytest.mark.req("CAN-5")
@pytest.mark.parametrize("anchors", [0, 1, 2, 3, 4, 9])
def test_anchors_at_the_last_boundaries_inside(anchors: int) -> None:
    """None after the last message; the one where the last message starts may use pressure, the others only spare room;
    fewer boundaries than anchors are all taken."""
    ends = (50, 100, 150, 200)
    inside = [50, 100, 150][max(0, 3 - anchors) :]
    assert found(prompt(ends, 200, True), anchors) == [
        *((end, "LongAnchor", end != 150) for end in inside if anchors),
        (200, "ResponseReplay", False),
    ]


@pytest.mark.req("CAN-5")
def test_nothing_lies_before_the_first_message_and_a_rewrite_comes_first() -> None:
    assert found(prompt((0, 60, 100), 60, False), 4) == [(60, "TurnClosure", False), (100, "ResponseReplay", False)]


@pytest.mark.req("CAN-6")
def test_a_raw_prompt_has_only_the_anchor_that_was_asked_for() -> None:
    raw = PreparedPrompt(tuple(range(600)), None, OutputStart.ANSWER)
    assert found(raw, 4) == []
    assert found(raw, 4, CacheIntent(anchor_prompt_end=True)) == [(599, "LongAnchor", True)]
    one = PreparedPrompt((1,), None, OutputStart.ANSWER)
    assert found(one, 4, CacheIntent(anchor_prompt_end=True)) == [], "before its only token there is nothing"


@pytest.mark.req("CAN-5", "CAN-7")
def test_which_anchor_gives_way() -> None:
    assert shallowest([300, 100, 200]) == 100
    # Coverage: (distance to the one before) x (stretch up to the next).
    assert select_long_anchor_replacement([100, 900, 1000], 2000) == 100, "100x800, 800x100, 100x1000"
    assert select_long_anchor_replacement([500, 510, 1000], 2000) == 510, "500x10, 10x490, 490x1000"
    assert select_long_anchor_replacement([1000], 1000) == 1000


@pytest.mark.req("CAN-7")
@settings(deadline=None)
@given(st.sets(st.integers(1, 400), min_size=1, max_size=6), st.integers(0, 100))
def test_the_loss_of_coverage_is_counted_out(anchors: set[int], more: int) -> None:
    """Against the definition: leave the path anywhere, and start from the highest anchor at or below."""
    ordered = sorted(anchors)
    end = ordered[-1] + more

    def work(kept: list[int]) -> int:
        return sum(at - max((a for a in kept if a <= at), default=0) for at in range(max(end, ordered[-1] + 1)))

    chosen = select_long_anchor_replacement(ordered, end)
    assert work([a for a in ordered if a != chosen]) == min(work([a for a in ordered if a != b]) for b in ordered)
