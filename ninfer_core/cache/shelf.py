"""Shelf: where each catalogued checkpoint is found, by reference and by key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ninfer_core.contract.ids import CheckpointRef, OwnerId


class Shelf:
    """Kept up to date by publication and deletion, so that nobody has to look through the catalogs."""

    def __init__(self) -> None:
        self._owners: dict[CheckpointRef, OwnerId] = {}
        self._keys: dict[CheckpointRef, bytes] = {}
        self._tails: dict[CheckpointRef, bytes] = {}
        self._holders: dict[bytes, set[CheckpointRef]] = {}
        self._stamps: dict[OwnerId, int] = {}
        self._changes = 0

    @property
    def owners(self) -> Mapping[CheckpointRef, OwnerId]:
        return self._owners

    @property
    def keys(self) -> Mapping[CheckpointRef, bytes]:
        """The short-list digest of every catalogued checkpoint. Equal digests prove nothing (ID-1)."""
        return self._keys

    @property
    def tails(self) -> Mapping[CheckpointRef, bytes]:
        """The last tokens of every catalogued checkpoint."""
        return self._tails

    @property
    def holders(self) -> Mapping[bytes, Collection[CheckpointRef]]:
        """By key, the checkpoints that have it."""
        return self._holders

    def stamp(self, owner: OwnerId) -> int:
        """Another number whenever a checkpoint of the owner, or one on a path of its, has come or gone."""
        return self._stamps.get(owner, 0)

    def touch(self, refs: Iterable[CheckpointRef]) -> None:
        """Something on the paths to these checkpoints has changed."""
        self._changes += 1
        for ref in refs:
            if ref in self._owners:
                self._stamps[self._owners[ref]] = self._changes

    def forget(self, owner: OwnerId) -> None:
        """The owner is gone."""
        self._stamps.pop(owner, None)

    def add(self, ref: CheckpointRef, key: bytes, tail: bytes, owner: OwnerId) -> None:
        """A checkpoint was catalogued."""
        self._owners[ref], self._keys[ref], self._tails[ref] = owner, key, tail
        self._holders.setdefault(key, set()).add(ref)

    def remove(self, ref: CheckpointRef) -> None:
        """A checkpoint is gone. Raises KeyError for one that is not here."""
        del self._owners[ref], self._tails[ref]
        key = self._keys.pop(ref)
        self._holders[key].discard(ref)
        if not self._holders[key]:
            del self._holders[key]

    def audit(self, expected: Mapping[CheckpointRef, OwnerId]) -> None:
        """Raises AssertionError when it holds anything else than these checkpoints."""
        assert self._owners == expected, "the shelf is not what the catalogs say"
        assert self._tails.keys() == self._keys.keys(), "a checkpoint's last tokens are missing, or left"
        found = {ref: key for key, refs in self._holders.items() for ref in refs}
        assert found == self._keys, "the shelf's keys disagree"
