"""Draft: the new segments of an autosave, while they are put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ninfer_core.errors import SessionError
from ninfer_core.program.session_header import digest
from ninfer_core.program.session_index import Index
from ninfer_core.program.session_manifest import MOST_SEGMENTS, Blob, PagePiece, StoredContinuation, StoredPage
from ninfer_core.program.snapshot import ContinuationShot, Snapshot
from ninfer_core.program.traces import pack


class Draft:
    """Of one autosave: pieces are added and moved, then `segments` are written, and the manifest behind them."""

    def __init__(self, following: int) -> None:
        """
        Args:
            following: the least number that no segment has had.
        """
        self._shared = following
        self.following = following + 1
        self._images: dict[int, Any] = {}
        self._buffers: list[Any] = []
        self._offset = 0
        self._moves: dict[Blob, Blob] = {}

    def grow(self, index: Index, snapshot: Snapshot) -> Index:
        """The index with what is new in a snapshot, and without what it does not need.

        Raises:
            SessionError: no segment number is left.
        """
        images = {
            key: index.images[key] if key in index.images else self._image(snapshot.images[key])
            for key in snapshot.image_keys()
        }
        pages = {}
        for key in snapshot.covered:
            before = index.pages.get(key, ())
            piece = snapshot.pieces.get(key)
            pages[key] = before if piece is None else (*before, self._piece(piece.start, piece.end, piece.data))
        ledgers = {shot.ref: index.ledgers.get(shot.ref) or self._ledger(shot) for shot in snapshot.continuations}
        return Index(snapshot.origin, images, pages, ledgers)

    def move(self, blob: Blob, data: bytes) -> None:
        """Write a piece that is there already once more."""
        self._moves[blob] = self._append(data)

    def moved(self, continuations: Iterable[StoredContinuation]) -> list[StoredContinuation]:
        """The same continuations, with every piece where it lies now."""
        if not self._moves:
            return list(continuations)
        at = self._at
        return [
            replace(
                one,
                tokens=at(one.tokens),
                trace=at(one.trace),
                checkpoints=tuple(
                    replace(c, image=at(c.image), pages=tuple(tuple(map(self._page_at, pool)) for pool in c.pages))
                    for c in one.checkpoints
                ),
            )
            for one in continuations
        ]

    def moved_index(self, index: Index) -> Index:
        """The same index, with every piece where it lies now."""
        at = self._at
        return replace(
            index,
            images={key: at(blob) for key, blob in index.images.items()},
            pages={key: self._page_at(page) for key, page in index.pages.items()},
            ledgers={ref: (at(tokens), at(trace)) for ref, (tokens, trace) in index.ledgers.items()},
        )

    def segments(self) -> dict[int, Sequence[Any]]:
        """Number -> buffers."""
        found: dict[int, Sequence[Any]] = {number: [data] for number, data in self._images.items()}
        if self._buffers:
            found[self._shared] = self._buffers
        return found

    def _at(self, blob: Blob) -> Blob:
        return self._moves.get(blob, blob)

    def _page_at(self, page: StoredPage) -> StoredPage:
        return tuple(piece._replace(blob=self._at(piece.blob)) for piece in page)

    def _image(self, tensor: Any) -> Blob:
        data = tensor.numpy().data
        number = self._number()
        self._images[number] = data
        return Blob(number, 0, data.nbytes, digest(data))

    def _piece(self, start: int, end: int, tensor: Any) -> PagePiece:
        return PagePiece(start, end, self._append(np.ascontiguousarray(tensor.numpy()).reshape(-1).data))

    def _ledger(self, shot: ContinuationShot) -> tuple[Blob, Blob]:
        return self._append(shot.identity.tokens), self._append(pack(shot.trace).astype("<i4").tobytes())

    def _append(self, data: Any) -> Blob:
        size = len(data)
        blob = Blob(self._shared, self._offset, size, digest(data))
        self._buffers.append(data)
        self._offset += size
        return blob

    def _number(self) -> int:
        number = self.following
        self.following += 1
        if number >= MOST_SEGMENTS:
            raise SessionError("the session has used up its segment numbers: save it as a file and start a new one")
        return number
