"""Coefficients come back from the timings that they make."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_core.cache.cost import PrefillCost, TransferCost
from ninfer_core.cache.fitting import Measured, fit_prefill, fit_transfer
from ninfer_core.errors import CalibrationError
from ninfer_core.program.planning.work import Copies, Prefill

COPIES = [Copies(n, n * size) for n in (1, 4, 16) for size in (64, 4096, 1 << 20)]
PREFILLS = [Prefill(base, suffix) for base in (0, 500, 2000) for suffix in (8, 64, 512)]


@pytest.mark.req("COST-3", "COST-4")
@settings(deadline=None)  # a busy machine is no failure
@given(st.floats(1e3, 1e6), st.floats(1e2, 1e4), st.floats(0.5, 1e3))
def test_prefill_coefficients_are_found_exactly(batch: float, token: float, pair: float) -> None:
    planted = PrefillCost(batch, token, pair)
    fitted = fit_prefill([Measured(work, planted.price(work)) for work in PREFILLS])
    assert fitted.residual < 1e-6
    for work in (*PREFILLS, Prefill(30_000, 2_000)):
        assert fitted.cost.price(work) == pytest.approx(planted.price(work), rel=1e-3)


@pytest.mark.req("COST-2", "COST-4")
@settings(deadline=None)  # a busy machine is no failure
@given(st.floats(1e3, 1e4), st.floats(1e2, 1e4), st.floats(0.02, 0.5))
def test_transfer_coefficients_are_found_on_both_sides_of_the_maximum(batch: float, each: float, byte: float) -> None:
    planted = TransferCost(batch, each, byte)
    fitted = fit_transfer([Measured(work, planted.price(work)) for work in COPIES])
    assert fitted.residual < 1e-6
    found = fitted.cost
    assert (found.batch_ns, found.operation_ns) == pytest.approx((batch, each), rel=1e-3)
    assert found.ns_per_byte == pytest.approx(byte, rel=1e-3)


@pytest.mark.req("COST-4")
@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.floats(1, 1e9), min_size=len(COPIES), max_size=len(COPIES)))
def test_no_timing_makes_a_negative_coefficient(ns: list[float]) -> None:
    found = fit_transfer([Measured(work, time) for work, time in zip(COPIES, ns, strict=True)]).cost
    assert min(found.batch_ns, found.operation_ns, found.ns_per_byte) >= 0
    assert found.ns_per_byte > 0, "bytes are never free: something is always bound by them"
    cost = fit_prefill([Measured(work, time) for work, time in zip(PREFILLS, ns, strict=True)]).cost
    assert min(cost.batch_ns, cost.token_ns, cost.pair_ns) >= 0
    assert cost.price(Prefill(0, 1)) > 0 or cost.price(Prefill(0, 1000)) > 0


def test_a_coefficient_that_the_timings_contradict_becomes_zero() -> None:
    # Longer bases were quicker: the pair coefficient would be negative.
    fitted = fit_prefill([Measured(work, 1000.0 * work.suffix * (0.9 if work.base else 1.0)) for work in PREFILLS])
    assert fitted.cost.pair_ns == 0 and fitted.cost.token_ns == pytest.approx(930, rel=0.05)
    assert 0.01 < fitted.residual < 0.1


def test_pairs_are_not_priced_out_of_noise() -> None:
    noise = (1.1, 0.95, 1.02, 0.9, 1.05, 0.98, 1.07, 0.93, 1.04)
    short = [Prefill(base, suffix) for base in (0, 20, 40) for suffix in (2, 8, 16)]
    truth = PrefillCost(1e6, 1e5, 1.0)
    found = fit_prefill([Measured(w, truth.price(w) * n) for w, n in zip(short, noise, strict=True)]).cost
    assert found.pair_ns == 0, "at most 776 pairs of 1 ns beside a millisecond"
    assert found.price(Prefill(0, 4000)) == pytest.approx(truth.price(Prefill(0, 4000)), rel=0.2)


def test_two_timings_are_too_few() -> None:
    with pytest.raises(CalibrationError, match="2 timings are too few for 3 coefficients"):
        fit_prefill([Measured(Prefill(0, 1), 1.0)] * 2)
    with pytest.raises(CalibrationError, match="too few"):
        fit_transfer([Measured(Copies(1, 1), 1.0)] * 2)
