"""Hashing: what a test sees of the bytes that a fingerprint takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from blake3 import blake3

from ninfer_core.models import fingerprint as module


class Hashing:
    """Stands in for blake3 within the fingerprint: counts the bytes of weights, and calls `seen` before each piece."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        self.seen: Callable[[], object] = lambda: None
        outer = self

        class Counted:
            AUTO = blake3.AUTO

            def __init__(self, *data: bytes, max_threads: int = 1) -> None:
                self._inner = blake3(*data, max_threads=max_threads)

            def update(self, data: Any) -> None:
                if isinstance(data, memoryview):
                    outer.seen()
                    outer.taken += data.nbytes
                self._inner.update(data)

            def digest(self) -> bytes:
                return self._inner.digest()

            def hexdigest(self, length: int) -> str:
                return self._inner.hexdigest(length=length)

        monkeypatch.setattr(module, "blake3", Counted)
