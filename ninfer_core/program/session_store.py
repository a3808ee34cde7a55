"""SessionStore: a conversation's directory, saved again after every turn, where only what is new is written.

Every StateImage is a segment of its own, so that its bytes go with it; what else a turn has added (pieces of pages,
ledgers) makes one segment. A segment goes when nothing in it is referred to, and is written again when most of it is
dead. The manifest is replaced last: whenever the process dies, the old or the new state is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from ninfer_core.contract.ids import CheckpointRef
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.errors import SessionError, SessionTooLarge
from ninfer_core.program.identity import Identity, decode
from ninfer_core.program.restoring import Named, Restored
from ninfer_core.program.session_aside import aside_of, set_aside
from ninfer_core.program.session_content import Places
from ninfer_core.program.session_header import Header, digest
from ninfer_core.program.session_key import SessionKey
from ninfer_core.program.session_lock import NAME as LOCK
from ninfer_core.program.session_lock import SessionLock
from ninfer_core.program.session_manifest import (
    MOST_SEGMENTS,
    NAME,
    SEGMENT,
    Blob,
    Manifest,
    PagePiece,
    Shape,
    StoredCheckpoint,
    StoredContinuation,
    StoredPage,
)
from ninfer_core.program.session_reader import SessionDirectory
from ninfer_core.program.session_segments import Segments
from ninfer_core.program.snapshot import ContinuationShot, ImageKey, PageKey, Snapshot
from ninfer_core.program.traces import pack

DEFAULT_LIMIT = 4 << 30
SPARSE = 4
"""A segment that is dead but for one part in so many is written again."""


@dataclass(frozen=True, slots=True)
class Autosaved:
    """
    Attributes:
        written: bytes.
        state_bytes: of all state that the directory holds now.
        left_out: continuations that the limit left no room for, the oldest ones.
    """

    written: int
    state_bytes: int
    left_out: tuple[Named, ...]


@dataclass(frozen=True, slots=True)
class _Index:
    """Where what a Program holds lies in the segments. Replaced whole, once the manifest is in place."""

    origin: str
    images: Mapping[ImageKey, Blob]
    pages: Mapping[PageKey, StoredPage]
    ledgers: Mapping[CheckpointRef, tuple[Blob, Blob]]


class SessionStore:
    """One process writes a directory at a time; one thread uses this object. Close it, or use it as a context manager.

    Attributes:
        header: as it was found; None for a new directory.
        aside: where what the directory holds stays when it is written for the first time; None where nothing goes.
    """

    def __init__(
        self, path: Path, key: SessionKey | None = None, limit: int = DEFAULT_LIMIT, *, text_only: bool = False
    ) -> None:
        """Open a session's directory, or make one.

        Args:
            key: signs what is written and proves what was found.
            limit: bytes of state; beyond it the oldest continuations are left out, never text.
            text_only: leave the state aside, which may be damaged. With the first autosave it moves to `aside`.

        Raises:
            SessionInUse: another process has it open.
            SessionError: it is no session, damaged, or cannot be written.
        """
        self.path, self.limit, self._key = path, limit, key
        self.signs = True
        """Whether what is written is signed: not while it goes back to state that nobody has proved."""
        self.aside: Path | None = None
        self._segments = Segments(path)
        made = _make(path)
        self._lock = SessionLock(path)
        self._empty = made
        """Nothing of it is worth keeping: it goes with close."""
        try:
            self.header: Header | None = None
            self._manifest = Manifest(None, None, Shape(0, ()), (), 1)
            if text_only:
                self.header = self._segments.header(key)
                self._manifest = replace(self._manifest, following=self._segments.following())
                self.aside = aside_of(path)
            else:
                if (path / NAME).exists() or (path / NAME).is_symlink():
                    self.header, self._manifest = self._segments.manifest(key)
                self._segments.sweep(self._manifest)
        except BaseException:
            self.close()
            raise
        self._index = _Index("", {}, {}, {})
        self._carried: tuple[StoredContinuation, ...] = ()
        self._short: frozenset[CheckpointRef] = frozenset()

    def close(self) -> None:
        """Let others write it. A directory that was made here and never written goes again. Idempotent."""
        if self._empty:
            self._empty = False
            with suppress(OSError):
                if not (self.path / NAME).exists():
                    (self.path / LOCK).unlink()
                    self.path.rmdir()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what it has: a Known -------------------------------------------------------------------------------------
    @property
    def origin(self) -> str:
        return self._index.origin

    def has_image(self, key: ImageKey) -> bool:
        return key in self._index.images

    def covered(self, key: PageKey) -> int:
        page = self._index.pages.get(key)
        return page[-1].end if page else 0

    # --- coming back ----------------------------------------------------------------------------------------------
    def source(self) -> SessionDirectory:
        """What was found, for reading. Raises SessionError when the directory is new."""
        if self.header is None:
            raise SessionError(f"{self.path} is a new session: there is nothing to restore")
        return SessionDirectory.of(self.path, self.header, self._manifest)

    def adopt(self, places: Places, restored: Restored, origin: str, here: Sequence[int] = ()) -> None:
        """What was restored from here need not be written again, and what found no room is kept as it is.

        Args:
            here: places in the content of what is resident now; what was so before is written once more.
        """
        images, pages = self._manifest.tables()
        stored = self._manifest.continuations
        back = [places.continuations[place] for place in restored.continuations]
        ledgers = {
            ref: (stored[place].tokens, stored[place].trace)
            for ref, place in zip(restored.endpoints, back, strict=True)
        }
        known = {
            key: clipped
            for pool, keys in enumerate(restored.pages)
            for place, (key, tokens) in keys.items()
            # Behind what was taken the page may be written anew: whatever reaches beyond it is not known.
            if (clipped := tuple(p for p in pages[pool][places.pages[pool][place]] if p.end <= tokens))
        }
        self._index = _Index(
            origin, {key: images[places.images[place]] for place, key in restored.images.items()}, known, ledgers
        )
        # What came back without some checkpoint stays here whole, and is not written again as it is now.
        short = {
            place: ref
            for place, ref, count in zip(back, restored.endpoints, restored.counts, strict=True)
            if count < len(stored[place].checkpoints)
        }
        resident = {*back, *(places.continuations[place] for place in here)} - short.keys()
        self._carried = tuple(one for place, one in enumerate(stored) if place not in resident)
        self._short = frozenset(short.values())

    def held(self, prompts: Sequence[PreparedPrompt]) -> tuple[int, ...]:
        """For each prompt the frontier of the deepest checkpoint of it in the directory, whether it is resident or not;
        0 is none.

        Raises:
            SessionError: a ledger cannot be read, or is damaged.
        """
        found = []
        for one in self._manifest.continuations:
            tokens = decode(self._segments.read(one.tokens))
            found += [Identity.of(tokens, one.cuts, one.mode, c.frontier) for c in one.checkpoints]
        asked = map(Identity.of_prompt, prompts)
        return tuple(max((one.frontier for one in found if one.matches(prompt)), default=0) for prompt in asked)

    # --- saving ---------------------------------------------------------------------------------------------------
    def autosave(self, snapshot: Snapshot | None, conversation: Any) -> Autosaved:
        """Make the directory hold a snapshot that was taken with this store as its Known, and the conversation.

        Args:
            snapshot: None keeps the state that is there.

        Raises:
            SessionError: it cannot be written: the directory is as it was.
        """
        if self.aside is not None:
            self.aside = aside_of(self.path)  # the name may have been taken since
        if self.aside is not None:
            set_aside(self.path, self.aside)
            self.aside = None
        if snapshot is None:
            self._manifest, written, left_out = self._write(replace(self._manifest, conversation=conversation), {})
            return Autosaved(written, _size(self._manifest.blobs()), _named(left_out))
        index = self._index
        carried = self._carried
        if index.origin != snapshot.origin:
            index = _Index(snapshot.origin, {}, {}, {})
        if self._manifest.model is not None and self._manifest.model != snapshot.facts:
            carried = ()  # another model's state is of no use beside this one's
        draft = _Draft(self._manifest.following)
        grown = draft.grow(index, snapshot)
        short = self._short if carried else frozenset()
        continuations = [_stored(shot, grown) for shot in snapshot.continuations if shot.ref not in short]
        continuations += carried
        kept, left_out = _within(continuations, self.limit)
        kept = self._dense(kept, draft)
        manifest = Manifest(
            conversation, snapshot.facts, Shape(snapshot.image_bytes, snapshot.planes), tuple(kept), draft.following
        )
        manifest, written, beyond = self._write(manifest, draft.segments())
        living = manifest.blobs()
        self._manifest = manifest
        self._index = _living(draft.moved_index(grown), living)
        self._carried = tuple(one for one in manifest.continuations if one in set(draft.moved(carried)))
        self._segments.sweep(manifest)
        return Autosaved(written, _size(living), _named([*beyond, *left_out]))

    def _write(
        self, manifest: Manifest, segments: Mapping[int, Sequence[Any]]
    ) -> tuple[Manifest, int, list[StoredContinuation]]:
        """Write a manifest and those of the segments that it needs. The oldest state gives way where both are more than
        one header may hold, text never.

        Returns:
            The manifest as it was written, bytes, and the continuations that gave way.
        """
        left_out: list[StoredContinuation] = []
        while True:
            alive = {blob.segment for blob in manifest.blobs()}
            needed = {number: data for number, data in segments.items() if number in alive}
            try:
                written = self._segments.write(needed, manifest, self._key if self.signs else None)
            except SessionTooLarge:
                kept = manifest.continuations
                if not kept:
                    raise
                some = len(kept) * 3 // 4
                left_out[:0] = kept[some:]
                manifest = replace(manifest, continuations=kept[:some])
                continue
            self._empty = False
            return manifest, written, left_out

    def _dense(self, kept: Sequence[StoredContinuation], draft: _Draft) -> list[StoredContinuation]:
        """Move what is still needed out of segments that are mostly dead."""
        alive: dict[int, int] = {}
        used = {blob for one in kept for blob in one.blobs() if blob.segment < self._manifest.following}
        for blob in used:
            alive[blob.segment] = alive.get(blob.segment, 0) + blob.size
        for number, size in alive.items():
            path = self.path / f"{number:08d}.segment"
            if size * SPARSE < path.stat().st_size:
                for blob in sorted(blob for blob in used if blob.segment == number):
                    draft.move(blob, self._segments.read(blob))
        return draft.moved(kept)


class _Draft:
    """The segments of one autosave, while they are put together."""

    def __init__(self, following: int) -> None:
        self._shared = following
        self.following = following + 1
        self._images: dict[int, Any] = {}
        self._buffers: list[Any] = []
        self._offset = 0
        self._moves: dict[Blob, Blob] = {}

    def grow(self, index: _Index, snapshot: Snapshot) -> _Index:
        """The index with what is new in a snapshot, and without what it does not need."""
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
        return _Index(snapshot.origin, images, pages, ledgers)

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

    def moved_index(self, index: _Index) -> _Index:
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


def _stored(shot: ContinuationShot, index: _Index) -> StoredContinuation:
    tokens, trace = index.ledgers[shot.ref]
    checkpoints = tuple(
        StoredCheckpoint(
            SourceKind(c.kind),
            c.frontier,
            index.images[c.image],
            tuple(tuple(index.pages[key] for key in held) for held in c.pages),
        )
        for c in shot.checkpoints
    )
    cuts = tuple(int(cut) for cut in shot.identity.cuts)
    return StoredContinuation(shot.role, cuts, shot.identity.mode, tokens, trace, checkpoints)


def _within(
    continuations: Sequence[StoredContinuation], limit: int
) -> tuple[list[StoredContinuation], list[StoredContinuation]]:
    """The newest ones that take no more than limit bytes together, and the others."""
    seen: set[Blob] = set()
    size = 0
    for number, one in enumerate(continuations):
        fresh = set(one.blobs()) - seen
        size += _size(fresh)
        if size > limit:
            return list(continuations[:number]), list(continuations[number:])
        seen |= fresh
    return list(continuations), []


def _named(continuations: Iterable[StoredContinuation]) -> tuple[Named, ...]:
    return tuple(tuple((c.kind, c.frontier) for c in one.checkpoints) for one in continuations)


def _size(blobs: Iterable[Blob]) -> int:
    return sum(blob.size for blob in blobs)


def _living(index: _Index, living: set[Blob]) -> _Index:
    """The index without what the manifest does not refer to: its segments go."""
    return replace(
        index,
        images={key: blob for key, blob in index.images.items() if blob in living},
        pages={key: page for key, page in index.pages.items() if all(piece.blob in living for piece in page)},
        ledgers={ref: pair for ref, pair in index.ledgers.items() if set(pair) <= living},
    )


def _make(path: Path) -> bool:
    """Make the directory, or make sure that it is a session's. Returns whether it was made."""
    try:
        made = not path.exists()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        ours = (NAME, LOCK)
        if not (path / NAME).exists() and any(
            entry.name not in ours and not SEGMENT.fullmatch(entry.name) and not entry.name.endswith(".part")
            for entry in path.iterdir()
        ):
            raise SessionError(f"{path} is a directory without a session in it: choose a new or an empty one")
        return made
    except FileExistsError:
        raise SessionError(f"{path} is a file, not a session's directory: choose another name") from None
    except OSError as error:
        raise SessionError(f"{path} cannot be written ({error.strerror or error})") from error
