"""Retention classes: how likely one more reuse of a continuation is taken to be (context-cache VAL-4, RET-1)."""

from __future__ import annotations

from enum import Enum


class Retention(Enum):
    """A prior in the value of keeping, never an order of eviction."""

    DISPOSABLE = "disposable"
    """Nobody is expected back."""
    RECENT_PRIVATE = "recent_private"
    """A finished conversation, or an older branch of one."""
    LIVE_SESSION = "live_session"
    """What a session's key is bound to: its next turn is expected here."""

    @property
    def weight(self) -> int:
        return _WEIGHTS[self]


_WEIGHTS = {Retention.DISPOSABLE: 1, Retention.RECENT_PRIVATE: 4, Retention.LIVE_SESSION: 16}
