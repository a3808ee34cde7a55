"""Saving and restoring continuations (context-cache SES-1 to SES-3): between the ledger and a session file's content.

The only path that publishes an owner without a materialization or capture. It runs between units of work; there is no
pressure in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, Frontier, ImageId, LogicalPage, OwnerId
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.errors import SessionError
from ninfer_core.models.model import Model
from ninfer_core.program.identity import Identity, Trace, Unit, decode, trace_until
from ninfer_core.program.ledger.bits import mask_of
from ninfer_core.program.ledger.objects import Checkpoint, Owner, Replicas, Role
from ninfer_core.program.records import Records
from ninfer_core.program.session_file import SessionContent
from ninfer_core.program.storage.page_store import pages_for
from ninfer_core.program.storage.physical import Physical


@dataclass(frozen=True, slots=True)
class Restored:
    """Attributes:
    owners: the published continuations, in the file's order.
    dropped: (kind, frontier) of optional checkpoints that did not fit.
    """

    owners: tuple[OwnerId, ...]
    dropped: tuple[tuple[SourceKind, int], ...]


def facts(model: Model) -> dict[str, Any]:
    """What a state's model must agree in, beside its weights."""
    layout = model.layout
    return {
        "fingerprint": model.fingerprint(),
        "dtype": str(layout.dtype).removeprefix("torch."),
        "layers": [layout.gdn_layers, layout.attention_layers],
        "state": [*layout.recurrent_shape, *layout.conv_shape, layout.hidden_size],
        "kv": list(layout.kv_shape),
        "vocab": layout.vocab_size,
    }


