"""What a CUDA device's free memory becomes, with a double in the place of torch.cuda: no such device is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from ninfer_core import CapacityError, ContextCacheOptions, EngineOptions
from ninfer_core.engine import sizing
from ninfer_core.engine.cache_sizing import Budgets
from ninfer_core.engine.sizing import HEADROOM, Sizes, measured_budgets, resolve_sizes
from ninfer_core.program.ledger.geometry import Vector
from tests.engine.test_cache_sizing import CONTEXT, IMAGE, LAYOUT, PAGE

DEVICE = torch.device("cuda", 1)
TOTAL = 1 << 40


@dataclass
class Machine:
    """Bytes that are free on the device, once the weights are there, and in main memory; None where nothing says so.

    Attributes:
        asked: devices whose memory was asked for.
    """

    device: int = 0
    main: int | None = 0
    asked: list[torch.device] = field(default_factory=list)

    def mem_get_info(self, device: torch.device) -> tuple[int, int]:
        self.asked.append(device)
        return self.device, TOTAL

    def sizes(self, lanes: int = 2, cache: dict[str, Any] | None = None, **options: Any) -> Sizes:
        asked = EngineOptions(max_concurrency=lanes, cache=ContextCacheOptions(**(cache or {})), **options)
        return resolve_sizes(asked, LAYOUT, measured_budgets(DEVICE))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    def of(device: int, main: int | None) -> Machine:
        found = Machine(device, main)
        monkeypatch.setattr(torch.cuda, "mem_get_info", found.mem_get_info)
        monkeypatch.setattr(sizing, "available_memory", lambda: found.main)
        return found

    return of


@pytest.mark.req("CAP-1", "OPT-1")
def test_the_budgets_are_what_is_free_on_this_device_and_in_main_memory_less_headroom(
    machine: Callable[..., Machine],
) -> None:
    found = machine(1_000_001, 2_000_000)
    assert measured_budgets(DEVICE) == Budgets(device=800_000, host=1_600_000) and HEADROOM == 0.8
    assert found.asked == [DEVICE], "not the first device's, nor that of all"
    assert measured_budgets(torch.device("cpu")) == Budgets(device=1_600_000, host=None)
    assert found.asked == [DEVICE], "a CPU asks no driver"
    machine(0, None)
    assert measured_budgets(DEVICE) == Budgets(device=0, host=int((4 << 30) * HEADROOM)), "where nothing says so"


@pytest.mark.req("CAP-1", "OPT-1", "CAP-2")
def test_the_sizes_by_hand(machine: Callable[..., Machine]) -> None:
    # Device: 800,000 bytes. An eighth would be 78 images of 1,280: the most, 64, beside the lanes' two. Two lanes'
    # contexts are 20 pages of 4,096; a quarter would be 48 more: four contexts, 40, are the most.
    # Main memory: 1,600,000 bytes, a quarter for each store: 312 images, where four times the device's, 264, are the
    # most; and 97 pages, fewer than four times the device's.
    assert (IMAGE, PAGE, CONTEXT) == (1_280, 4_096, 10)
    found = machine(1_000_000, 2_000_000).sizes()
    assert found.capacity == Vector(2 + 64, 264, (20 + 40,), 97 * PAGE)
    assert found.max_context == 640
    # A full device keeps one context and no cache; what lies in main memory does not depend on that.
    full = machine(int((2 * IMAGE + CONTEXT * PAGE) / HEADROOM) + 1, 2_000_000).sizes()
    assert full.capacity == Vector(2, 8, (CONTEXT,), 40 * PAGE), "four times what the device has of each"
    # And without main memory there is no second tier.
    assert machine(1_000_000, 0).sizes().capacity == Vector(2 + 64, 0, (60,), 0)


@pytest.mark.req("CAP-1", "CAP-2", "OPT-2")
def test_no_budget_is_ever_exceeded_and_more_memory_never_means_a_shorter_context(
    machine: Callable[..., Machine],
) -> None:
    longest, least = 0, int((2 * IMAGE + PAGE) / HEADROOM) + 1
    for device in range(least, 200 * PAGE, 3_331):
        for main in (0, 3 * PAGE, 90 * PAGE):
            found = machine(device, main).sizes()
            capacity = found.capacity
            assert capacity.device_images * IMAGE + capacity.pages[0] * PAGE <= device * HEADROOM
            assert capacity.host_images * IMAGE + capacity.host_bytes <= main * HEADROOM
        assert found.max_context >= longest
        longest = found.max_context
    assert longest == 640


@pytest.mark.req("OPT-2")
@pytest.mark.parametrize(
    ("device", "main", "asked", "says"),
    [
        (0, 1 << 30, {}, "no memory is left for a context beside the weights: lower --max-concurrency or --dtype"),
        (
            int((2 * IMAGE + PAGE - 1) / HEADROOM),
            1 << 30,
            {},
            "no memory is left for a context beside the weights: lower --max-concurrency or --dtype",
        ),
        (
            1 << 30,
            1 << 34,
            {"kv_capacity": 64 * 300_000},
            "19200000 tokens of KV need 1.1 GiB and 0.8 GiB are free: lower --max-context, --kv-capacity or "
            "--max-concurrency",
        ),
        (
            int((12 * IMAGE + PAGE) / HEADROOM) + 1,
            1 << 30,
            {"cache": {"device_state_slots": 11}},
            "device-state-slots is 11: at most 10 fit in memory, lower it",
        ),
        (
            1 << 30,
            int(20 * IMAGE / HEADROOM) + 1,
            {"cache": {"host_state_slots": 21}},
            "host-state-slots is 21: at most 20 fit in memory, lower it",
        ),
        (
            1 << 30,
            int(2 * PAGE / HEADROOM) + 1,
            {"cache": {"host_kv_capacity_bytes": 3 * PAGE}},
            "host-kv-capacity is 12.0 KiB: at most 8.0 KiB fit in memory, lower it",
        ),
    ],
)
def test_too_little_memory_is_one_line_that_says_what_to_lower(
    machine: Callable[..., Machine], device: int, main: int, asked: dict[str, Any], says: str
) -> None:
    with pytest.raises(CapacityError) as raised:
        machine(device, main).sizes(**asked)
    assert str(raised.value) == says
