"""The CPU backend against the plain reference, on random batches; and what a state kernel may touch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from ninfer_core.kernels.batch import Cut, ForwardBatch, Row
from ninfer_core.kernels.interface import DeltaInputs, KernelPass, Kernels
from ninfer_core.kernels.reference import Reference
from ninfer_core.kernels.scan_plan import ScanPlan
from ninfer_core.kernels.torch_cpu.backend import TorchCpu

SLOTS, PAGES = 12, 12
RANDOM = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Shape:
    key_heads: int = 2
    value_heads: int = 4
    key_dim: int = 8
    value_dim: int = 16

    @property
    def channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Up to four rows; every row has slots 3i (read), 3i + 1 (write) and 3i + 2 (tap) and three pages of its own."""
    order = draw(st.permutations(range(PAGES)))
    found = []
    for i in range(draw(st.integers(1, 4))):
        length = draw(st.one_of(st.just(1), st.integers(2, 130)))
        start = draw(st.integers(0, 40))
        read = draw(st.booleans()) if start else False
        write = 3 * i + draw(st.integers(0, 1))
        offsets = sorted(draw(st.sets(st.integers(1, length), max_size=3)))
        cuts = [Cut(offset, None) for offset in offsets]
        if cuts:
            tapped = draw(st.integers(0, len(cuts) - 1))
            cuts[tapped] = Cut(cuts[tapped].offset, 3 * i + 2)
        pages = order[3 * i : 3 * i + 3]
        found.append(Row([0] * length, start, 3 * i if read else None, write, pages, tuple(cuts)))
    return found


def both(
    batch: ForwardBatch, planes: list[Tensor], run: Callable[[KernelPass, list[Tensor]], Tensor]
) -> tuple[tuple[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]:
    """(output, planes afterwards) of the CPU backend and of the reference."""
    results = []
    for kernels in (TorchCpu(), Reference()):
        backend: Kernels = kernels
        held = [plane.clone() for plane in planes]
        with torch.inference_mode():
            results.append((run(backend.begin(batch, ScanPlan.build(batch)), held), held))
    return results[0], results[1]


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def untouched(batch: ForwardBatch, before: Tensor, after: Tensor) -> None:
    """Only write slots and taps change: a read slot that is not written keeps its bytes."""
    written = {row.write_slot for row in batch.rows}
    written |= {cut.slot for row in batch.rows for cut in row.cuts if cut.slot is not None}
    for slot in set(range(len(before))) - written:
        assert torch.equal(before[slot], after[slot]), slot


@RANDOM
@given(rows(), st.integers(0, 3), st.sampled_from([1, 2]))
def test_delta_rule(given_rows: list[Row], seed: int, groups: int) -> None:
    shape = Shape(value_heads=2 * groups)
    generator = torch.Generator().manual_seed(seed)
    batch = ForwardBatch.build(given_rows)
    count = len(batch.token_ids)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator)

    inputs = DeltaInputs(
        query=normal(count, shape.key_heads, shape.key_dim),
        key=normal(count, shape.key_heads, shape.key_dim) + 1,  # alike keys make the triangular system hard
        value=normal(count, shape.value_heads, shape.value_dim),
        decay=-torch.rand(count, shape.value_heads, generator=generator).pow(3) * 4,
        beta=torch.rand(count, shape.value_heads, generator=generator),
    )
    recurrent = normal(SLOTS, shape.value_heads, shape.key_dim, shape.value_dim)
    fast, plain = both(batch, [recurrent], lambda kernels, planes: kernels.delta_rule(inputs, planes[0]))
    close(fast[0], plain[0])
    close(fast[1][0], plain[1][0])
    untouched(batch, recurrent, fast[1][0])


@RANDOM
@given(rows(), st.sampled_from([torch.float32, torch.bfloat16]))
def test_convolution(given_rows: list[Row], dtype: torch.dtype) -> None:
    channels = Shape().channels
    generator = torch.Generator().manual_seed(0)
    batch = ForwardBatch.build(given_rows)
    wide = torch.randn(len(batch.token_ids), channels + 5, generator=generator).to(dtype)
    weight = torch.randn(channels, 4, generator=generator).to(dtype)
    history = torch.randn(SLOTS, channels, 3, generator=generator).to(dtype)
    fast, plain = both(batch, [history], lambda kernels, p: kernels.convolve(wide[:, :channels], weight, p[0]))
    close(fast[0], plain[0], 1e-5 if dtype == torch.float32 else 2e-2)
    assert torch.equal(fast[1][0], plain[1][0])  # a history is copied, never computed
    untouched(batch, history, fast[1][0])


@RANDOM
@given(rows(), st.sampled_from([(4, 2), (3, 3), (6, 1)]), st.booleans())
def test_attention(given_rows: list[Row], heads: tuple[int, int], ascending: bool) -> None:
    if ascending:  # pages side by side are read through a view
        given_rows = [
            Row(r.token_ids, r.start, r.read_slot, r.write_slot, range(3 * i, 3 * i + 3))
            for i, r in enumerate(given_rows)
        ]
    generator = torch.Generator().manual_seed(0)
    batch = ForwardBatch.build(given_rows)
    count = len(batch.token_ids)
    query = torch.randn(count, heads[0], 8, generator=generator)
    key, value = (torch.randn(count, heads[1], 8, generator=generator) for _ in range(2))
    pool = [torch.randn(PAGES, 64, heads[1], 8, generator=generator) for _ in range(2)]
    fast, plain = both(batch, pool, lambda kernels, p: kernels.attend((query, key, value), p[0], p[1]))
    close(fast[0], plain[0])
    for ours, theirs in zip(fast[1], plain[1], strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [1, 2, 64, 65])
def test_linear(count: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 32, generator=generator).to(dtype)
    weight = torch.randn(48, 32, generator=generator).to(dtype)
    found = TorchCpu().linear(inputs, weight)
    assert found.dtype == dtype
    assert found.is_contiguous()
    close(found.float(), (inputs.double() @ weight.double().t()).float(), 1e-5 if dtype == torch.float32 else 2e-2)


def test_a_view_is_taken_of_adjacent_pages() -> None:
    """Contiguous pages are not gathered: attention reads the pool's own memory."""
    from ninfer_core.kernels.torch_cpu import attention

    plane = torch.zeros(PAGES, 64, 2, 8)
    for pages, view in (([4, 5, 6], True), ([4, 6, 5], False), ([7], True)):
        batch = ForwardBatch.build([Row([0] * (64 * len(pages)), 0, None, 0, pages)])
        (span,) = attention._spans(batch.attention)
        gathered = attention._gather(plane, span)
        shares = gathered.untyped_storage().data_ptr() == plane.untyped_storage().data_ptr()
        assert shares == view


@pytest.mark.parametrize("offsets", [(0,), (6,), (3, 2)])
def test_impossible_cuts_are_refused(offsets: tuple[int, ...]) -> None:
    row = Row([0] * 5, 0, None, 0, [0], tuple(Cut(offset, None) for offset in offsets))
    with pytest.raises(ValueError, match="cut at"):
        ScanPlan.build(ForwardBatch.build([row]))
