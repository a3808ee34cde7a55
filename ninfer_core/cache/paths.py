"""PathIndex: which catalogued checkpoint lies on the path to which other one (context-cache DEF-11).

A checkpoint that was deleted can be rebuilt from every survivor whose identity is a prefix of its own, whoever owns it.
The relation never changes while both exist, so it is worked out once, at publication.
"""

from __future__ import annotations

from collections.abc import Callable

from ninfer_core.contract.ids import CheckpointRef

IsPrefix = Callable[[CheckpointRef, CheckpointRef], bool]
"""Program's exact answer whether the first checkpoint's identity is a prefix of the second's, or the same."""


class PathIndex:
    """Ancestors (on the way to a checkpoint) and descendants of every catalogued checkpoint."""

    def __init__(self, is_prefix: IsPrefix) -> None:
        self._is_prefix = is_prefix
        self._ancestors: dict[CheckpointRef, frozenset[CheckpointRef]] = {}
        self._descendants: dict[CheckpointRef, frozenset[CheckpointRef]] = {}

    def add(self, ref: CheckpointRef) -> None:
        """A checkpoint was catalogued. Nothing happens when it is known."""
        if ref in self._ancestors:
            return
        above = frozenset(other for other in self._ancestors if self._is_prefix(other, ref))
        below = frozenset(other for other in self._ancestors if self._is_prefix(ref, other))
        for other in above:
            self._descendants[other] |= {ref}
        for other in below:
            self._ancestors[other] |= {ref}
        self._ancestors[ref] = above
        self._descendants[ref] = below

    def remove(self, ref: CheckpointRef) -> None:
        """A checkpoint is gone."""
        for other in self._ancestors.pop(ref):
            if other in self._descendants:
                self._descendants[other] -= {ref}
        for other in self._descendants.pop(ref):
            if other in self._ancestors:
                self._ancestors[other] -= {ref}

    def __contains__(self, ref: CheckpointRef) -> bool:
        return ref in self._ancestors

    def known(self) -> frozenset[CheckpointRef]:
        return frozenset(self._ancestors)

    def ancestors(self, ref: CheckpointRef) -> frozenset[CheckpointRef]:
        return self._ancestors[ref]

    def descendants(self, ref: CheckpointRef) -> frozenset[CheckpointRef]:
        return self._descendants[ref]
