"""Outcome: what becomes of one inactive owner in a target; and the steps by which it may degrade (TGT-1, TGT-4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from msgspec import Struct

from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.program.ledger.bits import minus
from ninfer_core.program.ledger.objects import NOTHING, Checkpoint, Owner, Replicas, needs_of


class Outcome(Struct, frozen=True):
    """
    Attributes:
        kept: the surviving checkpoints, ascending; none means that the whole owner is evicted.
        wants: the replicas that it wishes to have of what it needs. A wish for a Host replica that is not there yet is
            a demotion: it has to be copied. An object stays where any surviving owner wishes it.
        needs: (images, pages) that some replica must hold: those of the kept checkpoints (see `needs_of`).
    """

    kept: tuple[Checkpoint, ...]
    wants: Replicas
    needs: tuple[int, int]

    @classmethod
    def in_place(cls, kept: tuple[Checkpoint, ...], replicas: Replicas) -> Outcome:
        """These checkpoints kept, each object of theirs wished where it lies in replicas."""
        images, pages = needs = needs_of(kept)
        return cls(kept, replicas.only(images, pages), needs)

    @property
    def on_device(self) -> bool:
        """Whether any of it wishes to be there."""
        return bool(self.wants.device_images or self.wants.device_pages)

    @property
    def evicted(self) -> bool:
        return not self.kept


class Step(Enum):
    """The monotone degradations of TGT-4."""

    DROP_DEVICE_COPY = "drop_device_copy"
    DROP_HOST_COPY = "drop_host_copy"
    DEMOTE_IMAGE = "demote_image"
    DEMOTE_PAGES = "demote_pages"
    DELETE_CHECKPOINT = "delete_checkpoint"
    EVICT = "evict"


class Successor(Struct, frozen=True):
    step: Step
    outcome: Outcome


def identity(owner: Owner, replicas: Replicas) -> Outcome:
    """The owner as it is."""
    needs = (owner.needs_images, owner.needs_pages)
    return Outcome(owner.checkpoints, replicas.only(*needs), needs)


EVICTED = Outcome((), NOTHING, (0, 0))


class UnchangedOutcomes(Mapping[OwnerId, Outcome]):
    """Owners as they are, each worked out when it is asked for: of many, a planner looks at few."""

    def __init__(self, owners: Iterable[Owner], replicas: Replicas) -> None:
        self._owners = {owner.id: owner for owner in owners}
        self._replicas = replicas
        self._known: dict[OwnerId, Outcome] = {}

    def __getitem__(self, owner: OwnerId) -> Outcome:
        found = self._known.get(owner)
        if found is None:
            found = self._known[owner] = identity(self._owners[owner], self._replicas)
        return found

    def __iter__(self) -> Iterator[OwnerId]:
        return iter(self._owners)

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, owner: object) -> bool:
        return owner in self._owners


def successors(outcome: Outcome, host_images: bool = True, host_pages: bool = True) -> Iterator[Successor]:
    """Every outcome one step further down, in canonical order.

    A step that frees nothing by itself is offered too: with another owner's it may release a last reference (TGT-5).

    Args:
        host_images, host_pages: whether this machine has a Host tier for them at all.
    """
    if outcome.evicted:
        return
    wants = outcome.wants
    both_images, both_pages = wants.device_images & wants.host_images, wants.device_pages & wants.host_pages
    if both_images or both_pages:
        on_host = wants.without(Replicas(device_images=both_images, device_pages=both_pages))
        yield Successor(Step.DROP_DEVICE_COPY, Outcome(outcome.kept, on_host, outcome.needs))
        on_device = wants.without(Replicas(host_images=both_images, host_pages=both_pages))
        yield Successor(Step.DROP_HOST_COPY, Outcome(outcome.kept, on_device, outcome.needs))
    if host_images:
        yield from _demoted_images(outcome)
    if host_pages:
        yield from _demoted_pages(outcome)
    if len(outcome.kept) > 1:
        for checkpoint in outcome.kept:
            yield Successor(Step.DELETE_CHECKPOINT, without_checkpoint(outcome, checkpoint.ref))
    yield Successor(Step.EVICT, EVICTED)


def _demoted_images(outcome: Outcome) -> Iterator[Successor]:
    """Each image that is on Device only goes to Host."""
    wants, seen = outcome.wants, 0
    for checkpoint in outcome.kept:
        image = minus(checkpoint.image_mask & wants.device_images, wants.host_images | seen)
        if image:
            seen |= image
            moved = Replicas(
                minus(wants.device_images, image), wants.host_images | image, wants.device_pages, wants.host_pages
            )
            yield Successor(Step.DEMOTE_IMAGE, Outcome(outcome.kept, moved, outcome.needs))


def _demoted_pages(outcome: Outcome) -> Iterator[Successor]:
    """The pages behind each checkpoint's frontier go to Host, and those of the first checkpoint: all of them."""
    wants, covered = outcome.wants, 0
    for checkpoint in (None, *outcome.kept[:-1]):
        covered |= 0 if checkpoint is None else checkpoint.page_mask
        pages = minus(wants.device_pages, wants.host_pages | covered)
        if pages:
            moved = Replicas(
                wants.device_images, wants.host_images, minus(wants.device_pages, pages), wants.host_pages | pages
            )
            yield Successor(Step.DEMOTE_PAGES, Outcome(outcome.kept, moved, outcome.needs))


def without_checkpoint(outcome: Outcome, ref: CheckpointRef) -> Outcome:
    """The outcome with one checkpoint deleted and its coverage shortened; evicted when it was the last."""
    kept = tuple(checkpoint for checkpoint in outcome.kept if checkpoint.ref != ref)
    return Outcome.in_place(kept, outcome.wants) if kept else EVICTED
