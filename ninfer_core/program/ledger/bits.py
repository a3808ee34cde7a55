"""Sets of small integers as one Python int: union, difference and size are single operations."""

from __future__ import annotations

from collections.abc import Iterable


def mask_of(members: Iterable[int]) -> int:
    """The set of members."""
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def members(mask: int) -> list[int]:
    """Ascending members. Linear in the mask's length, not in its length times its size."""
    text = f"{mask:b}"
    top, at, found = len(text) - 1, text.rfind("1"), []
    while at >= 0:
        found.append(top - at)
        at = text.rfind("1", 0, at)
    return found


def lowest(mask: int) -> int:
    """The least member of a set that has one."""
    return (mask & -mask).bit_length() - 1


def lowest_clear(taken: int, within: int) -> int:
    """The least member of within that is not taken; -1 when there is none."""
    free = within & ~taken
    return lowest(free) if free else -1
