"""SessionStore: a conversation's directory, saved again after every turn, where only what is new is written.

Every StateImage is a segment of its own, so that its bytes go with it; what else a turn has added (pieces of pages,
ledgers) makes one segment. A segment goes when nothing in it is referred to, and is written again when most of it is
dead. The manifest is replaced last: whenever the process dies, the old or the new state is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ninfer_core.contract.ids import CheckpointRef
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.errors import SessionError, SessionTooLarge
from ninfer_core.program.identity import Identity, decode
from ninfer_core.program.restoring import Named, Restored
from ninfer_core.program.session_aside import aside_of, set_aside
from ninfer_core.program.session_content import Places
from ninfer_core.program.session_draft import Draft
from ninfer_core.program.session_header import Header
from ninfer_core.program.session_index import Index
from ninfer_core.program.session_key import SessionKey
from ninfer_core.program.session_manifest import (
    NAME,
    Blob,
    Manifest,
    Shape,
    StoredContinuation,
)
from ninfer_core.program.session_place import SessionPlace
from ninfer_core.program.session_reader import SessionDirectory
from ninfer_core.program.session_segments import Segments
from ninfer_core.program.snapshot import ImageKey, PageKey, Snapshot

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


class SessionStore:
    """One process writes a directory at a time; one thread uses this object. Close it, or use it as a context manager.

    Attributes:
        header: as it was found; None for a new directory.
        aside: where what the directory holds stays when it is written for the first time: state that was left aside, or
            segments without a manifest. None where nothing goes.
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
        self._place = SessionPlace(path)
        try:
            self.header: Header | None = None
            self._manifest = Manifest(None, None, Shape(0, ()), (), 1)
            if text_only:
                self.header = self._segments.header(key)
                self._manifest = replace(self._manifest, following=self._segments.following())
                self.aside = aside_of(path)
            elif (path / NAME).exists() or (path / NAME).is_symlink():
                self.header, self._manifest = self._segments.manifest(key)
                self._segments.sweep(self._manifest)
            elif (aside := aside_of(path)) is not None:
                # Left by a process that died before its first save, or a manifest was lost that may be found again.
                self._manifest = replace(self._manifest, following=self._segments.following())
                self.aside = aside
            else:
                self._segments.sweep(self._manifest)
        except BaseException:
            self.close()
            raise
        self._index = Index()
        self._carried: tuple[StoredContinuation, ...] = ()
        self._short: frozenset[CheckpointRef] = frozenset()

    def close(self) -> None:
        """Let others write it. A directory that was made here and never written goes again. Idempotent."""
        self._place.release()

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
        self._index = Index(
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
            index = Index(snapshot.origin)
        if self._manifest.model is not None and self._manifest.model != snapshot.facts:
            carried = ()  # another model's state is of no use beside this one's
        draft = Draft(self._manifest.following)
        grown = draft.grow(index, snapshot)
        short = self._short if carried else frozenset()
        continuations = [grown.stored(shot) for shot in snapshot.continuations if shot.ref not in short]
        continuations += carried
        kept, left_out = _within(continuations, self.limit)
        kept = self._dense(kept, draft)
        manifest = Manifest(
            conversation, snapshot.facts, Shape(snapshot.image_bytes, snapshot.planes), tuple(kept), draft.following
        )
        manifest, written, beyond = self._write(manifest, draft.segments())
        alive = manifest.blobs()
        self._manifest = manifest
        self._index = draft.moved_index(grown).only(alive)
        self._carried = tuple(one for one in manifest.continuations if one in set(draft.moved(carried)))
        self._segments.sweep(manifest)
        return Autosaved(written, _size(alive), _named([*beyond, *left_out]))

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
            return manifest, written, left_out

    def _dense(self, kept: Sequence[StoredContinuation], draft: Draft) -> list[StoredContinuation]:
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
