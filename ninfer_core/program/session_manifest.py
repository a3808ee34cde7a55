"""Manifest: what a session's directory holds, and where in its segments each piece lies. Needs no torch.

Segments are plain bytes with computed names; all that is known of them stands in the manifest, under its digest and
the user's tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.session_directory import Directory, SavedCheckpoint, SavedContinuation, Sizes
from ninfer_core.program.session_header import DIGEST_BYTES

NAME = "manifest"
SEGMENT = re.compile(r"(\d{8})\.segment", re.ASCII)
PART = re.compile(r"\.[0-9a-f]{16}\.part")
"""What is being written; left behind only by a process that died."""
MOST_SEGMENTS = 10**8
_BLOB = re.compile(rf"(\d{{1,8}}):(\d{{1,15}}):(\d{{1,15}}):([0-9a-f]{{{2 * DIGEST_BYTES}}})", re.ASCII)


def segment_name(number: int) -> str:
    return f"{number:08d}.segment"


class Blob(NamedTuple):
    """Bytes [offset, offset + size) of a segment."""

    segment: int
    offset: int
    size: int
    digest: str

    def text(self) -> str:
        return ":".join(map(str, self))

    @classmethod
    def parse(cls, text: Any) -> Blob:
        found = _BLOB.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError("a place in a segment of another form")
        return cls(int(found[1]), int(found[2]), int(found[3]), found[4])


class PagePiece(NamedTuple):
    """Tokens [start, end) of a page, plane by plane."""

    start: int
    end: int
    blob: Blob


StoredPage = tuple[PagePiece, ...]
"""A page's tokens from 0 on, without gaps."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    kind: SourceKind
    frontier: int
    image: Blob
    pages: tuple[tuple[StoredPage, ...], ...]


@dataclass(frozen=True, slots=True)
class StoredContinuation:
    """Attributes: tokens, trace: its ledger and execution trace, int32 numbers."""

    role: str
    cuts: tuple[int, ...]
    mode: tuple[tuple[str, str], ...]
    tokens: Blob
    trace: Blob
    checkpoints: tuple[StoredCheckpoint, ...]

    def blobs(self) -> Iterable[Blob]:
        yield from (self.tokens, self.trace)
        for checkpoint in self.checkpoints:
            yield checkpoint.image
            for pool in checkpoint.pages:
                for page in pool:
                    yield from (piece.blob for piece in page)


