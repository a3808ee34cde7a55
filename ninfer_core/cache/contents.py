"""Contents: what is catalogued, as a planning session reads it: owner by owner, for it looks at few of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ninfer_core.cache.catalog import Entry
from ninfer_core.cache.demand import DemandWindow
from ninfer_core.cache.shelf import Shelf
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.program.ledger.objects import Checkpoint, Replicas


class Standing(NamedTuple):
    """What an owner's checkpoints were found to save beside all others.

    Attributes:
        stamp: of the shelf: it holds until a checkpoint on the owner's paths has come or gone.
        deepest: saving of the deepest whose loss counts: the owner's others rarely save more.
        others: of those that somebody has asked about.
    """

    stamp: int
    deepest: float
    others: dict[CheckpointRef, float]


@dataclass(frozen=True, slots=True)
class Contents:
    """
    Attributes:
        entry: by owner; None for one that is not catalogued.
        checkpoints: those of an owner, ascending.
        shelf: which owner has which checkpoint, and which have a key.
        demands: the window.
        epoch: materializations so far.
        now: where everything lies at this revision.
        standing: what earlier sessions found: for quick measures only.
    """

    entry: Callable[[OwnerId], Entry | None]
    checkpoints: Callable[[OwnerId], tuple[Checkpoint, ...]]
    shelf: Shelf
    demands: DemandWindow
    epoch: int
    now: Replicas
    standing: dict[OwnerId, Standing] = field(default_factory=dict)

    def retained(self, entry: Entry) -> tuple[int, bool]:
        """(weight of private retention, whether there is explicit credit) of an owner."""
        if entry.shared:
            return 0, entry.credit_until is not None
        return entry.prior(self.epoch).weight, False
