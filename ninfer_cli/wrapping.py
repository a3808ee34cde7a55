"""Lines for a window: broken between words, what goes on stands below where it began. Nothing is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells

LEAST = 20
"""Cells: in a narrower window nothing can be read anyway."""
HANG = 2
_COLUMN = re.compile(r"(?:[*|] )? *\S+(?: \S+)*? {2,}(?=\S)")
"""What stands before the text of a table's row: a mark, a number or words, and at least two spaces."""
_ITEM = re.compile(r"\s*\S.*?(?: ·(?= )|$)")
_WORD = re.compile(r"\s*\S+(?: ·(?=\s|$))?")


def wrapped(text: str, columns: int) -> str:
    """Every line in as many rows as it takes. Items between middle dots stay whole where they can; a word wider than
    the window is left to the terminal, so that it can still be copied, unless it can be broken at wide glyphs."""
    room = max(columns - 1, LEAST)  # the last column stays free: no terminal breaks there by itself
    return "\n".join(row for line in text.split("\n") for row in _rows(line, room))


def _rows(line: str, room: int) -> list[str]:
    if cell_len(line) <= room or cell_len(line := line.rstrip()) <= room:
        return [line]  # spaces at an end would cost time with the square of their number below
    margin = " " * _hang(line, room)
    rows, row = [], ""
    for piece in _pieces(line, room - len(margin)):
        if row and cell_len(row) + cell_len(piece) > room:
            rows.append(row)
            row = margin + piece.lstrip()
        else:
            row += piece
    return [*rows, row]


def _hang(line: str, room: int) -> int:
    """Cells that further rows are indented by."""
    before = _COLUMN.match(line)
    if before and (cells := cell_len(before[0])) <= room // 2:
        return cells
    return min(len(line) - len(line.lstrip()) + HANG, room // 2)


def _pieces(line: str, room: int) -> Iterator[str]:
    """What is not broken further, each with the space before it."""
    for item in _ITEM.findall(line):
        if cell_len(item.lstrip()) <= room and "·" in line:
            yield item
            continue
        for word in _WORD.findall(item):
            if cell_len(word) == len(word):
                yield word
            else:
                yield from chop_cells(word, 2) or [word]  # a glyph, with what belongs to it; or marks of no width
