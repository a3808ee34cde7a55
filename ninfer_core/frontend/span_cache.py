"""SpanCache: token ids of texts seen lately, so that a long history is not tokenised again at every turn."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

MAX_CHARACTERS = 8 * 1024 * 1024
"""Text kept in all; the ids beside it take a few times as much memory."""


class SpanCache:
    """Least recently used texts go first. Every method may be called from any thread."""

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._max = max_characters
        self._held = 0
        self._ids: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._lock = Lock()

    def get(self, text: str) -> tuple[int, ...] | None:
        with self._lock:
            ids = self._ids.get(text)
            if ids is not None:
                self._ids.move_to_end(text)
            return ids

    def put(self, text: str, ids: tuple[int, ...]) -> None:
        if len(text) > self._max:
            return
        with self._lock:
            if text not in self._ids:
                self._held += len(text)
            self._ids[text] = ids
            self._ids.move_to_end(text)
            while self._held > self._max:
                old, _ = self._ids.popitem(last=False)
                self._held -= len(old)
