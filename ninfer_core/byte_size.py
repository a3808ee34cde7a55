"""Bytes for people: 3.2 GiB."""

from __future__ import annotations

from collections.abc import Callable

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count: int, to_whole: Callable[[float], int] = round) -> str:
    """A number of bytes with one decimal of its unit.

    Args:
        to_whole: math.floor for a size that may be asked for at most, math.ceil for at least: then the text, typed as
            an option, is such a size.
    """
    value, unit = float(count), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{to_whole(value)} {UNITS[unit]}" if unit == 0 else f"{to_whole(value * 10) / 10:.1f} {UNITS[unit]}"
