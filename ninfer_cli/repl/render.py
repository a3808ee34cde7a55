"""The reply in the REPL: finished Markdown blocks above the input line, the block at hand as live text. And the message
that it answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.cells import chop_cells

from ninfer_cli.cleaning import clean
from ninfer_cli.reply_view import MarkdownView, PlainView, ReplyView
from ninfer_cli.wording import counted

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.repl.screen import Screen
    from ninfer_cli.settings import Settings

_CODE = re.compile(r"\x1b\[[0-9;]*m")
LIVE_ROWS = 6
"""Rows of live text: enough to read along, few enough never to scroll the input line away."""
MOST_ECHOED = 40
"""Lines of a message that are shown again above the input line."""
MOST_CHOPPED = 4096
"""Characters, at least, that are chopped into rows of a line without end: more than LIVE_ROWS of any screen."""


class LivePlainView(PlainView):
    """PlainView for the screen: the unfinished line waits there by itself, progress is live text."""

    def __init__(self, streams: Streams, screen: Screen, *, show_reasoning: bool) -> None:
        super().__init__(streams, show_reasoning=show_reasoning)
        self._screen = screen

    def _show_progress(self, text: str) -> None:
        self._screen.show_live(text)

    def _clear_progress(self) -> None:
        self._screen.show_live("")


class LiveMarkdownView(MarkdownView):
    """MarkdownView whose unfinished block is shown by the prompt instead of being drawn and erased."""

    def __init__(self, streams: Streams, screen: Screen, *, show_reasoning: bool) -> None:
        super().__init__(streams, show_reasoning=show_reasoning)
        self._screen = screen

    def finish(self) -> None:
        self._screen.show_live("")
        super().finish()

    def _show_progress(self, text: str) -> None:
        self._screen.show_live(text)

    def _clear_progress(self) -> None:
        self._screen.show_live("")

    def _draw_tail(self) -> None:
        self._screen.show_live(self._blocks.growing)

    def _print(self, blocks: list[str]) -> None:
        if blocks:
            self._screen.show_live("")
        super()._print(blocks)


def live_view(settings: Settings, streams: Streams, screen: Screen) -> ReplyView:
    show = settings.reasoning == "show"
    if streams.out.styled and not settings.raw:
        return LiveMarkdownView(streams, screen, show_reasoning=show)
    return LivePlainView(streams, screen, show_reasoning=show)


def echoed(text: str, prompt: str, *, styled: bool) -> str:
    """A message that was sent, as it stands above its reply."""
    lines = clean(text).split("\n")
    if len(lines) > MOST_ECHOED:
        lines[MOST_ECHOED:] = [f"… and {counted(len(lines) - MOST_ECHOED, 'more line')}"]
    shown = ("\n" + " " * len(prompt)).join(lines)
    return f"\n\x1b[1m{prompt}{shown}\x1b[0m\n" if styled else f"\n{prompt}{shown}\n"


def fitting(tail: str, columns: int, rows: int) -> str:
    """The last rows of a tail, without escape codes, as many as the screen can spare.

    A long line fills several rows; it is cut from the left, where it was read already. Wide glyphs count as two cells
    and are never split over an edge, so the rows are exactly those that the terminal makes.
    """
    left = max(1, min(LIVE_ROWS, rows - 4))
    kept: list[str] = []
    for whole in reversed(tail.split("\n")):
        line = _CODE.sub("", whole).expandtabs(4)
        line = line[max(0, len(line) // MOST_CHOPPED - 1) * MOST_CHOPPED :]  # in leaps: the rows stay while it grows
        wrapped = chop_cells(line, max(columns - 1, 2)) or [""]  # the last column is left free: no terminal wraps there
        kept = wrapped[-left:] + kept
        left -= len(wrapped)
        if left <= 0:
            break
    return "\n".join(kept)
