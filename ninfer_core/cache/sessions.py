"""SessionIndex: which continuation a session key is bound to (context-cache RET-3, INV-14). Program never reads it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ninfer_core.contract.ids import OwnerId


def session_digest(key: str) -> bytes:
    """What is kept of a session key: a stable digest, never the text (VAL-1)."""
    return hashlib.blake2b(key.encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Binding:
    """order: publication order of the request that made it."""

    owner: OwnerId
    order: int


@dataclass(frozen=True, slots=True)
class Bound:
    """
    Attributes:
        accepted: False when a later request was bound already: the result is anonymous cache then.
        before: what the key was bound to until now.
    """

    accepted: bool
    before: OwnerId | None = None


class SessionIndex:
    """Bindings only ever move to larger publication orders, also across an abort or a removed owner."""

    def __init__(self) -> None:
        self._bindings: dict[bytes, Binding] = {}
        self._highest: dict[bytes, int] = {}

    def owner_of(self, session: bytes) -> OwnerId | None:
        found = self._bindings.get(session)
        return None if found is None else found.owner

    def bind(self, session: bytes, owner: OwnerId, order: int) -> Bound:
        """Bind a result, unless a later request was bound already (INV-14)."""
        if order <= self._highest.get(session, 0):
            return Bound(accepted=False)
        before = self._bindings.get(session)
        self._bindings[session] = Binding(owner, order)
        self._highest[session] = order
        return Bound(accepted=True, before=None if before is None else before.owner)

    def forget(self, owner: OwnerId) -> None:
        """The owner is gone; its order still stands against late results."""
        for session in [s for s, binding in self._bindings.items() if binding.owner == owner]:
            del self._bindings[session]

    def prune(self, oldest: int) -> None:
        """Forget the orders of unbound sessions that no request submitted from oldest on can undercut."""
        for session in [s for s, order in self._highest.items() if order < oldest and s not in self._bindings]:
            del self._highest[session]

    def owners(self) -> frozenset[OwnerId]:
        return frozenset(binding.owner for binding in self._bindings.values())