@dataclass(frozen=True, slots=True)
class Shape:
    """image_bytes: of one StateImage; planes: per pool, KV planes and bytes of one token in one of them."""

    image_bytes: int
    planes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    Attributes:
        model: facts that a state's model must agree in; None where there is no state.
        following: number of the next segment.
    """

    conversation: Any
    model: Any
    shape: Shape
    continuations: tuple[StoredContinuation, ...]
    following: int

    def blobs(self) -> set[Blob]:
        """Everything that is referred to."""
        return {blob for continuation in self.continuations for blob in continuation.blobs()}

    def tables(self) -> tuple[list[Blob], list[list[StoredPage]]]:
        """Images and, per pool, pages: each once, in the order of their first use."""
        all_of = [c for one in self.continuations for c in one.checkpoints]
        images = list(dict.fromkeys(c.image for c in all_of))
        pools = range(len(self.shape.planes))
        return images, [list(dict.fromkeys(page for c in all_of for page in c.pages[pool])) for pool in pools]

    def directory(self) -> Directory:
        images, pages = self.tables()
        image_at = {blob: i for i, blob in enumerate(images)}
        page_at = [{page: i for i, page in enumerate(pool)} for pool in pages]
        return Directory(
            tuple(
                SavedContinuation(
                    place,
                    one.role,
                    one.tokens.size // 4,
                    one.cuts,
                    one.mode,
                    tuple(
                        SavedCheckpoint(
                            c.kind,
                            c.frontier,
                            image_at[c.image],
                            tuple(tuple(page_at[i][page] for page in held) for i, held in enumerate(c.pages)),
                        )
                        for c in one.checkpoints
                    ),
                )
                for place, one in enumerate(self.continuations)
            )
        )

    def json(self) -> dict[str, Any]:
        images, pages = self.tables()
        return {
            "conversation": self.conversation,
            "model": self.model,
            "following": self.following,
            "image_bytes": self.shape.image_bytes,
            "planes": [list(pair) for pair in self.shape.planes],
            "continuations": self.directory().json(range(len(images)), [range(len(pool)) for pool in pages]),
            "ledgers": [f"{one.tokens.text()} {one.trace.text()}" for one in self.continuations],
            "images": [blob.text() for blob in images],
            "pages": [[_page_text(page) for page in pool] for pool in pages],
        }

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Manifest:
        """Raises ValueError and its kin (KeyError, TypeError, ...) at the first thing that does not fit together."""
        shape = Shape(_number(value["image_bytes"]), tuple((_number(a), _number(b)) for a, b in value["planes"]))
        images = [_sized(Blob.parse(text), shape.image_bytes) for text in value["images"]]
        pages = [[_page(text, *pair) for text in pool] for pool, pair in zip(value["pages"], shape.planes, strict=True)]
        ledgers = [_ledger(text) for text in value["ledgers"]]
        directory = Directory.parse(value["continuations"], _sizes(shape, images, pages, ledgers))
        continuations = tuple(
            StoredContinuation(one.role, one.cuts, one.mode, *ledger, _checkpoints(one, images, pages))
            for one, ledger in zip(directory.continuations, ledgers, strict=True)
        )
        found = cls(value["conversation"], value["model"], shape, continuations, _number(value["following"]))
        if any(blob.segment >= found.following for blob in found.blobs()):
            raise ValueError("a segment that was not written")
        return found

    def sizes(self) -> Sizes:
        images, pages = self.tables()
        return _sizes(self.shape, images, pages, [(one.tokens, one.trace) for one in self.continuations])


def _sizes(
    shape: Shape,
    images: Sequence[Blob],
    pages: Sequence[Sequence[StoredPage]],
    ledgers: Sequence[tuple[Blob, Blob]],
) -> Sizes:
    widths = [planes * token_bytes * PAGE_SIZE for planes, token_bytes in shape.planes]
    rows = tuple((len(pool), width) for pool, width in zip(pages, widths, strict=True))
    return Sizes((len(images), shape.image_bytes), rows, tuple(tokens.size // 4 for tokens, _ in ledgers))


def _checkpoints(
    one: SavedContinuation, images: Sequence[Blob], pages: Sequence[Sequence[StoredPage]]
) -> tuple[StoredCheckpoint, ...]:
    made = []
    for c in one.checkpoints:
        held = tuple(tuple(pages[pool][place] for place in places) for pool, places in enumerate(c.pages))
        for pool in held:
            for at, page in enumerate(pool):
                if page[-1].end < min(PAGE_SIZE, c.frontier - at * PAGE_SIZE):
                    raise ValueError("a page that does not cover a frontier")
        made.append(StoredCheckpoint(c.kind, c.frontier, images[c.image], held))
    return tuple(made)


def _page_text(page: StoredPage) -> str:
    return " ".join(f"{piece.start}-{piece.end}@{piece.blob.text()}" for piece in page)


def _page(text: Any, planes: int, token_bytes: int) -> StoredPage:
    pieces: list[PagePiece] = []
    for part in text.split(" "):
        span, _, blob = part.partition("@")
        start, _, end = span.partition("-")
        piece = PagePiece(int(start), int(end), Blob.parse(blob))
        before = pieces[-1].end if pieces else 0
        if piece.start != before or not before < piece.end <= PAGE_SIZE:
            raise ValueError("a page with a gap")
        _sized(piece.blob, planes * token_bytes * (piece.end - piece.start))
        pieces.append(piece)
    return tuple(pieces)


def _ledger(text: Any) -> tuple[Blob, Blob]:
    first, second = text.split(" ")
    tokens, trace = Blob.parse(first), Blob.parse(second)
    if tokens.size % 4 or trace.size % 4 or not tokens.size or not trace.size:
        raise ValueError("a ledger of another shape")
    return tokens, trace


def _sized(blob: Blob, size: int) -> Blob:
    if blob.size != size:
        raise ValueError("a piece of another size")
    return blob


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        raise ValueError("a number out of range")
    return value
