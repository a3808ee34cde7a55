"""LoadProgress: how far something slow has come, from whoever does it to whoever draws the bar."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """
    Attributes:
        stage: what is going on, in a word or two ("tokenizer", "weights").
        done, total: bytes; total is 0 when unknown.
        detail: the tensor or file at hand, "" at the end.
    """

    stage: str
    done: int
    total: int
    detail: str = ""
