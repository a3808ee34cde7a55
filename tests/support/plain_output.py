"""An output session without a vocabulary: token n reads as "<n>", some tokens end the output or open reasoning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class PlainPreview:
    token_id: int
    reasoning_delta: str = ""
    text_delta: str = ""
    finish: str | None = None


class PlainOutput:
    """`trouble`, when set, is called with every previewed token and may raise."""

    def __init__(self, end: int | None = None, reasoning_until: int | None = None) -> None:
        self.end = end
        self.reasoning_until = reasoning_until
        self.in_reasoning = reasoning_until is not None
        self.trouble: Callable[[int], None] = lambda token: None
        self.text, self.reasoning = "", ""

    def preview(self, token_id: int) -> PlainPreview:
        self.trouble(token_id)
        shown = "" if token_id == self.end else f"<{token_id}>"
        finish = "stop" if token_id == self.end else None
        if self.in_reasoning:
            return PlainPreview(token_id, reasoning_delta=shown, finish=finish)
        return PlainPreview(token_id, text_delta=shown, finish=finish)

    def commit(self, preview: PlainPreview) -> None:
        self.text += preview.text_delta
        self.reasoning += preview.reasoning_delta
        if preview.token_id == self.reasoning_until:
            self.in_reasoning = False

    def flush(self) -> PlainPreview:
        return PlainPreview(-1)
