"""Restorer: a session's continuations back into a Program's memory (context-cache SES-1, SES-3).

The only path that publishes an owner without a materialization or capture. It runs between units of work; there is no
pressure in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, ImageId, LogicalPage, OwnerId
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.errors import NoRoom, SessionError
from ninfer_core.program.identity import Identity, Trace, trace_until
from ninfer_core.program.ledger.bits import mask_of
from ninfer_core.program.ledger.objects import Checkpoint, Owner, Replicas, Role
from ninfer_core.program.records import Records
from ninfer_core.program.session_content import SessionContent
from ninfer_core.program.session_directory import Directory, Fit, Room, SavedCheckpoint, SavedContinuation, Sizes
from ninfer_core.program.session_file import inconsistent
from ninfer_core.program.snapshot import ImageKey, PageKey
from ninfer_core.program.storage.physical import Physical
from ninfer_core.program.traces import unpack

Named = tuple[tuple[SourceKind, int], ...]
"""Checkpoints as people are told of them: kind and frontier."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Attributes:
    owners: the published continuations, the newest first.
    continuations: their places in the content.
    dropped: optional checkpoints that did not fit.
    left_out: the checkpoints of each continuation that did not fit.
    images, pages: place in the content -> what it became; of a page also how many tokens were taken.
    endpoints: of each owner.
    counts: checkpoints of each owner.
    lacks: as in Fit.
    """

    owners: tuple[OwnerId, ...]
    continuations: tuple[int, ...]
    dropped: Named
    left_out: tuple[Named, ...]
    images: Mapping[int, ImageKey]
    pages: tuple[Mapping[int, tuple[PageKey, int]], ...]
    endpoints: tuple[CheckpointRef, ...]
    counts: tuple[int, ...]
    lacks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Ledger:
    tokens: list[int]
    trace: Trace


class Restorer:
    """Puts checked contents into one Program's memory."""

    def __init__(self, physical: Physical, records: Records, vocab_size: int) -> None:
        self._physical = physical
        self._records = records
        self._vocab_size = vocab_size

    def selection(self, header: Mapping[str, Any], sizes: Sizes, facts: Mapping[str, Any], cells: int) -> Fit:
        """What of a session could find room here if nothing else were there: no more than that is ever read.

        Changes nothing; may be called from any thread.

        Raises:
            SessionError: another model, or a directory that contradicts itself.
        """
        if not header.get("continuations"):
            return Fit(Directory(()))
        if header.get("model") != facts:
            raise SessionError(_difference(header.get("model"), facts))
        capacity = self._physical.world.geometry.capacity
        room = Room(cells, capacity.device_images + capacity.host_images, capacity.pages)
        return self._parse(header, sizes).fit(room)

    def resident(self, content: SessionContent) -> dict[int, OwnerId]:
        """Continuations of a content that are here already: their places, and the owners that have every checkpoint of
        theirs: of the same identity and trace, and the same to the byte. Equal traces alone prove nothing of a state
        that came from a file (Trust). Changes nothing; raises SessionError.
        """
        directory = self._parse(content.header, _sizes(content))
        mine = {owner.id: owner for owner in self._physical.world.owners.values() if owner.lane is None}
        found: dict[int, OwnerId] = {}
        for saved, ledger in zip(directory.continuations, self._ledgers(content, directory), strict=True):
            wanted = [(c, self._record_of(saved, ledger, c.frontier)) for c in saved.checkpoints]
            for owner in mine.values():
                records = {c: self._records[c.ref] for c in owner.checkpoints}
                if all(
                    any(pair == (r.identity, r.trace) and self._equals(content, one, c) for c, r in records.items())
                    for one, pair in wanted
                ):
                    found[saved.place] = owner.id
                    break
        return found

    def _equals(self, content: SessionContent, saved: SavedCheckpoint, here: Checkpoint) -> bool:
        """Whether a resident checkpoint's state, keys and values are a saved one's, byte for byte."""
        image = content.tensors["images"][saved.image]
        if not torch.equal(self._physical.images.bytes_of(here.image).cpu(), image):
            return False
        for pool, (places, pages) in enumerate(zip(saved.pages, here.pages, strict=True)):
            store, rows = self._physical.pools[pool], content.tensors[f"pages.{pool}"]
            for number, (place, page) in enumerate(zip(places, pages, strict=True)):
                tokens = min(PAGE_SIZE, here.frontier - number * PAGE_SIZE)
                size = store.plane_bytes // PAGE_SIZE * tokens
                for plane, held in enumerate(store.bytes_of(page, tokens)):
                    if not torch.equal(held.cpu(), rows[place][plane * store.plane_bytes :][:size]):
                        return False
        return True

    def restorable(
        self,
        content: SessionContent,
        cells: int,
        resident: Collection[int] = (),
        releasable: Collection[OwnerId] = (),
    ) -> Fit:
        """What finds room once these owners are released. Changes nothing; raises SessionError for an inconsistent
        directory."""
        return self._parse(content.header, _sizes(content)).without(resident).fit(self._room(cells, releasable))

    def check(
        self,
        content: SessionContent,
        facts: Mapping[str, Any],
        cells: int,
        resident: Collection[int] = (),
        releasable: Collection[OwnerId] = (),
    ) -> None:
        """Whether a content can be restored once these owners are released: asked before one of them is. Changes
        nothing.

        Args:
            cells, resident: as in `restore`, with the owners released.

        Raises:
            SessionError: as `restore`.
        """
        self._checked(content, facts, self._room(cells, releasable), resident)

    def restore(
        self,
        content: SessionContent,
        facts: Mapping[str, Any],
        next_owner: int,
        cells: int,
        resident: Collection[int] = (),
    ) -> Restored:
        """Publish what fits of a content as private owners: newest continuations first, each with its endpoint or not
        at all, then the other checkpoints, deepest first.

        An image goes to a free Device slot, else to a free Host slot; pages go to Device.

        Args:
            next_owner: the first id that is free.
            cells: how many continuations have a place.
            resident: places of continuations that are here already: they are left as they are.

        Raises:
            SessionError: another model, an inconsistent directory, non-finite state, or room for nothing of it while
                nothing of it is here. Nothing changed then.
        """
        fit, ledgers = self._checked(content, facts, self._room(cells), resident)
        return self._publish(fit, content, ledgers, next_owner)

    # --- checks ---------------------------------------------------------------------------------------------------
    def _checked(
        self, content: SessionContent, facts: Mapping[str, Any], room: Room, resident: Collection[int]
    ) -> tuple[Fit, list[_Ledger]]:
        """What fits, with its ledgers. Raises SessionError as `restore`."""
        if content.header.get("model") != facts:
            raise SessionError(_difference(content.header.get("model"), facts))
        directory = self._parse(content.header, _sizes(content)).without(resident)
        fit = directory.fit(room)
        if directory.continuations and not fit.directory.continuations and not resident:
            raise _no_room(directory.continuations[0], room, fit.lacks)
        ledgers = self._ledgers(content, fit.directory)
        for place in fit.directory.images():
            if not self._physical.images.finite(content.tensors["images"][place]):
                raise SessionError("the session's state holds numbers that are not finite (state): do not use it")
        self._check_pages_finite(content, fit.directory)
        return fit, ledgers

    def _parse(self, header: Mapping[str, Any], sizes: Sizes) -> Directory:
        if header.get("continuations") == []:
            return Directory(())
        mine = (self._physical.images.image_bytes, tuple(pool.page_bytes for pool in self._physical.pools))
        try:
            if sizes.images[1] != mine[0] or tuple(width for _, width in sizes.pages) != mine[1]:
                raise ValueError("images or pages of another shape")
            return Directory.parse(header["continuations"], sizes)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise inconsistent(error) from None

    def _ledgers(self, content: SessionContent, directory: Directory) -> list[_Ledger]:
        found = []
        try:
            for continuation in directory.continuations:
                tokens = content.tensors[f"tokens.{continuation.place}"]
                if tokens.dtype != torch.int32 or int(tokens.min()) < 0 or int(tokens.max()) >= self._vocab_size:
                    raise ValueError("token ids beyond the vocabulary")
                packed = content.tensors[f"trace.{continuation.place}"]
                if packed.dtype != torch.int32 or packed.dim() != 1:
                    raise ValueError("a trace of another shape")
                found.append(_Ledger(tokens.tolist(), unpack(packed.numpy(), len(tokens))))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise inconsistent(error) from None
        return found

    def _check_pages_finite(self, content: SessionContent, directory: Directory) -> None:
        for pool, store in enumerate(self._physical.pools):
            rows = content.tensors[f"pages.{pool}"]
            for place, tokens in directory.pages(pool).items():
                if not store.finite(rows[place], tokens):
                    raise SessionError("the session's keys and values are not finite (state): do not use it")

    def _room(self, cells: int, released: Collection[OwnerId] = ()) -> Room:
        """What is free once these owners are gone."""
        world = self._physical.world
        for owner in released:
            world = world.without_owner(owner)
        free, used = world.geometry.capacity, world.used()
        images = free.device_images - used.device_images + free.host_images - used.host_images
        return Room(cells, images, tuple(a - b for a, b in zip(free.pages, used.pages, strict=True)))

    # --- publication ----------------------------------------------------------------------------------------------
    def _publish(self, fit: Fit, content: SessionContent, ledgers: list[_Ledger], next_owner: int) -> Restored:
        physical, directory = self._physical, fit.directory
        images, image_replicas = self._place_images(directory, content)
        pages = [self._place_pages(pool, directory, content) for pool in range(len(physical.pools))]
        made = image_replicas | Replicas(device_pages=mask_of(page for pool in pages for page in pool.values()))
        world, owners = physical.world, []
        for number, (continuation, ledger) in enumerate(zip(directory.continuations, ledgers, strict=True)):
            checkpoints = tuple(
                Checkpoint(
                    self._add_record(continuation, ledger, saved.frontier),
                    saved.kind,
                    saved.frontier,
                    images[saved.image],
                    tuple(tuple(pages[pool][p] for p in held) for pool, held in enumerate(saved.pages)),
                )
                for saved in continuation.checkpoints
            )
            owners.append(Owner(OwnerId(next_owner + number), Role.PRIVATE, checkpoints))
            world = world.with_owner(owners[-1])
        physical.publish(world.with_replicas(made).advanced())
        physical.settle_ids(list(images.values()), [page for pool in pages for page in pool.values()])
        return Restored(
            owners=tuple(owner.id for owner in owners),
            continuations=tuple(c.place for c in directory.continuations),
            dropped=fit.dropped,
            left_out=tuple(c.named() for c in fit.left_out),
            lacks=fit.lacks,
            images={
                place: ImageKey(images[place], physical.images.generation(images[place]), frontier)
                for place, frontier in directory.frontiers().items()
            },
            pages=tuple(self._page_keys(pool, places) for pool, places in enumerate(pages)),
            endpoints=tuple(owner.checkpoints[-1].ref for owner in owners),
            counts=tuple(len(owner.checkpoints) for owner in owners),
        )

    def _place_images(self, directory: Directory, content: SessionContent) -> tuple[dict[int, ImageId], Replicas]:
        physical, world = self._physical, self._physical.world
        device = world.geometry.capacity.device_images - world.used().device_images
        images: dict[int, ImageId] = {}
        made = Replicas()
        for place in directory.images():
            image, on_device = physical.new_image(), device > 0
            device -= on_device
            (physical.images.device_slots if on_device else physical.images.host_slots).take(image)
            physical.images.bytes_of(image).copy_(content.tensors["images"][place])
            images[place] = image
            made |= Replicas(1 << image if on_device else 0, 0 if on_device else 1 << image)
        return images, made

    def _place_pages(self, pool: int, directory: Directory, content: SessionContent) -> dict[int, LogicalPage]:
        store = self._physical.pools[pool]
        pages: dict[int, LogicalPage] = {}
        before: LogicalPage | None = None
        for place, tokens in directory.pages(pool).items():
            page = self._physical.new_page(pool)
            store.place(page, before)
            data = content.tensors[f"pages.{pool}"][place]
            size = store.plane_bytes // PAGE_SIZE * tokens
            for plane, target in enumerate(store.bytes_of(page, tokens)):
                target.copy_(data[plane * store.plane_bytes :][:size])
            store.cover(page, tokens)
            pages[place] = before = page
        return pages

    def _page_keys(self, pool: int, pages: Mapping[int, LogicalPage]) -> dict[int, tuple[PageKey, int]]:
        store = self._physical.pools[pool]
        found = {}
        for place, page in pages.items():
            held = store.content(page)
            found[place] = (PageKey(pool, page, held.epoch), held.coverage)
        return found

    def _add_record(self, continuation: SavedContinuation, ledger: _Ledger, frontier: int) -> CheckpointRef:
        return self._records.add(*self._record_of(continuation, ledger, frontier))

    @staticmethod
    def _record_of(continuation: SavedContinuation, ledger: _Ledger, frontier: int) -> tuple[Identity, Trace]:
        identity = Identity.of(ledger.tokens, continuation.cuts, continuation.mode, frontier)
        return identity, trace_until(ledger.trace, frontier)


