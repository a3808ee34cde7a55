"""Continuations: inactive owners out of this Program and into it, between units of work (context-cache SES)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Sequence as Many

from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.gate import Gate
from ninfer_core.program.owner_ids import OwnerIds
from ninfer_core.program.restoring import Restored, Restorer
from ninfer_core.program.session_content import SessionContent
from ninfer_core.program.session_directory import Fit, Sizes
from ninfer_core.program.snapshot import Known, Nothing, Photographer, Snapshot
from ninfer_core.program.snapshot import content as complete_content


class Continuations:
    """Saves and restores. Only `restore` mutates."""

    def __init__(self, photographer: Photographer, restorer: Restorer, gate: Gate, owner_ids: OwnerIds) -> None:
        self._photographer = photographer
        self._restorer = restorer
        self._gate = gate
        self._owner_ids = owner_ids

    # --- out ------------------------------------------------------------------------------------------------------
    def model_facts(self) -> Mapping[str, object]:
        """What a saved state's model must agree in. Any thread may ask; the first waits for the fingerprint."""
        return self._photographer.facts()

    @property
    def origin(self) -> str:
        """Names this Program among all, for what it has handed out keys of."""
        return self._photographer.origin

    def fitting(self, owners: Many[OwnerId], limit: int) -> int:
        """How many of the first owners take no more than limit bytes together. Raises KeyError for one that is gone."""
        return self._photographer.fitting(owners, limit)

    def snapshot(self, owners: Many[OwnerId], known: Known | None = None) -> Snapshot:
        """Copy what is not known yet of inactive owners (SES-2).

        Raises:
            ValueError: an owner is active or gone. RuntimeError: a transition is open.
        """
        self._gate.quiet()
        return self._photographer.take(owners, known or Nothing())

    def save(self, owners: Many[OwnerId], conversation: object = None) -> SessionContent:
        """Snapshot inactive owners for a portable file. Raises like `snapshot`."""
        return complete_content(self.snapshot(owners), conversation)

    # --- in -------------------------------------------------------------------------------------------------------
    def selection(self, header: Mapping[str, object], sizes: Sizes, cells: int) -> Fit:
        """What of a session could find room in an empty Program. Any thread may ask; raises SessionError."""
        return self._restorer.selection(header, sizes, self.model_facts(), cells)

    def resident(self, content: SessionContent) -> Mapping[int, OwnerId]:
        """A content's continuations that are here already, by place. Raises SessionError."""
        return self._restorer.resident(content)

    def check(
        self, content: SessionContent, cells: int, resident: Collection[int], releasable: Collection[OwnerId]
    ) -> None:
        """Whether a content can be restored once these owners are released: asked before one of them is.

        Raises:
            SessionError: as `restore`. Nothing changes.
        """
        self._restorer.check(content, self.model_facts(), cells, resident, releasable)

    def restore(self, content: SessionContent, cells: int = 1 << 30, resident: Collection[int] = ()) -> Restored:
        """Publish what fits of a checked content as private owners (SES-1, SES-3). The revision advances.

        Args:
            cells: how many continuations have a place.
            resident: places of continuations that are here already.

        Raises:
            SessionError: another model, a damaged directory, or room for nothing; nothing changed then.
            RuntimeError: a transition is open.
        """
        self._gate.quiet()
        restored = self._restorer.restore(content, self.model_facts(), self._owner_ids.next, cells, resident)
        self._owner_ids.take(len(restored.owners))
        return restored
