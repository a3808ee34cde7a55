"""Outcome: what becomes of one inactive owner in a target; and the steps by which it may degrade (TGT-1, TGT-4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from ninfer_core.contract.ids import CheckpointRef
from ninfer_core.program.ledger.bits import minus
from ninfer_core.program.ledger.objects import NOTHING, Checkpoint, Owner, Replicas

UNKNOWN = (-1, -1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    Attributes:
        kept: the surviving checkpoints, ascending; none means that the whole owner is evicted.
        wants: the replicas that it wishes to have of what it needs. A wish for a Host replica that is not there yet is
            a demotion: it has to be copied. An object stays where any surviving owner wishes it.
        needs: (images, pages) that some replica must hold: those of the kept checkpoints. Worked out unless given.
    """

    kept: tuple[Checkpoint, ...]
    wants: Replicas
    needs: tuple[int, int] = field(default=UNKNOWN, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.needs is not UNKNOWN:
            return
        images = pages = 0
        for checkpoint in self.kept:
            images |= checkpoint.image_mask
            pages |= checkpoint.page_mask
        object.__setattr__(self, "needs", (images, pages))

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


@dataclass(frozen=True, slots=True)
class Successor:
    step: Step
    outcome: Outcome


def identity(owner: Owner, replicas: Replicas) -> Outcome:
    """The owner as it is."""
    needs = (owner.needs_images, owner.needs_pages)
    return Outcome(owner.checkpoints, replicas.only(*needs), needs)


EVICTED = Outcome((), NOTHING)


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
        yield Successor(
            Step.DROP_DEVICE_COPY,
            replace(outcome, wants=wants.without(Replicas(device_images=both_images, device_pages=both_pages))),
        )
        yield Successor(
            Step.DROP_HOST_COPY,
            replace(outcome, wants=wants.without(Replicas(host_images=both_images, host_pages=both_pages))),
        )
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
            moved = wants._replace(
                device_images=minus(wants.device_images, image), host_images=wants.host_images | image
            )
            yield Successor(Step.DEMOTE_IMAGE, Outcome(outcome.kept, moved, outcome.needs))


def _demoted_pages(outcome: Outcome) -> Iterator[Successor]:
    """The pages behind each checkpoint's frontier go to Host, and those of the first checkpoint: all of them."""
    wants, covered = outcome.wants, 0
    for checkpoint in (None, *outcome.kept[:-1]):
        covered |= 0 if checkpoint is None else checkpoint.page_mask
        pages = minus(wants.device_pages, wants.host_pages | covered)
        if pages:
            moved = wants._replace(device_pages=minus(wants.device_pages, pages), host_pages=wants.host_pages | pages)
            yield Successor(Step.DEMOTE_PAGES, Outcome(outcome.kept, moved, outcome.needs))


def without_checkpoint(outcome: Outcome, ref: CheckpointRef) -> Outcome:
    """The outcome with one checkpoint deleted and its coverage shortened; evicted when it was the last."""
    kept = tuple(checkpoint for checkpoint in outcome.kept if checkpoint.ref != ref)
    images, pages = Outcome(kept, NOTHING).needs
    return Outcome(kept, outcome.wants.only(images, pages)) if kept else EVICTED
