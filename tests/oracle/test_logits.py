"""fp32 logits against transformers: whole prompts, chunkings, batches, forks, page orders, decode."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninfer_core.kernels.batch import Cut, Row
from tests.oracle.conftest import VARIANTS, Pair
from tests.support.pools import Pools, taps

TOLERANCE = 2e-5
MODERATE = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
GetPair = Callable[..., Pair]


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(256), k=length)


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


@pytest.mark.parametrize("variant", VARIANTS)
def test_whole_prompts(pair: GetPair, variant: str) -> None:
    oracle, model = pair(variant)
    tokens = prompt(130)
    expected = oracle.whole(tokens)  # causal: a prefix's logits are those of the prompt that ends there
    pools = Pools(model)
    lengths = range(1, 131) if variant in ("dense", "moe") else (1, 2, 3, 4, 63, 64, 65, 127, 128, 129, 130)
    for length in lengths:
        close(pools.run(Row(tokens[:length], 0, None, 0, [4, 5, 6])), expected[length - 1 : length])


@MODERATE
@given(data=st.data())
@pytest.mark.parametrize("variant", VARIANTS)
def test_chunks_steps_taps_and_pages(pair: GetPair, variant: str, data: st.DataObject) -> None:
    """One prompt in random pieces, with random cuts, pages in random order, slots that change at every piece."""
    oracle, model = pair(variant)
    length = data.draw(st.integers(2, 130))
    tokens = prompt(length, data.draw(st.integers(0, 5)))
    ends = [*sorted(data.draw(st.sets(st.integers(1, length - 1), max_size=5))), length]
    pages = data.draw(st.permutations(range(8)))[: -(-length // 64)]
    expected = oracle.whole(tokens)
    pools = Pools(model, slots=4, pages=8)
    slot: int | None = None
    for begin, end in pairwise([0, *ends]):
        write = data.draw(st.integers(0, 2))
        offsets = sorted(data.draw(st.sets(st.integers(1, end - begin), max_size=3)))
        cuts = tuple(Cut(offset, data.draw(st.sampled_from([None, 3]))) for offset in offsets)
        close(pools.run(Row(tokens[begin:end], begin, slot, write, pages, cuts)), expected[end - 1 : end])
        slot = write


@MODERATE
@given(data=st.data())
@pytest.mark.parametrize("variant", ["dense", "moe"])
def test_mixed_batches(pair: GetPair, variant: str, data: st.DataObject) -> None:
    """Rows of different lengths, with and without a past, prefill and decode in one batch."""
    oracle, model = pair(variant)
    count = data.draw(st.integers(1, 5))
    shapes = [(data.draw(st.integers(0, 70)), data.draw(st.sampled_from([1, 1, 2, 40, 70]))) for _ in range(count)]
    order = data.draw(st.permutations(range(3 * count)))
    pools = Pools(model, slots=2 * count, pages=3 * count)
    rows, expected = [], []
    for i, (past, new) in enumerate(shapes):
        tokens, pages = prompt(past + new, seed=i), order[3 * i : 3 * i + 3]
        if past:
            pools.run(Row(tokens[:past], 0, None, 2 * i, pages))
        write = 2 * i + data.draw(st.integers(0, 1))
        rows.append(Row(tokens[past:], past, 2 * i if past else None, write, pages))
        expected.append(oracle.whole(tokens)[-1])
    close(pools.run(*rows), torch.stack(expected))


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_decode_is_equal(pair: GetPair, variant: str) -> None:
    oracle, model = pair(variant)
    tokens, pages = prompt(50, seed=9), [5, 2]
    pools = Pools(model)
    row, found = Row(tokens, 0, None, 1, pages), []
    for position in range(50, 114):
        found.append(int(pools.run(row).argmax()))
        row = Row([found[-1]], position, 1, 1, pages)
    assert found == oracle.greedy(tokens, 64)


@pytest.mark.parametrize("variant", ["dense", "moe"])
def test_states_are_the_oracles(pair: GetPair, variant: str) -> None:
    """Recurrent state and convolution history at a tap, after the chunk and after single steps."""
    oracle, model = pair(variant)
    tokens, pages = prompt(110, seed=3), [1, 0]
    pools = Pools(model)
    pools.run(Row(tokens[:100], 0, None, 0, pages, taps((30, 2), (70, None), (90, 3))))
    pools.run(*(Row([tokens[100]], 100, 0, 0, pages),))
    for position in range(101, 110):
        pools.run(Row([tokens[position]], position, 0, 0, pages))
    for slot, pieces in {2: [tokens[:30]], 3: [tokens[:90]], 0: [tokens[:100], *([t] for t in tokens[100:])]}.items():
        _, cache = oracle.pieces(pieces)
        for layer, (recurrent, history) in enumerate(oracle.states(cache)):
            close(pools.state.recurrent[layer][slot], recurrent, 1e-5)
            close(pools.state.conv[layer][slot], history, 1e-5)


@pytest.mark.parametrize("variant", ["dense", "moe"])
def test_bf16_agrees_as_the_oracle_does_with_itself(pair: GetPair, variant: str) -> None:
    """Whole prompts of ours against the oracle's, beside the oracle's chunk and steps against its own whole."""
    oracle, model = pair(variant, torch.bfloat16)
    ours = own = total = 0
    for seed in range(6):
        tokens, pages = prompt(120, seed), [2, 3]
        expected = oracle.whole(tokens).argmax(dim=-1)
        stepped, _ = oracle.pieces([tokens[:70], tokens[70:90], *([t] for t in tokens[90:])])
        pools = Pools(model)
        found = [pools.run(Row(tokens[:70], 0, None, 0, pages)), pools.run(Row(tokens[70:90], 70, 0, 0, pages))]
        found += [pools.run(Row([tokens[i]], i, 0, 0, pages)) for i in range(90, 120)]
        ends = [69, 89, *range(90, 120)]
        ours += int((torch.cat(found).argmax(dim=-1) == expected[ends]).sum())
        own += int((stepped.argmax(dim=-1)[ends] == expected[ends]).sum())
        total += len(ends)
    assert ours >= own, (ours, own, total)
