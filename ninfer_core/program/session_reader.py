"""Reading a session, whichever of its two forms it has."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.errors import SessionError
from ninfer_core.program.session_content import Places, SessionContent, SessionSource
from ninfer_core.program.session_directory import Directory, Sizes
from ninfer_core.program.session_file import SessionFile, guarded_read
from ninfer_core.program.session_header import Header
from ninfer_core.program.session_key import SessionKey
from ninfer_core.program.session_manifest import Manifest, StoredPage
from ninfer_core.program.session_segments import Segments
from ninfer_core.program.session_text import missing_bytes, read_text

READS = 3
"""How often a directory is read that its owner replaces meanwhile (SegmentGone)."""


def open_session(path: Path, key: SessionKey | None = None) -> SessionSource:
    """A portable file or a directory, its header checked.

    Raises:
        SessionError: there is none, or one line that names the check that failed.
    """
    if guarded_read(path, path.is_dir):
        return SessionDirectory(path, key)
    try:
        return SessionFile(path, key)
    except SessionError:
        if missing := _missing(path):
            count, what = abs(missing), "missing" if missing > 0 else "too many"
            line = f"{path} is damaged ({count:,} byte{'s' * (count != 1)} {what} at its end): restore a copy"
            raise SessionError(line) from None
        raise


def _missing(path: Path) -> int:
    """Bytes that a file should have behind those that it has, as far as its description can be read."""
    try:
        return missing_bytes(path)
    except SessionError:
        return 0


def open_text(path: Path, key: SessionKey | None = None) -> Header:
    """The checked header alone, which holds the conversation: also where the state behind it is damaged or gone.

    Raises:
        SessionError: as `open_session`.
    """
    if guarded_read(path, path.is_dir):
        return Segments(path).header(key)
    return read_text(path, key)


class SessionDirectory:
    """A directory of segments that is open for reading (a SessionSource). It takes no lock."""

    def __init__(self, path: Path, key: SessionKey | None = None) -> None:
        self.path = path
        self._segments = Segments(path)
        self.header: Header
        self._manifest: Manifest
        self.header, self._manifest = self._segments.manifest(key)

    @classmethod
    def of(cls, path: Path, header: Header, manifest: Manifest) -> SessionDirectory:
        """The same with a manifest that was read already."""
        self = cls.__new__(cls)
        self.path, self._segments, self.header, self._manifest = path, Segments(path), header, manifest
        return self

    def sizes(self) -> Sizes:
        """See SessionSource."""
        return self._manifest.sizes()

    def load(self, directory: Directory) -> SessionContent:
        """See SessionSource."""
        import torch

        stored_images, stored_pages = self._manifest.tables()
        images = directory.images()
        pools = range(len(stored_pages))
        pages = [list(directory.pages(pool)) for pool in pools]
        rows = np.empty((len(images), self._manifest.shape.image_bytes), dtype=np.uint8)
        for i, place in enumerate(images):
            rows[i] = np.frombuffer(self._segments.read(stored_images[place]), dtype=np.uint8)
        tensors = {"images": torch.from_numpy(rows)}
        for pool in pools:
            tensors[f"pages.{pool}"] = torch.from_numpy(
                self._pages(pool, [stored_pages[pool][place] for place in pages[pool]])
            )
        for number, continuation in enumerate(directory.continuations):
            stored = self._manifest.continuations[continuation.place]
            for name, blob in (("tokens", stored.tokens), ("trace", stored.trace)):
                numbers = np.frombuffer(self._segments.read(blob), dtype="<i4").copy()
                tensors[f"{name}.{number}"] = torch.from_numpy(numbers)
        header = {
            "model": self._manifest.model,
            "conversation": self._manifest.conversation,
            "continuations": directory.json(images, pages),
        }
        places = Places(tuple(c.place for c in directory.continuations), tuple(images), tuple(map(tuple, pages)))
        return SessionContent(header, tensors, self.header.proven, places)

    def _pages(self, pool: int, wanted: list[StoredPage]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        """[pages, bytes], zeros behind what a page covers."""
        planes, token_bytes = self._manifest.shape.planes[pool]
        rows = np.zeros((len(wanted), planes, PAGE_SIZE * token_bytes), dtype=np.uint8)
        for i, page in enumerate(wanted):
            for piece in page:
                data = np.frombuffer(self._segments.read(piece.blob), dtype=np.uint8).reshape(planes, -1)
                rows[i, :, piece.start * token_bytes : piece.end * token_bytes] = data
        return rows.reshape(len(wanted), planes * PAGE_SIZE * token_bytes)
