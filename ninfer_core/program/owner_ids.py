"""OwnerIds: names for owners to come. None is ever given twice."""

from __future__ import annotations

from ninfer_core.contract.ids import OwnerId


class OwnerIds:
    """Ascending from 1."""

    def __init__(self) -> None:
        self._next = 1

    @property
    def next(self) -> OwnerId:
        """The name that comes next, not yet given."""
        return OwnerId(self._next)

    def take(self, count: int = 1) -> OwnerId:
        """Give count names in a row. Returns the first."""
        first = self.next
        self._next += count
        return first
