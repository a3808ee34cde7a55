"""Numbers in messages: one turn, two turns, and from which number to which."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A number and what it counts: "1 turn", "2 turns", "0 turns"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def span(first: int, last: int) -> str:
    """What a person may choose from: "1 to 3", or "1" where there is nothing to choose."""
    return f"{first} to {last}" if first < last else str(first)
