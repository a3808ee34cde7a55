"""PendingBatch: a pass that has run and waits for its verdict. Preview happens outside; commit or abort ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ninfer_core.contract.plans import SequenceHandle


@dataclass(frozen=True, slots=True)
class PendingRow:
    """One sequence's part of the pass.

    Attributes:
        executed: how many ledger tokens the pass covered.
        token: the token drawn after them, or None when the ledger has more to execute.
        error: a line for people when this row alone failed (the model gave no finite logits), else None.
    """

    handle: SequenceHandle
    executed: int
    token: int | None
    error: str | None = None


Settle = Callable[[tuple[PendingRow, ...], set[int]], None]
"""Applies the verdict: the rows, and the ids of the accepted sequences."""


class PendingBatch:
    """Call `commit` once, with the handles whose result stands; all others fail and can only be discarded.

    As a context manager it aborts (every row fails) when it was not committed.
    """

    def __init__(
        self, rows: tuple[PendingRow, ...], settle: Callable[[tuple[PendingRow, ...], set[int]], None]
    ) -> None:
        self.rows = rows
        self._settle: Settle | None = settle

    def commit(self, accepted: Iterable[SequenceHandle]) -> None:
        """Move frontier, ledger and sampling state of the accepted rows together; fail the others.

        Raises:
            RuntimeError: the batch was settled before.
        """
        settle, self._settle = self._settle, None
        if settle is None:
            raise RuntimeError("the batch is settled already")
        settle(self.rows, {handle.id for handle in accepted})

    def __enter__(self) -> PendingBatch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._settle is not None:
            self.commit(())