class Snapshots:
    """Copies continuations out of a Program's memory, read only, and back into it."""

    def __init__(self, model: Model, physical: Physical, records: Records) -> None:
        self._model = model
        self._physical = physical
        self._records = records

    # --- save -----------------------------------------------------------------------------------------------------
    def save(self, owners: Sequence[OwnerId], conversation: Any = None) -> SessionContent:
        """Snapshot inactive owners; images and pages that several share are stored once. Mutates nothing.

        Raises:
            ValueError: an owner is active or gone.
        """
        images: dict[ImageId, int] = {}
        pages: list[dict[LogicalPage, int]] = [{} for _ in self._physical.pools]
        covered: dict[LogicalPage, int] = {}
        directory, tensors = [], {}
        for number, owner_id in enumerate(owners):
            owner = self._physical.world.owners.get(owner_id)
            if owner is None or owner.lane is not None:
                raise ValueError(f"owner {owner_id} is not an inactive owner")
            deepest = self._records[owner.checkpoints[-1].ref]
            tensors[f"tokens.{number}"] = torch.tensor(decode(deepest.identity.tokens), dtype=torch.int32)
            tensors[f"trace.{number}"] = _pack(deepest.trace)
            entries = []
            for checkpoint in owner.checkpoints:
                places = []
                for pool, held in enumerate(checkpoint.pages):
                    places.append([pages[pool].setdefault(page, len(pages[pool])) for page in held])
                    for i, page in enumerate(held):
                        tokens = min(PAGE_SIZE, checkpoint.frontier - i * PAGE_SIZE)
                        covered[page] = max(covered.get(page, 0), tokens)
                entries.append(
                    {
                        "kind": checkpoint.kind.value,
                        "frontier": checkpoint.frontier,
                        "image": images.setdefault(checkpoint.image, len(images)),
                        "pages": places,
                    }
                )
            directory.append(
                {
                    "role": owner.role.value,
                    "mode": [list(pair) for pair in deepest.identity.mode],
                    "cuts": list(deepest.identity.cuts),
                    "checkpoints": entries,
                }
            )
        tensors["images"] = self._image_bytes(images)
        for pool, numbered in enumerate(pages):
            tensors[f"pages.{pool}"] = self._page_bytes(pool, numbered, covered)
        header = {"model": facts(self._model), "continuations": directory, "conversation": conversation}
        return SessionContent(header, tensors)

    def _image_bytes(self, images: Mapping[ImageId, int]) -> Tensor:
        store = self._physical.images
        out = torch.empty((len(images), store.image_bytes), dtype=torch.uint8)
        for image, place in images.items():
            out[place] = store.bytes_of(image).cpu()
        return out

    def _page_bytes(self, pool: int, pages: Mapping[LogicalPage, int], covered: Mapping[LogicalPage, int]) -> Tensor:
        """Rows of whole pages; zeros behind what a page covers, so that equal states make equal files."""
        store = self._physical.pools[pool]
        out = torch.zeros((len(pages), store.page_bytes), dtype=torch.uint8)
        for page, place in pages.items():
            for plane, data in enumerate(store.bytes_of(page, covered[page])):
                begin = plane * store.plane_bytes
                out[place, begin : begin + len(data)] = data.cpu()
        return out

    # --- restore --------------------------------------------------------------------------------------------------
    def restore(self, content: SessionContent, next_owner: int) -> Restored:
        """Publish the continuations of a checked file as private owners.

        An image goes to a free Device slot, else to a free Host slot; the deepest checkpoint of each continuation is
        mandatory, others are dropped when they find no place. Pages go to Device.

        Args:
            next_owner: the first id that is free.

        Raises:
            SessionError: another model, an inconsistent directory, non-finite state, or no room. Nothing changed then.
        """
        if content.header.get("model") != facts(self._model):
            raise SessionError(_difference(content.header.get("model"), facts(self._model)))
        parts = _Parts.parse(content, self._physical, self._model.layout.vocab_size)
        parts.fit(self._physical)
        self._check_finite(content.tensors["images"])
        return self._publish(parts, content, next_owner)

    def _check_finite(self, images: Tensor) -> None:
        for row in images:
            if not self._physical.images.finite(row):
                raise SessionError("the session's state holds numbers that are not finite (state): do not use it")

    def _publish(self, parts: _Parts, content: SessionContent, next_owner: int) -> Restored:
        physical = self._physical
        images: dict[int, ImageId] = {}
        pages: list[dict[int, LogicalPage]] = [{} for _ in physical.pools]
        made = Replicas()
        for place, on_device in parts.images.items():
            image = physical.new_image()
            (physical.images.device_slots if on_device else physical.images.host_slots).take(image)
            physical.images.bytes_of(image).copy_(content.tensors["images"][place])
            images[place] = image
            made |= Replicas(1 << image if on_device else 0, 0 if on_device else 1 << image)
        for pool, wanted in enumerate(parts.pages):
            before: LogicalPage | None = None
            store = physical.pools[pool]
            for place, tokens in wanted.items():
                page = physical.new_page(pool)
                store.place(page, before)
                data = content.tensors[f"pages.{pool}"][place]
                size = store.plane_bytes // PAGE_SIZE * tokens
                for plane, target in enumerate(store.bytes_of(page, tokens)):
                    target.copy_(data[plane * store.plane_bytes :][:size])
                store.cover(page, tokens)
                pages[pool][place] = before = page
            made |= Replicas(device_pages=mask_of(pages[pool].values()))
        world = physical.world
        owners = []
        for number, continuation in enumerate(parts.continuations):
            owner_id = OwnerId(next_owner + number)
            checkpoints = tuple(
                Checkpoint(
                    self._add_record(continuation, entry.frontier),
                    entry.kind,
                    entry.frontier,
                    images[entry.image],
                    tuple(tuple(pages[pool][p] for p in held) for pool, held in enumerate(entry.pages)),
                )
                for entry in continuation.entries
            )
            world = world.with_owner(Owner(owner_id, Role.PRIVATE, checkpoints))
            owners.append(owner_id)
        physical.publish(world.with_replicas(made).advanced())
        physical.settle_ids(list(images.values()), [page for pool in pages for page in pool.values()])
        return Restored(tuple(owners), parts.dropped)

    def _add_record(self, continuation: _Continuation, frontier: int) -> CheckpointRef:
        identity = Identity.of(continuation.tokens, continuation.cuts, continuation.mode, frontier)
        return self._records.add(identity, trace_until(continuation.trace, frontier))


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: SourceKind
    frontier: int
    image: int
    pages: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class _Continuation:
    tokens: list[int]
    cuts: tuple[Frontier, ...]
    mode: tuple[tuple[str, str], ...]
    trace: Trace
    entries: tuple[_Entry, ...]