def _no_room(newest: SavedContinuation, room: Room, lacks: Collection[str]) -> NoRoom:
    need = len(newest.endpoint.pages[0])
    return NoRoom(
        f"no room for the session (its newest continuation needs {need} KV pages, a StateImage and a place; "
        f"{room.pages[0]} pages, {room.images} images and {room.cells} places can be had): raise " + options_for(lacks)
    )


def options_for(lacks: Collection[str]) -> str:
    """What to raise where there was too little of something."""
    words = {"pages": "--kv-capacity", "images": "--device-state-slots", "places": "--max-private-continuations"}
    return " and ".join(words[axis] for axis in words if axis in lacks) or "--kv-capacity"


def _sizes(content: SessionContent) -> Sizes:
    """Of a content's tensors, whatever its header says."""
    try:
        images, tensors = content.tensors["images"], content.tensors
        pools = sum(name.startswith("pages.") for name in tensors)
        rows = [tensors[f"pages.{pool}"] for pool in range(pools)]
        count = len(content.header["continuations"])
        tokens = tuple(int(tensors[f"tokens.{i}"].numel()) for i in range(count))
        if any(block.dtype != torch.uint8 or block.dim() != 2 for block in (images, *rows)):
            raise ValueError("images or pages of another shape")
    except (KeyError, TypeError, ValueError) as error:
        raise inconsistent(error) from None
    return Sizes((len(images), images.shape[1]), tuple((len(r), r.shape[1]) for r in rows), tokens)


def _difference(saved: Any, mine: Mapping[str, Any]) -> str:
    """Which fact of the model differs, in a line."""
    if not isinstance(saved, dict):
        return "the session does not say which model it belongs to (model): restore a copy"
    other = "start the model that saved it"
    for name, what in (("dtype", "dtype"), ("layers", "layer count"), ("vocab", "vocabulary")):
        if saved.get(name) != mine[name]:
            found = str(saved.get(name))[:40]
            advice = f"start the model with --dtype {found}" if name == "dtype" else other
            return f"the session was saved with another {what} ({found}, not {mine[name]}): {advice}"
    for name, what in (("tokenizer", "tokenizer"), ("template", "chat template")):
        if saved.get(name) != mine.get(name):
            return f"the session was saved with another {what} (digest of the {what}): {other}"
    if saved.get("fingerprint") != mine["fingerprint"]:
        return f"the session belongs to another model (fingerprint of the weights): {other}"
    return f"the session belongs to another model (shape of its state): {other}"
