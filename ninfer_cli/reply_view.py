"""How one reply reaches the screen while it is generated. One view lives for one reply."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Protocol

from ninfer_cli.cleaning import Cleaner
from ninfer_cli.markdown import Blocks, render
from ninfer_cli.output import ERASE_LINE, Stream, Streams
from ninfer_cli.wording import counted

if TYPE_CHECKING:
    from ninfer_cli.settings import Settings


class ReplyView(Protocol):
    """Called in order: prefilled*, then deltas, then finish once, also after an error or an interrupt."""

    def prefilled(self, done: int, total: int) -> None: ...

    def reasoning(self, text: str) -> None: ...

    def text(self, text: str) -> None: ...

    def finish(self) -> None: ...


class SilentView:
    """Shows nothing: --json prints the whole result at the end."""

    def prefilled(self, done: int, total: int) -> None:
        pass

    def reasoning(self, text: str) -> None:
        pass

    def text(self, text: str) -> None:
        pass

    def finish(self) -> None:
        pass


class Channel:
    """Text in pieces for one stream: cleaned on a terminal, untouched elsewhere."""

    def __init__(self, stream: Stream, *, dim: bool = False) -> None:
        self.stream = stream
        self.open_line = False
        self._cleaner = Cleaner() if stream.terminal else None
        self._dim = dim

    def write(self, text: str) -> None:
        self._put(self._cleaner.feed(text) if self._cleaner else text)

    def end_line(self) -> None:
        """Write what the cleaner held back, and a newline unless the last line has one."""
        if self._cleaner:
            self._put(self._cleaner.finish())
        if self.open_line:
            self.stream.write("\n")
            self.open_line = False

    def _put(self, text: str) -> None:
        if text:
            self.open_line = not text.endswith("\n")
            self.stream.write(self.stream.dim(text) if self._dim else text)


class PlainView:
    """The answer as it comes; reasoning on standard error, dim where it can be."""

    def __init__(self, streams: Streams, *, show_reasoning: bool) -> None:
        self._streams = streams
        self._reasoning = Channel(streams.err, dim=True) if show_reasoning and not streams.quiet else None
        self._reasoned = False
        self._answer = Channel(streams.out)
        self._progress = False

    def prefilled(self, done: int, total: int) -> None:
        """A prompt that takes more than one step shows how far it was read."""
        if done < total:
            self._show_progress(f"reading the prompt: {done} of {counted(total, 'token')}")
            self._progress = True
        else:
            self._clear_progress()

    def reasoning(self, text: str) -> None:
        if self._reasoning:
            self._reasoned = True
            self._reasoning.write(text)

    def text(self, text: str) -> None:
        self._leave_reasoning()
        self._show(text)

    def finish(self) -> None:
        self._clear_progress()
        self._leave_reasoning()
        self._answer.end_line()

    def _show(self, text: str) -> None:
        self._answer.write(text)

    def _show_progress(self, text: str) -> None:
        if self._streams.err.styled and not self._streams.quiet:
            self._streams.err.write(ERASE_LINE + self._streams.err.dim(text))

    def _clear_progress(self) -> None:
        if self._progress and self._streams.err.styled and not self._streams.quiet:
            self._streams.err.write(ERASE_LINE)
        self._progress = False

    def _leave_reasoning(self) -> None:
        if self._reasoning and self._reasoned:
            self._reasoned = False
            self._reasoning.end_line()
            if self._streams.err.terminal:
                self._streams.err.write("\n")


class MarkdownView(PlainView):
    """The answer as rendered Markdown blocks on a styled terminal; a block that is not finished shows its last line."""

    def __init__(self, streams: Streams, *, show_reasoning: bool) -> None:
        super().__init__(streams, show_reasoning=show_reasoning)
        self._cleaner = Cleaner()
        self._blocks = Blocks()
        self._shown = False
        self._tail = False

    def finish(self) -> None:
        super().finish()
        self._print([*self._blocks.feed(self._cleaner.finish()), *self._blocks.finish()])

    def _show(self, text: str) -> None:
        self._print(self._blocks.feed(self._cleaner.feed(text)))
        self._draw_tail()

    def _print(self, blocks: list[str]) -> None:
        out = self._streams.out
        if self._tail:
            out.write(ERASE_LINE)
            self._tail = False
        for block in blocks:
            out.write(("\n" if self._shown else "") + render(block))
            self._shown = True

    def _draw_tail(self) -> None:
        """One line, cut to the terminal's width so that it never wraps and one erase removes it."""
        from rich.cells import cell_len, set_cell_size

        tail = self._blocks.pending.expandtabs()
        room = max(shutil.get_terminal_size().columns - 1, 8)
        while cell_len(tail) > room:
            tail = "…" + tail[max(2, (cell_len(tail) - room) // 2 + 1) :]
        self._streams.out.write(ERASE_LINE + self._streams.out.dim(set_cell_size(tail, cell_len(tail))))
        self._tail = True


def view_for(settings: Settings, streams: Streams) -> ReplyView:
    if settings.json:
        return SilentView()
    show = settings.reasoning == "show"
    if streams.out.styled and not settings.raw:
        return MarkdownView(streams, show_reasoning=show)
    return PlainView(streams, show_reasoning=show)