@dataclass(slots=True)
class _Parts:
    """A parsed directory, every index and count checked against the tensors; then what of it fits.

    Attributes:
        images: place in the file -> on Device.
        pages: per pool, place in the file -> covered tokens, in address order.
    """

    continuations: list[_Continuation]
    images: dict[int, bool]
    pages: list[dict[int, int]]
    dropped: tuple[tuple[SourceKind, int], ...] = ()

    @classmethod
    def parse(cls, content: SessionContent, physical: Physical, vocab_size: int) -> _Parts:
        try:
            return cls(list(_continuations(content, physical, vocab_size)), {}, [])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise SessionError(f"the session's directory is inconsistent ({str(error)[:80]}): restore a copy") from None

    def fit(self, physical: Physical) -> None:
        """Choose what is restored: the endpoints first, then the deepest of the rest."""
        world = physical.world
        free = world.geometry.capacity
        used = world.used()
        device, host = free.device_images - used.device_images, free.host_images - used.host_images
        chosen: dict[int, list[_Entry]] = {i: [] for i in range(len(self.continuations))}
        order = [(i, c.entries[-1], True) for i, c in enumerate(self.continuations)]
        order += [
            (i, entry, False)
            for i, c in enumerate(self.continuations)
            for entry in sorted(c.entries[:-1], key=lambda entry: -entry.frontier)
        ]
        room = [a - b for a, b in zip(free.pages, used.pages, strict=True)]
        dropped = []
        self.pages = [{} for _ in room]
        for i, entry, mandatory in order:
            fresh = [[p for p in held if p not in self.pages[pool]] for pool, held in enumerate(entry.pages)]
            wants_image = entry.image not in self.images
            fits = all(len(f) <= r for f, r in zip(fresh, room, strict=True)) and (not wants_image or device + host > 0)
            if not fits and mandatory:
                need = sum(len(f) for f in fresh)
                raise SessionError(
                    f"no room for the session (it needs {need} KV pages and a StateImage; {room[0]} pages and "
                    f"{device + host} images are free): raise --kv-capacity or the cache options"
                )
            if not fits:
                dropped.append((entry.kind, entry.frontier))
                continue
            if wants_image:
                self.images[entry.image] = device > 0
                device, host = (device - 1, host) if device > 0 else (device, host - 1)
            for pool, held in enumerate(entry.pages):
                room[pool] -= len(fresh[pool])
                for at, page in enumerate(held):
                    tokens = min(PAGE_SIZE, entry.frontier - at * PAGE_SIZE)
                    self.pages[pool][page] = max(self.pages[pool].get(page, 0), tokens)
            chosen[i].append(entry)
        for i, entries in chosen.items():
            kept = tuple(sorted(entries, key=lambda entry: entry.frontier))
            self.continuations[i] = replace(self.continuations[i], entries=kept)
        self.dropped = tuple(dropped)


