"""Snapshot: what continuations hold, copied out of a Program's memory, read only (context-cache SES-2)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, ImageId, LogicalPage, OwnerId
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.models.model import Model
from ninfer_core.program.identity import Identity, Trace
from ninfer_core.program.ledger.objects import Owner
from ninfer_core.program.records import Records
from ninfer_core.program.session_content import SessionContent
from ninfer_core.program.session_directory import Directory, SavedCheckpoint, SavedContinuation
from ninfer_core.program.storage.physical import Physical
from ninfer_core.program.traces import pack


class ImageKey(NamedTuple):
    """One StateImage's content for as long as the Program lives.

    Ids are used again, generations are not. Where a sequence takes an endpoint over (Move) it writes on in its image,
    so the frontier belongs to the key: within a generation it only ever grows, and at each the content is one.
    """

    image: ImageId
    generation: int
    frontier: int


class PageKey(NamedTuple):
    """One page's content for as long as the Program lives: within an epoch it only ever grows at its end (KV-7)."""

    pool: int
    page: LogicalPage
    epoch: int


class Known(Protocol):
    """What somebody has already, of the Program that is named by `origin`."""

    @property
    def origin(self) -> str: ...

    def has_image(self, key: ImageKey) -> bool: ...

    def covered(self, key: PageKey) -> int:
        """How many leading tokens of a page."""


class Nothing:
    """Nobody has anything."""

    origin = ""

    def has_image(self, key: ImageKey) -> bool:
        return False

    def covered(self, key: PageKey) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class CheckpointShot:
    kind: SourceKind
    frontier: int
    image: ImageKey
    pages: tuple[tuple[PageKey, ...], ...]


