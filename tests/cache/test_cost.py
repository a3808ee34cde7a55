"""Prices by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_core.cache.cost import (
    GENERIC_PREFILL,
    GENERIC_TRANSFERS,
    SATURATED_NS,
    Coefficients,
    CostModel,
    PrefillCost,
    TransferCost,
    TransferCosts,
)
from ninfer_core.program.planning.work import Copies, ImmediateWork, Prefill, Recipe

MODEL = CostModel(
    to_host=TransferCost(100.0, 10.0, 2.0),
    to_device=TransferCost(200.0, 20.0, 1.0),
    on_device=TransferCost(50.0, 5.0, 0.5),
    prefill_cost=PrefillCost(1000.0, 7.0, 0.25),
)
NOTHING = Copies()


@pytest.mark.req("COST-2")
def test_a_batch_costs_the_larger_of_issuing_and_moving() -> None:
    assert MODEL.transfer(MODEL.to_host, Copies(3, 64)) == 100 + 3 * 10, "130 of issuing, 128 of bytes"
    assert MODEL.transfer(MODEL.to_host, Copies(3, 66)) == 132
    assert MODEL.transfer(MODEL.to_host, NOTHING) == 0, "an empty batch costs nothing, not batch_ns (DEF-9)"


@pytest.mark.req("COST-3")
def test_prefill_prices_tokens_and_attention_pairs() -> None:
    # B*S + S*(S+1)/2 = 10*4 + 10 = 50
    assert MODEL.prefill(Prefill(10, 4)) == 1000 + 4 * 7 + 50 * 0.25
    assert MODEL.prefill(Prefill(10, 0)) == 0
    assert MODEL.prefill(Prefill(0, 1)) == 1000 + 7 + 0.25


@pytest.mark.req("COST-1")
def test_immediate_is_the_sum_of_ordered_phases_and_the_remaining_prefill() -> None:
    work = ImmediateWork(Copies(1, 500), Copies(2, 100), Copies(1, 4), Prefill(10, 4))
    assert MODEL.immediate(work) == 1000 + 240 + 55 + 1040.5
    assert MODEL.immediate(ImmediateWork(NOTHING, NOTHING, NOTHING, Prefill(64, 0))) == 0
    assert MODEL.recipe(Recipe(Copies(2, 100), Prefill(10, 4))) == 240 + 1040.5
    assert MODEL.recipe(Recipe(NOTHING, Prefill(10, 0))) == 0


@pytest.mark.req("COST-4")
def test_which_recipe_is_cheaper_depends_on_the_machine_alone() -> None:
    root, restore = Recipe(NOTHING, Prefill(0, 8)), Recipe(Copies(2, 1000), Prefill(6, 2))
    slow_prefill = CostModel(to_device=MODEL.to_device, prefill_cost=PrefillCost(0.0, 1000.0, 0.0))
    quick_prefill = CostModel(to_device=MODEL.to_device, prefill_cost=PrefillCost(0.0, 10.0, 0.0))
    assert (slow_prefill.recipe(restore), slow_prefill.recipe(root)) == (1000 + 2000, 8000)
    assert (quick_prefill.recipe(restore), quick_prefill.recipe(root)) == (1000 + 20, 80)


counts = st.integers(0, 1 << 80)
coefficients = st.floats(0, SATURATED_NS)


@pytest.mark.req("COST-1", "COST-4")
@settings(deadline=None)  # a busy machine is no failure
@given(counts, counts, counts, st.tuples(*[coefficients] * 6))
def test_prices_saturate_and_are_never_infinite_or_nan(a: int, b: int, c: int, rates: tuple[float, ...]) -> None:
    transfer, prefill = TransferCost(*rates[:3]), PrefillCost(*rates[3:])
    model = CostModel(transfer, transfer, transfer, prefill)
    copies, work = Copies(a, b), Prefill(b, c)
    for price in (
        model.transfer(transfer, copies),
        model.prefill(work),
        model.immediate(ImmediateWork(copies, copies, copies, work)),
        model.recipe(Recipe(copies, work)),
    ):
        assert math.isfinite(price) and 0 <= price <= SATURATED_NS
    if a:
        assert model.transfer(transfer, Copies(a + 1, b + 1)) >= model.transfer(transfer, copies)


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan, 2 * SATURATED_NS])
def test_a_coefficient_that_would_poison_a_price_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="operation_ns"):
        TransferCost(1.0, bad, 1.0)
    with pytest.raises(ValueError, match="token_ns"):
        PrefillCost(1.0, bad, 1.0)


@pytest.mark.req("COST-4")
def test_transfer_and_prefill_coefficients_are_resolved_independently() -> None:
    transfers = TransferCosts(MODEL.to_host, MODEL.to_device, MODEL.on_device)
    stored = Coefficients(
        {"here": transfers}, {"here": {"shape": MODEL.prefill_cost}, "there": {"big": GENERIC_PREFILL}}
    )
    both = CostModel.resolve("here", "shape", stored)
    assert (both.to_host, both.to_device, both.on_device) == (MODEL.to_host, MODEL.to_device, MODEL.on_device)
    assert both.prefill_cost == MODEL.prefill_cost and both.source == "transfers measured, prefill measured"
    other_model = CostModel.resolve("here", "big", stored)
    assert other_model.to_host == MODEL.to_host and other_model.prefill_cost == GENERIC_PREFILL
    assert other_model.source == "transfers measured, prefill generic"
    other_machine = CostModel.resolve("there", "big", stored)
    assert other_machine.to_device == GENERIC_TRANSFERS.to_device and other_machine.prefill_measured
    assert CostModel.resolve("nowhere", "none") == CostModel()
