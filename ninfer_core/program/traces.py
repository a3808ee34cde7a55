"""Execution traces as flat numbers, for sessions, and back: hostile until checked."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ninfer_core.program.identity import Trace, Unit

Numbers = np.ndarray[Any, np.dtype[np.int32]]


def pack(trace: Trace) -> Numbers:
    """[start, length, at, number of rows, rows..., number of cuts, cuts...] for each unit, as int32."""
    flat: list[int] = []
    for unit in trace:
        flat += [unit.start, unit.length, unit.at, len(unit.rows), *unit.rows, len(unit.cuts), *unit.cuts]
    return np.array(flat, dtype=np.int32)


def unpack(packed: Numbers, tokens: int) -> Trace:
    """
    Raises:
        ValueError, IndexError: it is none, or could not have run.
    """
    numbers, at, units = packed.tolist(), 0, []
    while at < len(numbers):
        start, length, place, count = numbers[at : at + 4]
        rows = tuple(numbers[at + 4 : at + 4 + count])
        at += 4 + count
        cuts = tuple(numbers[at + 1 : at + 1 + numbers[at]])
        if count < 1 or len(cuts) != numbers[at]:
            raise ValueError("a trace of another form")
        at += 1 + len(cuts)
        inside = 0 <= place < len(rows) and rows[place] == length and 0 <= start <= tokens and length > 0
        if not inside or len(rows) != count or any(row < 1 for row in rows):
            raise ValueError("a trace that cannot have run")
        if any(not start < cut <= start + length for cut in cuts) or any(a >= b for a, b in pairwise(cuts)):
            raise ValueError("a trace with cuts outside its units")
        units.append(Unit(start, length, cuts, rows, place))
    return tuple(units)
