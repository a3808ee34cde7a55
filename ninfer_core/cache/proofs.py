"""Proofs: what is kept of the last finished requests, to replay them (context-cache VER-1)."""

from __future__ import annotations

from dataclasses import dataclass

from ninfer_core.contract.ids import CheckpointRef, OwnerId, RequestId
from ninfer_core.contract.verification import Verification
from ninfer_core.program.program import Program
from ninfer_core.program.verification import Claim

PROVABLE = 16
"""How many finished requests can still be replayed."""


@dataclass(frozen=True, slots=True)
class Provable:
    """A finished request's claim, and where its endpoint was left."""

    claim: Claim
    owner: OwnerId
    ref: CheckpointRef


class Proofs:
    """By request, the newest PROVABLE of them."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._provable: dict[RequestId, Provable] = {}

    def remember(self, request: RequestId, provable: Provable) -> None:
        self._provable[request] = provable
        if len(self._provable) > PROVABLE:
            del self._provable[min(self._provable)]

    def verify(self, request: RequestId) -> Verification:
        """Replay a finished request cold and compare. Evicts nothing."""
        found = self._provable.get(request)
        if found is None:
            return Verification(None, None, None, "its trace is not known any more")
        return self._program.verify_claim(found.claim, found.owner, found.ref)
