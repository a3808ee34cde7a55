"""Views: look-ups in the published world and its records. Read only; an answer is valid at this revision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ninfer_core.contract.cache_table import AxisUse
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.contract.plans import RequestWork
from ninfer_core.contract.results import CheckpointSummary
from ninfer_core.program.identity import Identity
from ninfer_core.program.ledger.objects import Checkpoint
from ninfer_core.program.ledger.world import World
from ninfer_core.program.matching import longest_common, matching
from ninfer_core.program.planning.outcome import Outcome, UnchangedOutcomes
from ninfer_core.program.records import Record, Records
from ninfer_core.program.storage.physical import Physical
from ninfer_core.program.summary import axes, footprint, summarise


class Views:
    """What there is: owners, checkpoints, identities, use of every axis."""

    def __init__(self, physical: Physical, records: Records) -> None:
        self._physical = physical
        self._records = records

    @property
    def _world(self) -> World:
        return self._physical.world

    def record(self, ref: CheckpointRef) -> Record:
        """Identity, trace and short-list digest of a checkpoint. Raises KeyError when it is gone."""
        return self._records[ref]

    def summaries(self, owner: OwnerId) -> tuple[CheckpointSummary, ...]:
        """An owner's checkpoints for the logical side, ascending; none when it is gone."""
        return summarise(self._world, owner)

    def axes(self) -> tuple[AxisUse, ...]:
        """Use, reservations and capacity of every axis."""
        return axes(self._world)

    def footprint(self, owner: OwnerId) -> tuple[int, int]:
        """(exclusive bytes, bytes held together with others) of an owner. Raises KeyError when it is gone."""
        return footprint(self._world, owner)

    def identity(self, work: RequestWork) -> Identity:
        """The identity of a whole prompt, to verify candidates with."""
        return Identity.of_prompt(work.prompt)

    def verify(self, owner: OwnerId, ref: CheckpointRef, prompt: Identity) -> Checkpoint | None:
        """The checkpoint if its identity is exactly that of a prefix of the prompt, else None (CAN-1, CKP-1)."""
        return next((found for _, found in self.matching([owner], prompt) if found.ref == ref), None)

    def matching(self, owners: Iterable[OwnerId], prompt: Identity) -> Iterator[tuple[OwnerId, Checkpoint]]:
        """Every checkpoint of these owners whose identity is exactly that of a prefix of the prompt: see `matching`."""
        return matching(self._world, self._records, owners, prompt)

    def longest_common(
        self, refs: Iterable[CheckpointRef], prompt: Identity, tokens: int
    ) -> tuple[int, Identity | None]:
        """How far the prompt runs beside any of these checkpoints, beyond so many tokens: see `longest_common`."""
        return longest_common(self._records, refs, prompt, tokens)

    def checkpoints(self, owner: OwnerId) -> tuple[Checkpoint, ...]:
        """Opaque handles of an owner's checkpoints, ascending; none when it is gone."""
        found = self._world.owners.get(owner)
        return () if found is None else found.checkpoints

    def is_prefix(self, first: CheckpointRef, second: CheckpointRef) -> bool:
        """Whether the first checkpoint lies on the path to the second, exactly (ID-1)."""
        return self._records[first].identity.matches(self._records[second].identity)

    def domain(self, owners: Iterable[OwnerId]) -> Mapping[OwnerId, Outcome]:
        """The identity outcome of every named owner that is inactive: the eligible victims (TGT-2, PLAN-14)."""
        world = self._world
        found = [world.owners[owner] for owner in owners if owner in world.owners]
        return UnchangedOutcomes([owner for owner in found if owner.lane is None], world.replicas)
