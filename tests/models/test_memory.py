"""Which errors mean that an allocation failed."""

from __future__ import annotations

import pytest
import torch

from ninfer_core.engine.outcome import describe
from ninfer_core.models.memory import is_out_of_memory


def test_torch_on_a_cpu_says_it_in_words_only() -> None:
    with pytest.raises((RuntimeError, MemoryError)) as raised:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert is_out_of_memory(raised.value)
    assert describe(raised.value).startswith("out of memory while generating: lower --max-context")


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")]
)
def test_the_others_have_a_name(error: BaseException) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ValueError("out of memory"), KeyError("allocate")])
def test_nothing_else_is_one(error: BaseException) -> None:
    assert not is_out_of_memory(error)
