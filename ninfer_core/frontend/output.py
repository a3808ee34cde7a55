"""OutputSession: generated tokens to reasoning and answer text, one token at a time, with preview and commit.

The output is read as two channels. Reasoning is what stands in a think block, without the line breaks at its edges (the
template writes them); the answer is the rest, without the line breaks right behind `</think>`. Think tokens switch the
channel and are not shown; a think token that cannot switch (a `</think>` in the answer, a `<think>` after the answer
has begun) is text. End tokens end the output and are not shown. Stop strings count in the answer only.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field, replace

from ninfer_core.contract.prompt import OutputStart
from ninfer_core.frontend.stop_strings import StopStrings
from ninfer_core.frontend.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class OutputState:
    """Where the reading of the output stands. Small: it does not grow with the output.

    Attributes:
        channel: where the next text goes.
        partial: bytes of a character that is not complete, at most 3.
        held: text that is not shown yet: it could be the edge of the reasoning or the start of a stop string.
        skip_newlines: line breaks at the start of the channel are dropped.
        answered: the answer has begun.
        finish: None while the output goes on, else "stop".
    """

    channel: OutputStart
    partial: bytes = b""
    held: str = ""
    skip_newlines: bool = False
    answered: bool = False
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """What one more token would bring. Commit it, or drop it and nothing has happened.

    Attributes:
        token_id: the token; -1 for a flush.
        reasoning_delta, text_delta: text to show.
        finish: "stop" when an end token or a stop string ends the output, else None.
        stop_string: the stop string that matched, or None.
    """

    token_id: int
    reasoning_delta: str
    text_delta: str
    finish: str | None
    stop_string: str | None
    before: OutputState = field(repr=False)
    after: OutputState = field(repr=False)


@dataclass(slots=True)
class _Deltas:
    reasoning: str = ""
    text: str = ""
    stop_string: str | None = None


class OutputSession:
    """Reads one reply. Not thread-safe; `preview` changes nothing.

    Attributes:
        state: where the reading stands.
        stop_string: the stop string that ended the answer, or None.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        start: OutputStart,
        stop: tuple[str, ...] = (),
        ignore_end: bool = False,
        skip_newlines: bool = False,
    ) -> None:
        """Begin a reply.

        Args:
            tokenizer: whose token ids come.
            start: the channel that the prompt leaves open.
            stop: strings that end the answer; none may be empty.
            ignore_end: treat end tokens as text (benchmarks).
            skip_newlines: nothing but line breaks stands between a think token and the end of the prompt, so further
                ones belong to the block's edge as well.
        """
        self._tokenizer = tokenizer
        self._stops = StopStrings(stop)
        self._stop_ids = frozenset() if ignore_end else tokenizer.stop_ids
        self._open = tokenizer.think_open
        self._close = tokenizer.think_close
        self.state = OutputState(start, skip_newlines=skip_newlines)
        self.stop_string: str | None = None
        self._reasoning: list[str] = []
        self._text: list[str] = []

    @property
    def reasoning(self) -> str:
        """The reasoning shown so far."""
        return "".join(self._reasoning)

    @property
    def text(self) -> str:
        """The answer shown so far."""
        return "".join(self._text)

    @property
    def in_reasoning(self) -> bool:
        """Whether a think block is open (a thinking budget counts while it is)."""
        return self.state.channel is OutputStart.REASONING

    def preview(self, token_id: int) -> Preview:
        """What token_id would bring next. Pure.

        Raises:
            ValueError: the output has finished.
        """
        before = self.state
        if before.finish is not None:
            raise ValueError("the output has finished: no token follows")
        deltas = _Deltas()
        if token_id in self._stop_ids:
            after = replace(self._flushed(before, deltas), finish="stop")
        elif token_id == self._open and not before.answered and before.channel is OutputStart.ANSWER:
            after = self._flushed(before, deltas)
            if after.finish is None:
                after = OutputState(OutputStart.REASONING, skip_newlines=True)
        elif token_id == self._close and before.channel is OutputStart.REASONING:
            self._close_reasoning(before, deltas)
            after = OutputState(OutputStart.ANSWER, skip_newlines=True)
        else:
            after = self._read(before, self._tokenizer.token_bytes(token_id), deltas)
        return Preview(token_id, deltas.reasoning, deltas.text, after.finish, deltas.stop_string, before, after)

    def preview_flush(self) -> Preview:
        """What the end of the output (length, interrupt) would still bring. Pure."""
        deltas = _Deltas()
        after = self._flushed(self.state, deltas)
        return Preview(-1, deltas.reasoning, deltas.text, after.finish, deltas.stop_string, self.state, after)

    def commit(self, preview: Preview) -> None:
        """Make a preview happen.

        Raises:
            ValueError: another preview was committed since.
        """
        if preview.before is not self.state:
            raise ValueError("the preview is stale: another token was committed since")
        self.state = preview.after
        self.stop_string = preview.stop_string or self.stop_string
        if preview.reasoning_delta:
            self._reasoning.append(preview.reasoning_delta)
        if preview.text_delta:
            self._text.append(preview.text_delta)

    def push(self, token_id: int) -> Preview:
        """Preview and commit."""
        preview = self.preview(token_id)
        self.commit(preview)
        return preview

    def flush(self) -> Preview:
        """End the output: everything held back is shown, an incomplete character as U+FFFD. Twice is harmless."""
        preview = self.preview_flush()
        self.commit(preview)
        return preview

    def _read(self, before: OutputState, data: bytes, deltas: _Deltas) -> OutputState:
        data = before.partial + data
        text, used = codecs.utf_8_decode(data, "replace", False)
        return self._show(replace(before, partial=data[used:]), text, deltas)

    def _show(self, state: OutputState, text: str, deltas: _Deltas) -> OutputState:
        if state.skip_newlines:
            text = text.lstrip("\n")
        if not text:
            return state
        text = state.held + text
        if state.channel is OutputStart.REASONING:
            shown = text.rstrip("\n")
            deltas.reasoning += shown
            return replace(state, held=text[len(shown) :], skip_newlines=False)
        found = self._stops.find(text, state.held)
        if found is not None:
            deltas.text += text[: found.start]
            deltas.stop_string = found.string
            return replace(state, held="", partial=b"", answered=True, finish="stop")
        shown = text[: len(text) - self._stops.held_back(text)]
        deltas.text += shown
        answered = state.answered or not text.isspace()
        return replace(state, held=text[len(shown) :], skip_newlines=False, answered=answered)

    def _flushed(self, state: OutputState, deltas: _Deltas) -> OutputState:
        if state.partial:
            rest = state.partial.decode("utf-8", "replace")
            state = self._show(replace(state, partial=b""), rest, deltas)
        if state.channel is OutputStart.REASONING:
            deltas.reasoning += state.held
        else:
            deltas.text += state.held
        return replace(state, held="")

    def _close_reasoning(self, state: OutputState, deltas: _Deltas) -> None:
        """The think block ends: its last line breaks are the template's."""
        if state.partial:
            self._show(replace(state, partial=b""), state.partial.decode("utf-8", "replace"), deltas)
