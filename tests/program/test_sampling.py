"""Sampling: right distribution, right truncation, and no row feels its neighbours."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_core import SamplingParams, UsageError
from ninfer_core.program.execution import sampling
from ninfer_core.program.execution.sampling import NOT_FINITE, SamplerRow, sample


def row(prompt: tuple[int, ...] = (0,), vocab: int = 8, **params: object) -> SamplerRow:
    return SamplerRow(SamplingParams(**{"seed": 1, **params}), prompt, vocab)


def allowed(logits: list[float], **params: object) -> set[int]:
    """Every token that 400 draws give."""
    sampler, seen = row(vocab=len(logits), **params), set()
    for _ in range(400):
        seen.update(sample(torch.tensor([logits]), [sampler]))
        sampler.drawn += 1
    return seen


def test_greedy_takes_the_best() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [9.0, 3.0, 1.0]])
    assert sample(logits, [row(vocab=3, temperature=0.0), row(vocab=3, temperature=0.0)]) == [1, 0]


def test_draws_follow_the_softmax() -> None:
    logits = torch.tensor([[math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]])
    sampler, counts = row(vocab=4), [0] * 4
    for _ in range(8000):
        counts[sample(logits, [sampler])[0]] += 1
        sampler.drawn += 1
    for count, p in zip(counts, (0.5, 0.3, 0.15, 0.05), strict=True):
        assert abs(count / 8000 - p) < 4 * math.sqrt(p * (1 - p) / 8000)


def test_truncations_keep_exactly_what_they_should() -> None:
    logits = [math.log(p) for p in (0.1, 0.4, 0.2, 0.3)]
    assert allowed(logits) == {0, 1, 2, 3}
    assert allowed(logits, top_k=2) == {1, 3}
    assert allowed(logits, top_p=0.69) == {1, 3}
    assert allowed(logits, top_p=0.71) == {1, 3, 2}
    assert allowed(logits, top_p=0.01) == {1}
    assert allowed(logits, min_p=0.49) == {1, 3, 2}
    assert allowed(logits, min_p=0.51) == {1, 3}
    # top-p counts within what top-k left, as the common implementations do: 0.4 of 0.7 is above one half.
    assert allowed(logits, top_k=2, top_p=0.55) == {1}
    assert allowed(logits, temperature=1e-4) == {1}


def test_penalties_and_bias() -> None:
    logits = torch.tensor([[2.0, 1.9, -1.0]])
    greedy = {"temperature": 0.0, "vocab": 3}
    assert sample(logits, [row(prompt=(0,), repetition_penalty=1.2, **greedy)]) == [1]
    assert sample(logits, [row(prompt=(2,), repetition_penalty=1.2, **greedy)]) == [0]
    presence, frequency = row(presence_penalty=0.2, **greedy), row(frequency_penalty=0.06, **greedy)
    assert sample(logits.expand(2, -1), [presence, frequency]) == [0, 0]
    for sampler in (presence, frequency):
        sampler.accept(0)
    assert sample(logits.expand(2, -1), [presence, frequency]) == [1, 0]
    frequency.accept(0)
    assert sample(logits, [frequency]) == [1]
    assert sample(logits, [row(logit_bias={2: 4.0}, **greedy)]) == [2]
    assert logits.tolist() == [[2.0, pytest.approx(1.9), -1.0]], "the caller's logits stay"


def test_a_row_without_finite_logits_fails_alone() -> None:
    logits = torch.tensor([[math.nan, 1.0], [0.0, 1.0], [-math.inf, -math.inf]])
    assert sample(logits, [row(vocab=2, temperature=t) for t in (0.0, 1.0, 1.0)])[::2] == [NOT_FINITE] * 2


PARAMS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        "top_k": st.sampled_from([0, 1, 5, 2000]),
        "top_p": st.sampled_from([1.0, 0.9, 0.2]),
        "min_p": st.sampled_from([0.0, 0.1]),
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "frequency_penalty": st.sampled_from([0.0, 0.5]),
        "seed": st.integers(0, 2**64 - 1),
    }
)


@settings(deadline=None, max_examples=40)
@given(st.lists(PARAMS, min_size=1, max_size=8), st.integers(0, 2**31), st.sampled_from([40, 3000]))
def test_company_changes_nothing(params: list[dict[str, float]], seed: int, vocab: int) -> None:
    logits = torch.randn(len(params), vocab, generator=torch.Generator().manual_seed(seed)) * 3
    rows = [SamplerRow(SamplingParams(**p), (1, 2), vocab) for p in params]
    together = sample(logits, rows)
    assert together == [sample(logits[i : i + 1], [r])[0] for i, r in enumerate(rows)]
    assert together[::-1] == sample(logits.flip(0), rows[::-1])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.sampled_from([0.5, 0.9, 0.97, 0.999]), st.sampled_from([0, 3, 1500]))
def test_the_short_ranking_equals_the_whole_one(seed: int, top_p: float, top_k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, 3000, generator=generator) * float(torch.rand(1, generator=generator)) * 6
    sampler = SamplerRow(SamplingParams(seed=seed, top_p=top_p, top_k=top_k), (), 3000)
    short = sample(logits, [sampler])
    before, sampling.NARROW = sampling.NARROW, 3000
    try:
        assert sample(logits, [sampler]) == short
    finally:
        sampling.NARROW = before


@pytest.mark.parametrize(
    "bad",
    [{"temperature": -1}, {"temperature": math.nan}, {"top_p": 0}, {"top_k": -1}, {"min_p": 1}, {"seed": -1},
     {"temperature": "hot"}, {"temperature": 10**400}, {"top_k": 1.5}, {"top_k": 10**30}, {"seed": 0.5},
     {"repetition_penalty": 1e-300}, {"repetition_penalty": 101}, {"logit_bias": {1: 1e39}}, {"logit_bias": {1: "x"}}],
)  # fmt: skip
def test_impossible_settings_are_named(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad)).replace("_", "-")):
        SamplingParams(**bad)


def test_the_most_extreme_settings_leave_something_to_draw() -> None:
    logits = torch.tensor([[300.0, -300.0, 250.0, 0.0]])
    for penalty in (0.01, 100):
        for bias in (-1e30, 1e30):
            settings = {"repetition_penalty": penalty, "logit_bias": {0: bias, 1: bias}, "presence_penalty": 2}
            for heat in (5e-324, 100):
                assert sample(logits, [row((0, 1), 4, temperature=heat, **settings)]) != [NOT_FINITE]
