"""Draw README's picture of the chat from a real run: `python examples/picture.py` (needs the test extras, no display).

The chat runs in a pseudo-terminal on the demo model; what its screen shows in the end becomes chat.svg. The times in it
are those of the machine and the moment.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import pyte  # noqa: E402

from tests.cli.test_chat_real import Real  # noqa: E402
from tests.support.pseudo_terminal import Terminal  # noqa: E402

COLUMNS, ROWS = 116, 42
CELL, LINE, EDGE = 8.4, 18, 14
"""Pixels: a cell's width, a row's height, the margin."""
COLOURS = {"brightblack": "#8b949e", "green": "#7ee787", "cyan": "#79c0ff", "red": "#ff7b72", "brown": "#e3b341"}
TEXT, PAPER, BAR = "#e6edf3", "#0d1117", "#30363d"
DIM = re.compile(rb"\x1b\[(0;)?2m")
PROMPT = "no turn yet"
TYPED = (
    ("My name is Bela and I live in Torvik.", "TTFT"),
    ("What is my name?", "TTFT"),
    ("/branch home", "branch home"),
    ("/edit 1 My name is Mira and I live in Arvo.", "TTFT"),
    ("What is my name?", "TTFT"),
    ("/tree", "turn 2: "),
    ("/switch home", "[home]"),
    ("Where do I live?", "TTFT"),
)


class Dimmed(pyte.ByteStream):
    """pyte knows no dim text: it is drawn in grey."""

    def feed(self, data: bytes) -> None:
        super().feed(DIM.sub(lambda match: b"\x1b[" + (match[1] or b"") + b"90m", data))


def run() -> Any:
    """The screen after everything was typed."""
    with tempfile.TemporaryDirectory() as home, Terminal(Real(Path(home)), "chat", "--seed", "1", "--greedy") as t:
        t.child.timeout = 300
        t.record._stream = Dimmed(t.record.screen)
        t.resize(COLUMNS, ROWS)
        t.sees(PROMPT)
        for line, sign in TYPED:
            t.type(line + "\r")
            t.sees(sign)
            t.sees("\x1b[?25h")  # the input line is drawn again
            wait(t)
        return t.record.screen


def wait(t: Terminal) -> None:
    """Until the screen rests."""
    import pexpect

    while t.child.expect([pexpect.TIMEOUT, rb"[\s\S]+"], timeout=1.5):
        pass


def runs(row: Any) -> Iterator[tuple[int, str, Any]]:
    """A row's pieces of one style: where they begin, their text, a cell of theirs."""
    cells = [(x, row[x]) for x in range(COLUMNS)]
    for _, group in groupby(cells, key=lambda cell: (cell[1].fg, cell[1].bold, cell[1].italics, cell[1].reverse)):
        piece = list(group)
        yield piece[0][0], "".join(cell.data for _, cell in piece), piece[0][1]


def svg(screen: Any) -> str:
    rows = [y for y in range(screen.lines) if "".join(screen.buffer[y][x].data for x in range(COLUMNS)).strip()]
    height = (rows[-1] + 1) * LINE + 2 * EDGE
    width = round(COLUMNS * CELL) + 2 * EDGE
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="14" '
        "font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\">",
        "<title>ninfer chat: two branches of one conversation</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
    ]
    for y in range(rows[-1] + 1):
        for x, text, cell in runs(screen.buffer[y]):
            left, top = EDGE + x * CELL, EDGE + y * LINE
            if cell.reverse:
                found.append(
                    f'<rect x="{left:.1f}" y="{top}" width="{len(text) * CELL:.1f}" height="{LINE}" fill="{BAR}"/>'
                )
            if not text.strip():
                continue
            style = ' font-weight="bold"' * cell.bold + ' font-style="italic"' * cell.italics
            kept = text.rstrip()
            left += (len(kept) - len(kept.lstrip())) * CELL
            kept = kept.strip()
            found.append(
                f'<text x="{left:.1f}" y="{top + 13}" textLength="{len(kept) * CELL:.1f}" '
                f'fill="{COLOURS.get(cell.fg, TEXT)}"{style} xml:space="preserve">{escape(kept)}</text>'
            )
    return "\n".join([*found, "</svg>", ""])


if __name__ == "__main__":
    (HERE / "chat.svg").write_text(svg(run()), encoding="utf-8")
