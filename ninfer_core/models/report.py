"""LoadReport: what loading took from a checkpoint and what it left."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Attributes:
    tensors: published tensors that were loaded.
    nbytes: bytes that the weights occupy in memory, tied ones once.
    visual_skipped, mtp_skipped: tensors of the vision tower and of multi-token prediction, which this text model
        does not use.
    """

    tensors: int
    nbytes: int
    visual_skipped: int
    mtp_skipped: int
