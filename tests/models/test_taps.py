"""Taps, forks and moves on the whole model: the state kernels' promises that the context cache builds on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninfer_core.kernels.batch import Cut, Row
from ninfer_core.models.loader import load_model
from ninfer_core.models.qwen3_5.model import Qwen3_5Model
from tests.support.checkpoints import Tiny
from tests.support.pools import Pools, taps

TOKENS = random.Random(4).choices(range(256), k=190)
PAGES = [3, 0, 6]


@pytest.fixture(scope="module", params=[False, True], ids=["dense", "moe"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Qwen3_5Model:
    directory: Path = Tiny(moe=request.param).write(tmp_path_factory.mktemp("model"))
    return load_model(directory)


def close(a: list[torch.Tensor], b: list[torch.Tensor]) -> None:
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-5)


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_tap_is_the_state_of_a_run_that_ends_there(model: Qwen3_5Model, data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 190))
    offsets = sorted(data.draw(st.sets(st.integers(1, length), min_size=1, max_size=4)))
    pools = Pools(model, slots=6)
    pools.run(Row(TOKENS[:length], 0, None, 0, PAGES, tuple(Cut(o, i + 1) for i, o in enumerate(offsets))))
    for i, offset in enumerate(offsets):
        ended = Pools(model)
        ended.run(Row(TOKENS[:offset], 0, None, 0, PAGES))
        close(pools.image(i + 1), ended.image(0))


@pytest.mark.req("DEF-5")
def test_a_tap_holds_the_final_hidden_row(model: Qwen3_5Model) -> None:
    """A prompt that a tap covers wholly needs no prefill: its hidden row gives the next token's logits."""
    pools, cold = Pools(model), Pools(model)
    pools.run(Row(TOKENS[:90], 0, None, 0, PAGES, taps((33, 1), (90, 2))))
    for slot, length in ((1, 33), (2, 90)):
        expected = cold.run(Row(TOKENS[:length], 0, None, 0, PAGES))
        torch.testing.assert_close(model.logits(pools.state.hidden[slot : slot + 1]), expected, rtol=0, atol=2e-5)


def test_equal_traces_give_equal_bits(model: Qwen3_5Model) -> None:
    """Same units, cuts and rows: same bytes, wherever pages and slots lie."""
    first, second = Pools(model), Pools(model)
    a = first.run(Row(TOKENS[:150], 0, None, 0, [0, 1, 2], taps((70, 1), (100, None))))
    b = second.run(Row(TOKENS[:150], 0, None, 5, [7, 2, 4], taps((70, 3), (100, None))))
    assert torch.equal(a, b)
    assert same(first.image(0), second.image(5))
    assert same(first.image(1), second.image(3))


@pytest.mark.parametrize("length", [1, 2, 80])
def test_a_fork_leaves_its_source_alone(model: Qwen3_5Model, length: int) -> None:
    """Reading one slot and writing another gives what writing in place gives, and the source keeps its bytes."""
    pools = Pools(model)
    pools.run(Row(TOKENS[:100], 0, None, 0, PAGES))
    source = pools.image(0)
    forked = pools.run(Row(TOKENS[100 : 100 + length], 100, 0, 1, PAGES, taps((length, 2))))
    assert same(pools.image(0), source)
    assert same(pools.image(1), pools.image(2))
    in_place = pools.run(Row(TOKENS[100 : 100 + length], 100, 0, 0, PAGES))
    assert torch.equal(forked, in_place)
    assert same(pools.image(0), pools.image(1))


def test_many_forks_of_one_source_in_one_batch(model: Qwen3_5Model) -> None:
    """Regenerating with several siblings: all read one slot, each writes its own. Shared full pages, own tails."""
    pools = Pools(model, slots=8)
    pools.run(Row(TOKENS[:64], 0, None, 0, [3]))
    source = pools.image(0)
    rows = [Row([TOKENS[64 + i]], 64, 0, 1 + i, [3, 4 + i]) for i in range(4)]
    together = pools.run(*rows)
    assert same(pools.image(0), source)
    for i, row in enumerate(rows):
        alone = Pools(model)
        alone.run(Row(TOKENS[:64], 0, None, 0, [3]))
        torch.testing.assert_close(alone.run(row)[0], together[i], rtol=0, atol=1e-5)


def test_other_pages_are_not_written(model: Qwen3_5Model) -> None:
    pools = Pools(model)
    before = [plane.clone() for plane in (*pools.kv.keys, *pools.kv.values)]
    pools.run(Row(TOKENS[:70], 0, None, 0, [5, 9]), Row(TOKENS[:3], 0, None, 1, [2]))
    for old, new in zip(before, (*pools.kv.keys, *pools.kv.values), strict=True):
        changed = (old != new).flatten(2).any(dim=2)
        written = torch.zeros_like(changed)
        written[5], written[9, :6], written[2, :3] = True, True, True
        assert torch.equal(changed, written)
