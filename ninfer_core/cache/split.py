"""Split: what it costs that a prefill pass ends early (context-cache EVI-5, VAL-7)."""

from __future__ import annotations

from ninfer_core.cache.cost import CostModel


def split_cost(cost: CostModel, now: int, at: int, end: int, chunk: int) -> float:
    """SplitCost: by how many nanoseconds the rest of a prefill takes longer if its next pass ends at `at`.

    However it is divided, the tokens and their attention pairs are the same: it is the price of one pass more, and
    nothing where the rest takes as many passes anyway.

    Args:
        now, end: the frontiers between which the prefill is still to come.
        at: after now and before end, at most a chunk from now.
        chunk: the most tokens of one pass.
    """
    more = 1 + _passes(end - at, chunk) - _passes(end - now, chunk)
    return more * cost.prefill_cost.batch_ns


def _passes(tokens: int, chunk: int) -> int:
    return -(-tokens // chunk)
