"""Steps: planning in batches. Between two of Program's operations it may be left alone while rows decode, all within
one planning session and one resource revision; once it has ended nothing of it is taken up again (PLAN-7).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[Any, None, T]
"""Yields wherever it may be left alone, as long as the resource revision stays: True where nothing is to be done before
copies in flight have landed. Returns its result."""


class Abandoned(Exception):
    """Raised inside steps whose result nobody wants any more: what they hold open ends. A generator that is only
    forgotten gives no more than its claim back, since what it would settle may be gone already."""


def whole(steps: Steps[T]) -> T:
    """Go through all of them at once."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
