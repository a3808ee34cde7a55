"""ContextCacheOptions and what becomes of them: figures by hand, memory given as a number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from ninfer_core import CapacityError, ContextCacheOptions, EngineOptions, UsageError
from ninfer_core.engine.cache_sizing import LEASE_TOKENS, Budgets
from ninfer_core.engine.sizing import Sizes, resolve_sizes
from ninfer_core.models.layout import ModelLayout
from ninfer_core.program.ledger.geometry import Vector

LAYOUT = ModelLayout(
    gdn_layers=1,
    attention_layers=1,
    recurrent_shape=(1, 16, 16),
    conv_shape=(16, 3),
    hidden_size=16,
    kv_shape=(1, 8),
    dtype=torch.float32,
    vocab_size=64,
    max_positions=640,
)
PAGE = 2 * 64 * 8 * 4
IMAGE = 16 * 16 * 4 + 16 * 3 * 4 + 16 * 4
CONTEXT = 10
"""Pages of the longest sequence that the layout allows."""


def sizes(memory: int, host: int | None = None, lanes: int = 2, cache: dict[str, Any] | None = None, **options: Any):
    asked = EngineOptions(max_concurrency=lanes, cache=ContextCacheOptions(**(cache or {})), **options)
    return resolve_sizes(asked, LAYOUT, Budgets(memory, host))


def active(found: Sizes) -> tuple[int, int]:
    return found.max_context, found.capacity.pages[0]


@pytest.mark.req("CAP-1", "ST-1")
def test_a_roomy_cpu_gets_lanes_slots_and_prefix_pages_and_no_host_tier() -> None:
    found = sizes(1 << 30, lanes=3)
    assert found.max_context == 640
    assert found.capacity == Vector(3 + 64, 0, (3 * CONTEXT + 4 * CONTEXT,), 0)


@pytest.mark.req("CAP-1")
def test_slots_take_an_eighth_and_prefixes_a_quarter_of_the_budget() -> None:
    # An eighth of 400 pages' bytes is 160 images' worth of 1280 bytes: enough. A quarter is 100 pages.
    memory = 400 * PAGE
    assert sizes(memory).capacity.device_images == 2 + 64
    small = 60 * PAGE  # an eighth: 30,720 bytes, 24 images; a quarter: 15 pages, fewer than 4 contexts
    found = sizes(small)
    assert IMAGE == 1280 and PAGE == 4096
    assert found.capacity == Vector(2 + 24, 0, (2 * CONTEXT + 15,), 0)


@pytest.mark.req("CAP-1", "OPT-2")
def test_the_cache_shrinks_to_nothing_before_the_context_does() -> None:
    lanes = 2 * IMAGE
    one = sizes(lanes + CONTEXT * PAGE)
    assert one.max_context == 640 and one.capacity == Vector(2, 0, (CONTEXT,), 0)
    assert sizes(lanes + CONTEXT * PAGE + 3 * IMAGE).capacity == Vector(2 + 3, 0, (CONTEXT,), 0)
    less = sizes(lanes + CONTEXT * PAGE - 1)
    assert less.max_context == 9 * 64 and less.capacity.pages == (9,), "then the context itself"
    with pytest.raises(CapacityError, match="no memory is left"):
        sizes(lanes + PAGE - 1)


@pytest.mark.req("CAP-1")
def test_no_budget_is_ever_exceeded_and_a_short_context_leaves_no_cache() -> None:
    longest = 0
    for memory in range(2 * IMAGE + PAGE, 120 * PAGE, 1777):
        found = sizes(memory)
        used = found.capacity.device_images * IMAGE + found.capacity.pages[0] * PAGE
        assert used <= memory
        assert found.max_context >= longest, "more memory never shortens the context"
        if found.max_context < 640:
            assert (found.capacity.device_images - 2) * IMAGE < PAGE, "slots only from what no page could use"
        longest = found.max_context


@pytest.mark.req("OPT-3")
def test_disabled_keeps_the_active_reservation_and_nothing_else() -> None:
    cache = {
        "device_state_slots": 5,
        "host_state_slots": 5,
        "host_kv_capacity_bytes": 1 << 20,
        "max_shared_prefixes": 9,
    }
    for memory in (1 << 30, 2 * IMAGE + CONTEXT * PAGE):
        off = sizes(memory, host=1 << 30, cache={"enabled": False, **cache})
        assert off.max_context == sizes(memory).max_context
        assert (off.capacity.device_images, off.capacity.host_images, off.capacity.host_bytes) == (2, 0, 0)
        assert off.capacity.pages[0] == min(2 * CONTEXT, (memory - 2 * IMAGE) // PAGE)
        limits = off.limits
        assert not limits.enabled and (limits.private_cells, limits.shared_cells, limits.long_anchors) == (2, 0, 0)
        assert not (limits.endpoint_anchors or limits.shared_candidates or limits.prefix_grid)
        assert limits.automatic_anchors == 0
    on = sizes(1 << 30)
    assert on.capacity.pages[0] - 4 * CONTEXT == 2 * CONTEXT, "with the cache on, the lanes' share is the same"


@pytest.mark.req("CAP-1")
def test_a_device_of_its_own_gets_a_host_tier_from_main_memory() -> None:
    found = sizes(1 << 30, host=1 << 30)
    device = found.capacity
    assert device.host_images == 4 * device.device_images and device.host_bytes == 4 * device.pages[0] * PAGE
    tight = sizes(1 << 30, host=40 * PAGE).capacity
    assert tight.host_images == 10 * PAGE // IMAGE and tight.host_bytes == 10 * PAGE
    assert sizes(1 << 30, host=0).capacity.host_bytes == 0


@pytest.mark.req("OPT-1")
def test_every_option_is_taken_as_it_was_given() -> None:
    asked = {
        "device_state_slots": 3,
        "host_state_slots": 4,
        "host_kv_capacity_bytes": 5 * PAGE,
        "max_private_continuations": 6,
        "max_shared_prefixes": 2,
        "max_long_anchors_per_continuation": 1,
        "automatic_private_anchors": 3,
        "endpoint_anchors": False,
        "allow_engine_automatic_shared_prefixes": False,
        "allow_engine_prefix_grid": True,
        "recency_eviction": True,
        "kv_lease_growth": True,
        "planning_targets": 0,
        "planning_ms": 0.5,
    }
    found = sizes(1 << 30, cache=asked, kv_capacity=30 * 64)
    assert found.capacity == Vector(2 + 3, 4, (30,), 5 * PAGE) and found.lease == LEASE_TOKENS == 4096
    limits = found.limits
    assert (limits.private_cells, limits.shared_cells, limits.long_anchors, limits.automatic_anchors) == (6, 2, 1, 3)
    assert (limits.planning_targets, limits.planning_ns) == (0, 500_000)
    assert limits.prefix_grid and limits.recency_eviction
    assert not (limits.endpoint_anchors or limits.shared_candidates)


@pytest.mark.req("OPT-1")
def test_automatic_choices_follow_from_each_other() -> None:
    found = sizes(1 << 30, cache={"max_long_anchors_per_continuation": 9})
    assert found.limits.automatic_anchors == 9 and found.lease is None
    limits = sizes(1 << 30).limits
    assert limits.enabled and limits.private_cells == 64 + 2 and limits.lanes == 2
    assert limits.long_anchors == limits.automatic_anchors == 16, "a quarter of 64 slots"
    few = sizes(1 << 30, cache={"device_state_slots": 20, "host_state_slots": 7}).limits
    assert few.long_anchors == few.automatic_anchors == 6, "a quarter of 27"
    assert sizes(1 << 30, cache={"device_state_slots": 1}).limits.long_anchors == 4
    assert limits.endpoint_anchors and limits.shared_candidates
    assert not (limits.prefix_grid or limits.recency_eviction)


@pytest.mark.req("EVI-2")
@pytest.mark.parametrize(("lanes", "given", "cells"), [(1, None, 7), (7, None, 7), (8, None, 8), (8, 2, 2), (1, 0, 0)])
def test_the_shared_catalogs_size(lanes: int, given: int | None, cells: int) -> None:
    assert sizes(1 << 30, lanes=lanes, cache={"max_shared_prefixes": given}).limits.shared_cells == cells


@pytest.mark.req("OPT-2")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"device_state_slots": -1}, "device-state-slots is -1: it must be at least 0"),
        ({"host_state_slots": -1}, "host-state-slots is -1: it must be at least 0"),
        ({"host_kv_capacity_bytes": -1}, "host-kv-capacity is -1: it must be at least 0"),
        ({"max_private_continuations": 0}, "max-private-continuations is 0: it must be at least 1"),
        ({"max_shared_prefixes": -1}, "max-shared-prefixes is -1: it must be at least 0"),
        ({"max_long_anchors_per_continuation": -1}, "max-long-anchors is -1: it must be at least 0"),
        ({"automatic_private_anchors": -1}, "automatic-anchors is -1: it must be at least 0"),
        ({"planning_targets": -1}, "planning-targets is -1: it must be at least 0"),
        ({"planning_ms": -0.1}, "planning-ms is -0.1: it must be 0 to 60000"),
        ({"planning_ms": float("nan")}, "planning-ms is nan: it must be 0 to 60000"),
        ({"device_state_slots": 65_537}, "device-state-slots is 65537: it must be at most 65536"),
        ({"host_kv_capacity_bytes": 1 << 63}, "it must be at most 4611686018427387904"),
    ],
)
def test_a_value_outside_its_range_is_one_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        ContextCacheOptions(**given)
    assert str(raised.value).endswith(says) and "\n" not in str(raised.value)


@pytest.mark.req("OPT-2")
def test_the_private_catalog_covers_the_running_requests() -> None:
    with pytest.raises(
        UsageError, match=r"max-private-continuations is 3: it must be at least 4, one for each request"
    ):
        EngineOptions(max_concurrency=4, cache=ContextCacheOptions(max_private_continuations=3))
    cache = ContextCacheOptions(max_private_continuations=4)
    assert EngineOptions(max_concurrency=4, cache=cache).cache is cache, "the smallest legal value is legal"
    EngineOptions(max_concurrency=4, cache=replace(cache, enabled=False, max_private_continuations=3))


@pytest.mark.req("OPT-2")
def test_what_needs_the_model_is_refused_at_start_up_with_the_bound() -> None:
    with pytest.raises(UsageError, match=r"host-kv-capacity is 3\.9 KiB: it must be 0 or at least 4\.0 KiB, one"):
        sizes(1 << 30, cache={"host_kv_capacity_bytes": PAGE - 1})
    assert sizes(1 << 30, cache={"host_kv_capacity_bytes": PAGE}).capacity.host_bytes == PAGE
    memory = 2 * IMAGE + CONTEXT * PAGE
    most = (memory - 2 * IMAGE - PAGE) // IMAGE
    for name, option in (("device-state-slots", "device_state_slots"), ("host-state-slots", "host_state_slots")):
        with pytest.raises(CapacityError, match=f"{name} is {most + 1}: at most {most} fit in memory"):
            sizes(memory, cache={option: most + 1})
        assert sizes(memory, cache={option: most}).max_context >= 64, "one page of KV is left"
    with pytest.raises(CapacityError, match=r"host-kv-capacity is 9999\.0 TiB: at most 2\.9 GiB fit in memory"):
        sizes(1 << 40, host=(3 << 30) - 1, cache={"host_kv_capacity_bytes": 9999 << 40})
    with pytest.raises(CapacityError, match="kv-capacity holds 64 tokens, fewer than max-context 128: raise it"):
        sizes(1 << 30, kv_capacity=64, max_context=128)


@pytest.mark.req("OPT-2")
def test_on_a_device_of_its_own_host_and_device_are_separate_budgets() -> None:
    memory = 2 * IMAGE + CONTEXT * PAGE
    found = sizes(memory, host=20 * IMAGE, cache={"host_state_slots": 20, "host_kv_capacity_bytes": 0})
    assert found.max_context == 640 and found.capacity.host_images == 20
    with pytest.raises(CapacityError, match="host-state-slots is 21: at most 20 fit"):
        sizes(memory, host=20 * IMAGE, cache={"host_state_slots": 21})


def test_an_explicit_kv_capacity_is_kept_and_slots_take_only_what_it_leaves() -> None:
    memory = 2 * IMAGE + 30 * PAGE + IMAGE
    found = sizes(memory, kv_capacity=30 * 64)
    assert found.capacity == Vector(2 + 1, 0, (30,), 0)
