"""Records: what Program remembers of every published checkpoint beside its place in the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from ninfer_core.contract.ids import CheckpointRef
from ninfer_core.program.identity import Identity, Trace
from ninfer_core.program.ledger.world import World


@dataclass(frozen=True, slots=True)
class Record:
    """Attributes: digest: of the identity, for short lists."""

    identity: Identity
    trace: Trace
    digest: bytes


class Records:
    """By reference. References are never given twice."""

    def __init__(self) -> None:
        self._records: dict[CheckpointRef, Record] = {}
        self._next = 1

    def add(self, identity: Identity, trace: Trace) -> CheckpointRef:
        ref = CheckpointRef(self._next)
        self._next += 1
        self._records[ref] = Record(identity, trace, identity.digest())
        return ref

    def __getitem__(self, ref: CheckpointRef) -> Record:
        return self._records[ref]

    def __len__(self) -> int:
        return len(self._records)

    def follow(self, world: World) -> None:
        """Forget the records of checkpoints that the world has not any more."""
        living = (checkpoint.ref for owner in world.owners.values() for checkpoint in owner.checkpoints)
        self._records = {ref: self._records[ref] for ref in living}
