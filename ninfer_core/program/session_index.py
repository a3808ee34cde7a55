"""Index: where what a Program holds lies in the segments of a session's directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ninfer_core.contract.ids import CheckpointRef
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.session_manifest import Blob, StoredCheckpoint, StoredContinuation, StoredPage
from ninfer_core.program.snapshot import ContinuationShot, ImageKey, PageKey


@dataclass(frozen=True, slots=True)
class Index:
    """Replaced whole, once the manifest is in place.

    Attributes:
        origin: of the snapshots that its keys belong to.
        ledgers: by endpoint, the tokens and the execution trace.
    """

    origin: str = ""
    images: Mapping[ImageKey, Blob] = field(default_factory=dict)
    pages: Mapping[PageKey, StoredPage] = field(default_factory=dict)
    ledgers: Mapping[CheckpointRef, tuple[Blob, Blob]] = field(default_factory=dict)

    def stored(self, shot: ContinuationShot) -> StoredContinuation:
        """A continuation of a snapshot, with the places of its pieces. Raises KeyError for one that is not here."""
        tokens, trace = self.ledgers[shot.ref]
        checkpoints = tuple(
            StoredCheckpoint(
                SourceKind(c.kind),
                c.frontier,
                self.images[c.image],
                tuple(tuple(self.pages[key] for key in held) for held in c.pages),
            )
            for c in shot.checkpoints
        )
        cuts = tuple(int(cut) for cut in shot.identity.cuts)
        return StoredContinuation(shot.role, cuts, shot.identity.mode, tokens, trace, checkpoints)

    def only(self, alive: set[Blob]) -> Index:
        """Without what a manifest does not refer to: its segments go."""
        return replace(
            self,
            images={key: blob for key, blob in self.images.items() if blob in alive},
            pages={key: page for key, page in self.pages.items() if all(piece.blob in alive for piece in page)},
            ledgers={ref: pair for ref, pair in self.ledgers.items() if alive.issuperset(pair)},
        )