def _continuations(content: SessionContent, physical: Physical, vocab_size: int) -> list[_Continuation]:
    """Raises ValueError and its kin at the first thing that does not fit together."""
    found = []
    images, tensors = content.tensors["images"], content.tensors
    if images.dtype != torch.uint8 or images.shape[1:] != (physical.images.image_bytes,):
        raise ValueError("images of another shape")
    for pool, store in enumerate(physical.pools):
        rows = tensors[f"pages.{pool}"]
        if rows.dtype != torch.uint8 or rows.shape[1:] != (store.page_bytes,):
            raise ValueError("pages of another shape")
    for number, entry in enumerate(content.header["continuations"]):
        tokens = tensors[f"tokens.{number}"]
        if tokens.dtype != torch.int32 or tokens.dim() != 1 or not len(tokens):
            raise ValueError("token ids of another shape")
        if int(tokens.min()) < 0 or int(tokens.max()) >= vocab_size:
            raise ValueError("token ids beyond the vocabulary")
        cuts = tuple(Frontier(_count(cut, len(tokens))) for cut in entry["cuts"])
        mode = tuple((str(key), str(value)) for key, value in entry["mode"])
        entries = []
        for raw in entry["checkpoints"]:
            frontier = _count(raw["frontier"], len(tokens))
            held = []
            for pool, places in enumerate(raw["pages"]):
                limit = len(tensors[f"pages.{pool}"]) - 1
                held.append(tuple(_index(place, limit) for place in places))
            if frontier < 1 or any(len(p) != pages_for(frontier) or len(set(p)) != len(p) for p in held):
                raise ValueError("pages do not cover a frontier")
            if len(held) != len(physical.pools):
                raise ValueError("another number of pools")
            entries.append(
                _Entry(SourceKind(raw["kind"]), frontier, _index(raw["image"], len(images) - 1), tuple(held))
            )
        frontiers = [e.frontier for e in entries]
        if not entries or frontiers != sorted(frontiers) or frontiers[-1] != len(tokens):
            raise ValueError("checkpoints out of order")
        trace = _unpack(tensors[f"trace.{number}"], len(tokens))
        found.append(_Continuation(tokens.tolist(), cuts, mode, trace, tuple(entries)))
    return found


def _index(value: Any, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise ValueError("an index out of range")
    return value


def _count(value: Any, limit: int) -> int:
    return _index(value, limit)


def _pack(trace: Trace) -> Tensor:
    """[start, length, at, number of rows, rows..., number of cuts, cuts...] for each unit, as int32."""
    flat: list[int] = []
    for unit in trace:
        flat += [unit.start, unit.length, unit.at, len(unit.rows), *unit.rows, len(unit.cuts), *unit.cuts]
    return torch.tensor(flat, dtype=torch.int32)


def _unpack(packed: Tensor, tokens: int) -> Trace:
    if packed.dtype != torch.int32 or packed.dim() != 1:
        raise ValueError("a trace of another shape")
    numbers, at, units = packed.tolist(), 0, []
    while at < len(numbers):
        start, length, place, count = numbers[at : at + 4]
        rows = tuple(numbers[at + 4 : at + 4 + count])
        at += 4 + count
        cuts = tuple(numbers[at + 1 : at + 1 + numbers[at]])
        at += 1 + len(cuts)
        inside = 0 <= place < len(rows) and rows[place] == length and 0 <= start <= tokens and length > 0
        if not inside or len(rows) != count or any(row < 1 for row in rows):
            raise ValueError("a trace that cannot have run")
        if any(not start < cut <= start + length for cut in cuts):
            raise ValueError("a trace with cuts outside its units")
        units.append(Unit(start, length, cuts, rows, place))
    return tuple(units)


def _difference(saved: Any, mine: Mapping[str, Any]) -> str:
    """Which fact of the model differs, in a line."""
    if not isinstance(saved, dict):
        return "the session does not say which model it belongs to (model): restore a copy"
    for name, what in (("dtype", "dtype"), ("layers", "layer count"), ("vocab", "vocabulary")):
        if saved.get(name) != mine[name]:
            return f"the session was saved with another {what} ({saved.get(name)}, not {mine[name]}): start it so"
    if saved.get("fingerprint") != mine["fingerprint"]:
        return "the session belongs to another model (fingerprint of the weights): start the model that saved it"
    return "the session belongs to another model (shape of its state): start the model that saved it"
