"""Beginnings: catalogued owners by the first tokens of their paths, so that a prompt is compared with few of them.

A short list only: Program verifies every match (ID-1).
"""

from __future__ import annotations

from collections import Counter

from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.identity import Identity

LENGTH = 16
"""Tokens that tell owners apart."""


class Beginnings:
    """One for each owner: the first tokens of its shallowest checkpoint, as many as there are up to LENGTH. Its other
    checkpoints lie on the same path, and later it only loses some: the beginning stays a prefix of all.
    """

    def __init__(self) -> None:
        self._tokens: dict[OwnerId, bytes] = {}
        self._owners: dict[bytes, list[OwnerId]] = {}
        self._sizes: Counter[int] = Counter()

    def add(self, owner: OwnerId, shallowest: Identity) -> None:
        """An owner was catalogued."""
        beginning = shallowest.tokens[: 4 * LENGTH]
        self._tokens[owner] = beginning
        self._owners.setdefault(beginning, []).append(owner)
        self._sizes[len(beginning)] += 1

    def remove(self, owner: OwnerId) -> None:
        """An owner is gone. Raises KeyError for one that is not here."""
        beginning = self._tokens.pop(owner)
        self._owners[beginning].remove(owner)
        if not self._owners[beginning]:
            del self._owners[beginning]
        self._sizes[len(beginning)] -= 1
        if not self._sizes[len(beginning)]:
            del self._sizes[len(beginning)]

    def shared_with(self, prompt: Identity) -> list[OwnerId]:
        """The owners whose beginning the prompt begins with: all that can have a match. The others share fewer than
        LENGTH tokens with it."""
        found: list[OwnerId] = []
        for size in self._sizes:
            if size <= len(prompt.tokens):
                found += self._owners.get(prompt.tokens[:size], ())
        return found

    def audit(self, owners: set[OwnerId]) -> None:
        """Raises AssertionError when it holds other owners than these."""
        assert self._tokens.keys() == owners, "beginnings of other owners than the catalogs'"
        listed = {owner: beginning for beginning, found in self._owners.items() for owner in found}
        assert listed == self._tokens, "the beginnings disagree"
