"""Portfolio: what all surviving owners together need and wish, kept up to date while a planner tries targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.ledger.objects import Owner, Replicas
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.target import Source, SourceMode


class Survivors(NamedTuple):
    """
    Attributes:
        images, pages: what some replica must hold.
        wants: the replicas that survivors wish.
    """

    images: int
    pages: int
    wants: Replicas


class _Node(NamedTuple):
    """The union over a range of owners, six sets side by side."""

    images: int
    pages: int
    device_images: int
    host_images: int
    device_pages: int
    host_pages: int


_EMPTY = _Node(0, 0, 0, 0, 0, 0)


class Portfolio:
    """A binary tree of unions with one leaf per owner of a world. A change of k owners costs k paths to the root, not
    one pass over all owners. Changes only itself; the world is never touched.
    """

    def __init__(self, world: World) -> None:
        owners = list(world.owners.values())
        self._owners = owners
        self._at = {owner.id: i for i, owner in enumerate(owners)}
        self._size = 1 << max(0, len(owners) - 1).bit_length()
        self._identities = [_as_it_is(owner, world.replicas) for owner in owners]
        spare = [_EMPTY] * (self._size - len(owners))
        self._nodes = [_EMPTY] * self._size + self._identities + spare
        for at in range(self._size - 1, 0, -1):
            self._nodes[at] = _join(self._nodes[2 * at], self._nodes[2 * at + 1])
        self._changed: dict[OwnerId, Outcome] = {}

    def survivors(self, outcomes: Mapping[OwnerId, Outcome]) -> Survivors:
        """The union with these outcomes in place of their owners' present state; all others stay as they are."""
        if 2 * len(outcomes) > len(self._owners):
            return self._folded(outcomes)
        nodes, size = self._nodes, self._size
        dirty = set()
        for owner_id in self._changed.keys() - outcomes.keys():
            at = self._at[owner_id]
            nodes[size + at] = self._identities[at]
            dirty.add((size + at) >> 1)
            del self._changed[owner_id]
        for owner_id, outcome in outcomes.items():
            # By identity: comparing outcomes would cost more than joining their sets again.
            if self._changed.get(owner_id) is outcome or owner_id not in self._at:
                continue
            at = self._at[owner_id]
            nodes[size + at] = _leaf(self._owners[at], outcome)
            dirty.add((size + at) >> 1)
            self._changed[owner_id] = outcome
        while dirty:
            above = set()
            for at in dirty:
                if at:
                    nodes[at] = _join(nodes[2 * at], nodes[2 * at + 1])
                    above.add(at >> 1)
            dirty = above
        root = nodes[1]
        return Survivors(root[0], root[1], Replicas(root[2], root[3], root[4], root[5]))

    def _folded(self, outcomes: Mapping[OwnerId, Outcome]) -> Survivors:
        """One pass, which leaves the tree as it is: for a target that most owners change in."""
        total = _EMPTY
        for at, owner in enumerate(self._owners):
            outcome = outcomes.get(owner.id)
            if outcome is None:
                total = _join(total, self._identities[at])
            elif outcome.kept or owner.lane is not None:
                total = _join(total, _leaf(owner, outcome))
        return Survivors(total[0], total[1], Replicas(total[2], total[3], total[4], total[5]))


def unchanged(world: World, source: Source | None) -> Survivors:
    """The union when nobody is degraded; a consumed source is left with its lineage. One pass, no tree."""
    images = pages = 0
    for owner in world.owners.values():
        if source is None or owner.id != source.owner or source.mode is not SourceMode.CONSUME:
            images |= owner.needs_images
            pages |= owner.needs_pages
        else:
            for checkpoint in source.lineage:
                images |= checkpoint.image_mask
                pages |= checkpoint.page_mask
    return Survivors(images, pages, world.replicas.only(images, pages))


def _as_it_is(owner: Owner, have: Replicas) -> _Node:
    images, pages = owner.needs_images, owner.needs_pages
    return _Node(
        images,
        pages,
        have.device_images & images,
        have.host_images & images,
        have.device_pages & pages,
        have.host_pages & pages,
    )


def _leaf(owner: Owner, outcome: Outcome) -> _Node:
    """A running owner needs what its sequence needs, whatever else it wishes."""
    images, pages = outcome.needs if owner.lane is None else (owner.needs_images, owner.needs_pages)
    wants = outcome.wants
    return _Node(images, pages, wants.device_images, wants.host_images, wants.device_pages, wants.host_pages)


def _join(left: _Node, right: _Node) -> _Node:
    if right is _EMPTY:
        return left
    a, b, c, d, e, f = left
    g, h, i, j, k, m = right
    return _Node(a | g, b | h, c | i, d | j, e | k, f | m)
