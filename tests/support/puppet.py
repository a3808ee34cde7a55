"""Puts words into a model's mouth, and notes what it would have said itself at each place."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from torch import Tensor

from ninfer_core.models.model import Model


class Puppet:
    """While it has words, each drawn token is the next of them; one row draws at a time.

    Attributes:
        own: the model's own greedy choice at every place since `say`.
    """

    def __init__(self, model: Model) -> None:
        self._logits = model.logits
        self._words: deque[int] = deque()
        self.own: list[int] = []
        model.logits = self._speak  # type: ignore[method-assign]

    def say(self, words: Sequence[int]) -> None:
        self._words = deque(words)
        self.own = []

    def _speak(self, hidden: Tensor) -> Tensor:
        logits = self._logits(hidden)
        self.own += logits.argmax(-1).tolist()
        if self._words:
            assert len(logits) == 1, "words are for one row at a time"
            logits = logits.clone()
            logits[0, self._words.popleft()] = 1e4
        return logits
