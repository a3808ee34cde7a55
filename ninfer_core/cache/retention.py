"""Retention classes: how likely one more reuse of a continuation is taken to be (context-cache VAL-4, RET-1)."""

from __future__ import annotations

from enum import Enum

from ninfer_core.contract.cache_limits import DEMAND_WINDOW


class Retention(Enum):
    """A prior in the value of keeping, never an order of eviction.

    Attributes:
        label: for people.
        weight: how many reuses one is taken to be worth.
    """

    DISPOSABLE = "disposable", 1
    """Nobody is expected back: it was asked for without a session, or nobody has come for long."""
    RECENT_PRIVATE = "recent_private", 4
    """A finished or restored conversation, or an older branch of one."""
    LIVE_SESSION = "live_session", 16
    """What a session's key is bound to: its next turn is expected here."""

    def __init__(self, label: str, weight: int) -> None:
        self.label = label
        self.weight = weight

    def after(self, age: int) -> Retention:
        """What is left of it when nobody has come for so many materializations: one class less for each demand window
        that has gone by. Who has stayed away as long as that is no more expected than a stranger."""
        if age < DEMAND_WINDOW:  # asked of everybody in each planning session, and true of most
            return self
        return _ASCENDING[max(0, _ASCENDING.index(self) - age // DEMAND_WINDOW)]


_ASCENDING = tuple(Retention)
