"""Shared candidates and what speaks for them: pure functions of prompt, intent and limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_core import CacheIntent, UsageError
from ninfer_core.cache.evidence import Evidence, Power, SharedCandidate, grid, shared_candidates
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt

LIMITS = CacheLimits(private_cells=4, shared_cells=7, long_anchors=4, automatic_anchors=4)
BOUNDS = Boundaries(Frontier(40), Frontier(60), (Frontier(60), Frontier(90)), Frontier(90), Frontier(90), (), True)


def prompt(length: int, bounds: Boundaries | None = BOUNDS) -> PreparedPrompt:
    return PreparedPrompt(tuple(range(length)), bounds, OutputStart.ANSWER)


def found(intent: CacheIntent, limits: CacheLimits = LIMITS, length: int = 100) -> dict[int, set[str]]:
    made = shared_candidates(prompt(length), intent, limits, lambda frontier: b"%d" % frontier)
    assert [c.frontier for c in made] == sorted(c.frontier for c in made)
    assert all(c.key == b"%d" % c.frontier for c in made)
    return {c.frontier: {evidence.value for evidence in c.evidence} for c in made}


@pytest.mark.req("CAN-2", "CAN-3", "EVI-1")
def test_engine_candidates_and_markers() -> None:
    structural = {40: {"engine_structural"}, 60: {"engine_structural"}}
    assert found(CacheIntent()) == {**structural, 100: {"default_automatic", "engine_observed"}}
    assert found(CacheIntent(share_prompt=True))[100] == {"requested_automatic", "engine_observed"}
    assert found(CacheIntent(share_prompt=False))[100] == {"engine_observed"}
    # Equal frontiers are one candidate with all the evidence; four markers and three of the engine: at most seven.
    markers = tuple(Frontier(f) for f in (10, 60, 70, 80))
    marked = found(CacheIntent(markers=markers))
    assert list(marked) == [10, 40, 60, 70, 80, 100]
    assert marked[60] == {"explicit_boundary", "engine_structural"}
    apart = tuple(Frontier(f) for f in (10, 20, 70, 80))
    assert len(found(CacheIntent(markers=apart))) == 7
    # Behind the prompt's end there is no frontier.
    assert list(found(CacheIntent(markers=(Frontier(101),), share_prompt=False))) == [40, 60, 100]


@pytest.mark.req("CAN-3")
def test_the_engine_s_own_can_be_turned_off() -> None:
    limits = CacheLimits(4, 7, 4, 4, shared_candidates=False)
    assert found(CacheIntent(share_prompt=False), limits) == {}
    assert found(CacheIntent(), limits) == {}, "nor the whole prompt"
    assert found(CacheIntent(markers=(Frontier(50),)), limits) == {50: {"explicit_boundary"}}
    assert found(CacheIntent(share_prompt=True), limits) == {100: {"requested_automatic"}}, "asked for it is shared"


@pytest.mark.req("CAN-3")
def test_a_fifth_marker_is_refused() -> None:
    with pytest.raises(UsageError, match="at most 4"):
        CacheIntent(markers=tuple(Frontier(f) for f in range(1, 6)))


@pytest.mark.req("CAN-4")
def test_the_grid_is_off_unless_asked_for_and_observes_only() -> None:
    assert 256 not in found(CacheIntent(), length=600)
    limits = CacheLimits(4, 7, 4, 4, prefix_grid=True)
    gridded = found(CacheIntent(share_prompt=False), limits, length=600)
    assert gridded == {
        40: {"engine_structural"},
        60: {"engine_structural"},
        256: {"engine_observed"},
        512: {"engine_observed"},
        600: {"engine_observed"},
    }
    markers = tuple(Frontier(f) for f in (10, 20, 30, 50))
    assert len(found(CacheIntent(markers=markers), limits, length=256 * 8 + 1)) == 15


@pytest.mark.req("CAN-4")
@settings(deadline=None)
@given(st.integers(1, 300_000))
def test_grid_points_are_absolute_multiples_of_the_least_stride_that_fits(length: int) -> None:
    points = list(grid(length))
    assert len(points) <= 8 and all(256 <= point <= length for point in points)
    if points:
        stride = points[0]
        assert stride // 256 & (stride // 256 - 1) == 0 and points == [stride * (i + 1) for i in range(len(points))]
        assert stride == 256 or length // (stride // 2) > 8, "a finer one would have fitted"
        assert length - points[-1] < stride, "none is missing at the end"
    else:
        assert length < 256


@pytest.mark.req("EVI-1", "DEF-6", "CAN-10")
@pytest.mark.parametrize(
    ("evidence", "alone", "with_two"),
    [
        (Evidence.EXPLICIT_BOUNDARY, Power.PRESSURE, Power.PRESSURE),
        (Evidence.REQUESTED_AUTOMATIC, Power.PRESSURE, Power.PRESSURE),
        (Evidence.DEFAULT_AUTOMATIC, Power.NONE, Power.PRESSURE),
        (Evidence.ENGINE_OBSERVED, Power.NONE, Power.PRESSURE),
        (Evidence.ENGINE_STRUCTURAL, Power.SPARE, Power.PRESSURE),
    ],
)
def test_the_table_of_evidence(evidence: Evidence, alone: Power, with_two: Power) -> None:
    candidate = SharedCandidate(Frontier(10), frozenset({evidence}), b"key")
    assert (candidate.power(0), candidate.power(1), candidate.power(2)) == (alone, alone, with_two)
    assert candidate.declared == (alone is Power.PRESSURE)