@dataclass(frozen=True, slots=True)
class ContinuationShot:
    """Attributes:
    ref: of its endpoint, never given twice.
    identity, trace: of its endpoint.
    """

    ref: CheckpointRef
    role: str
    identity: Identity
    trace: Trace
    checkpoints: tuple[CheckpointShot, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens [start, end) of a page: data is [planes, bytes] uint8."""

    start: int
    end: int
    data: Tensor


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    Attributes:
        origin: names the Program that the keys belong to.
        facts: what a state's model must agree in.
        continuations: the newest first.
        covered: every page that they need, and how many of its tokens.
        images, pieces: copies of what was not known.
        image_bytes: of one StateImage.
        planes: per pool, KV planes and bytes of one token in one of them.
    """

    origin: str
    facts: Mapping[str, Any]
    continuations: tuple[ContinuationShot, ...]
    covered: Mapping[PageKey, int]
    images: Mapping[ImageKey, Tensor]
    pieces: Mapping[PageKey, Piece]
    image_bytes: int
    planes: tuple[tuple[int, int], ...]

    def image_keys(self) -> list[ImageKey]:
        """Every StateImage that is needed, those of newer continuations first."""
        return list(dict.fromkeys(c.image for one in self.continuations for c in one.checkpoints))

    def directory(self, images: Mapping[ImageKey, int], pages: Mapping[PageKey, int]) -> Directory:
        """Its directory, where images and pages are stored at these places."""
        return Directory(
            tuple(
                SavedContinuation(
                    place,
                    one.role,
                    one.identity.frontier,
                    one.identity.cuts,
                    one.identity.mode,
                    tuple(
                        SavedCheckpoint(
                            c.kind,
                            c.frontier,
                            images[c.image],
                            tuple(tuple(pages[key] for key in held) for held in c.pages),
                        )
                        for c in one.checkpoints
                    ),
                )
                for place, one in enumerate(self.continuations)
            )
        )


class Photographer:
    """Takes snapshots of one Program's memory."""

    def __init__(self, model: Model, physical: Physical, records: Records, facts: Mapping[str, str]) -> None:
        self._model = model
        self._physical = physical
        self._records = records
        self._more_facts = dict(facts)
        self.origin = secrets.token_hex(8)

    def facts(self) -> dict[str, Any]:
        """What a state's model must agree in. Slow the first time: the fingerprint reads every weight."""
        layout = self._model.layout
        return {
            **self._more_facts,
            "fingerprint": self._model.fingerprint(),
            "dtype": str(layout.dtype).removeprefix("torch."),
            "layers": [layout.gdn_layers, layout.attention_layers],
            "state": [*layout.recurrent_shape, *layout.conv_shape, layout.hidden_size],
            "kv": list(layout.kv_shape),
            "vocab": layout.vocab_size,
        }

    def fitting(self, owners: Sequence[OwnerId], limit: int) -> int:
        """How many of the first owners take no more than limit bytes together; what several share counts once."""
        images = pages = 0
        for number, owner_id in enumerate(owners):
            owner = self._physical.world.owners[owner_id]
            images |= owner.needs_images
            pages |= owner.needs_pages
            size = images.bit_count() * self._physical.images.image_bytes
            pools = zip(self._physical.world.geometry.pools, self._physical.pools, strict=True)
            size += sum((pages & pool.mask).bit_count() * store.page_bytes for pool, store in pools)
            if size > limit:
                return number
        return len(owners)

    def take(self, owners: Sequence[OwnerId], known: Known) -> Snapshot:
        """Copy what is not known of inactive owners. Mutates nothing.

        Raises:
            ValueError: an owner is active or gone.
        """
        if known.origin != self.origin:
            known = Nothing()
        shots, covered = [], dict[PageKey, int]()
        for owner_id in owners:
            owner = self._physical.world.owners.get(owner_id)
            if owner is None or owner.lane is not None:
                raise ValueError(f"owner {owner_id} is not an inactive owner")
            shots.append(self._shot(owner, covered))
        wanted = dict.fromkeys(c.image for shot in shots for c in shot.checkpoints)
        store = self._physical.images
        images = {key: store.bytes_of(key.image).cpu().clone() for key in wanted if not known.has_image(key)}
        pieces = {
            key: self._piece(key, start, end) for key, end in covered.items() if (start := known.covered(key)) < end
        }
        planes = tuple((len(pool.planes.keys) * 2, pool.plane_bytes // PAGE_SIZE) for pool in self._physical.pools)
        return Snapshot(self.origin, self.facts(), tuple(shots), covered, images, pieces, store.image_bytes, planes)

    def _shot(self, owner: Owner, covered: dict[PageKey, int]) -> ContinuationShot:
        checkpoints: list[CheckpointShot] = []
        for checkpoint in owner.checkpoints:
            if checkpoints and checkpoints[-1].frontier == checkpoint.frontier:
                # One path, one frontier: one state, such as where a prefill ends. It is stored once.
                checkpoints.append(replace(checkpoints[-1], kind=checkpoint.kind))
                continue
            held = []
            for pool, pages in enumerate(checkpoint.pages):
                store = self._physical.pools[pool]
                keys = tuple(PageKey(pool, page, store.content(page).epoch) for page in pages)
                for at, key in enumerate(keys):
                    tokens = min(PAGE_SIZE, checkpoint.frontier - at * PAGE_SIZE)
                    covered[key] = max(covered.get(key, 0), tokens)
                held.append(keys)
            image = ImageKey(checkpoint.image, self._physical.images.generation(checkpoint.image), checkpoint.frontier)
            checkpoints.append(CheckpointShot(checkpoint.kind, checkpoint.frontier, image, tuple(held)))
        endpoint = owner.checkpoints[-1].ref
        record = self._records[endpoint]
        return ContinuationShot(endpoint, owner.role.value, record.identity, record.trace, tuple(checkpoints))

    def _piece(self, key: PageKey, start: int, end: int) -> Piece:
        store = self._physical.pools[key.pool]
        begin = store.plane_bytes // PAGE_SIZE * start
        data = torch.stack([plane[begin:] for plane in store.bytes_of(key.page, end)]).cpu()
        return Piece(start, end, data)


def content(snapshot: Snapshot, conversation: Any) -> SessionContent:
    """A complete snapshot (of somebody who knew nothing) as what a portable file holds."""
    images = {key: place for place, key in enumerate(snapshot.image_keys())}
    numbered: list[dict[PageKey, int]] = [{} for _ in snapshot.planes]
    for key in snapshot.covered:
        numbered[key.pool].setdefault(key, len(numbered[key.pool]))
    tensors: dict[str, Tensor] = {"images": torch.empty((len(images), snapshot.image_bytes), dtype=torch.uint8)}
    for image, place in images.items():
        tensors["images"][place] = snapshot.images[image]
    for pool, (planes, token_bytes) in enumerate(snapshot.planes):
        # Zeros behind what a page covers, so that equal states make equal files.
        rows = torch.zeros((len(numbered[pool]), planes, PAGE_SIZE * token_bytes), dtype=torch.uint8)
        for key, place in numbered[pool].items():
            rows[place, :, : snapshot.pieces[key].end * token_bytes] = snapshot.pieces[key].data
        tensors[f"pages.{pool}"] = rows.view(len(rows), planes * PAGE_SIZE * token_bytes)
    for number, one in enumerate(snapshot.continuations):
        tensors[f"tokens.{number}"] = torch.from_numpy(np.frombuffer(one.identity.tokens, dtype="<i4").copy())
        tensors[f"trace.{number}"] = torch.from_numpy(pack(one.trace))
    pages = {key: place for pool in numbered for key, place in pool.items()}
    directory = snapshot.directory(images, pages).json(range(len(images)), [range(len(pool)) for pool in numbered])
    return SessionContent({"model": snapshot.facts, "continuations": directory, "conversation": conversation}, tensors)
