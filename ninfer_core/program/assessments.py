"""Assessments: what a target would lead to, and what a request or capture would demand. Read only; an answer is valid
at this revision and reserves nothing (context-cache INV-17)."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many
from dataclasses import replace

from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, OwnerId
from ninfer_core.contract.plans import Readiness, RequestWork, SequenceHandle
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.gate import Gate
from ninfer_core.program.ledger.objects import Checkpoint
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.assessment import Assessment, AssessmentSession, judge
from ninfer_core.program.planning.backfill import BackfillProof, prove_backfill
from ninfer_core.program.planning.projection import Projection, project
from ninfer_core.program.planning.target import Activation, Capture, Source, SourceMode, Target
from ninfer_core.program.planning.work import ImmediateWork, immediate
from ninfer_core.program.sequences import Sequences
from ninfer_core.program.storage.page_store import pages_for
from ninfer_core.program.storage.physical import Physical


class Assessments:
    """Judges complete targets, and says what they are made of."""

    def __init__(self, physical: Physical, sequences: Sequences, gate: Gate, lease: int | None) -> None:
        self._physical = physical
        self._sequences = sequences
        self._gate = gate
        self._lease = lease
        self._session: AssessmentSession | None = None

    @property
    def _world(self) -> World:
        return self._physical.world

    # --- what a target is made of ---------------------------------------------------------------------------------
    def source(self, owner: OwnerId, checkpoint: Checkpoint, mode: SourceMode, keep: bool = True) -> Source:
        """Fix how an activation takes a checkpoint.

        Args:
            keep: with CONSUME, whether a source that is no endpoint stays a checkpoint of the new lineage (CAN-8).
        """
        if mode is SourceMode.RETAIN:
            return Source(owner, checkpoint, mode)
        stays = keep and checkpoint.kind is not SourceKind.SESSION_ENDPOINT
        lineage = tuple(
            c
            for c in self._world.owners[owner].checkpoints
            if c.frontier < checkpoint.frontier or (stays and c.ref == checkpoint.ref)
        )
        return Source(owner, checkpoint, mode, lineage)

    def activation(self, source: Source | None, work: RequestWork) -> Activation:
        """The demand of a request from a source; with a lease only the window beyond the prompt."""
        tokens = work.lifetime_tokens
        if self._lease is not None:
            tokens = min(tokens, len(work.prompt) + self._lease)
        return Activation(source, tuple(pages_for(tokens) for _ in self._physical.pools))

    def capture_demand(self, handle: SequenceHandle, frontier: int, on_device: bool) -> Capture:
        """The room that a checkpoint of the sequence at frontier needs. Raises RuntimeError for a stale handle."""
        sequence = self._sequences.sequence(handle)
        tails = tuple(int(frontier % PAGE_SIZE != 0) for _ in self._physical.pools)
        return Capture(sequence.owner, on_device, not on_device, tails)

    # --- judgements -----------------------------------------------------------------------------------------------
    def assess(self, target: Target) -> Assessment:
        """Judge one complete target. Mutates nothing."""
        blocked, projection = self._gate.blocked(), project(self._world, target)
        if blocked:
            return Assessment(Readiness.TEMPORARILY_BLOCKED, projection, blocked)
        return judge(self._world, target, projection)

    def session(self) -> AssessmentSession:
        """For a planner that assesses many targets: the same judgements, much faster. Valid at this revision."""
        if self._session is None or self._session.revision != self._world.revision:
            self._session = AssessmentSession(lambda: self._world, self._gate.blocked)
        return self._session

    def projection(self, target: Target) -> Projection:
        """The complete post-state: counted in the present session where there is one, as the planner has just done for
        most of it, else from nothing."""
        if self._session is not None and self._session.revision == self._world.revision:
            return self._session.project(target)
        return project(self._world, target)

    def immediate(self, target: Target, projection: Projection, prompt_tokens: int) -> ImmediateWork:
        """What executing an assessed target does, and what is left to prefill then (COST-1)."""
        activation = target.demand if isinstance(target.demand, Activation) else None
        places = self._physical.pools[0].device_page
        return immediate(self._world.geometry, projection, activation, prompt_tokens, places)

    def fits_without(self, owner: OwnerId, ref: CheckpointRef, demand: Capture, lanes: int) -> bool:
        """Whether a capture would fit, and leave so many lanes their StateImage, once one of its owner's own
        checkpoints is given up. Mutates nothing."""
        found = self._world.owners[owner]
        left = replace(found, checkpoints=tuple(c for c in found.checkpoints if c.ref != ref))
        world = self._world.with_owner(left).collected()
        return _leaves_images(world, demand, lanes, 0) and project(world, Target(demand)).feasible

    def leaves_images(self, demand: Capture, lanes: int, beside: int = 0) -> bool:
        """Whether every one of so many lanes could still have a StateImage on Device with the capture made, and
        `beside` places were free even now. What is inactive can be released for the lanes; what running sequences
        hold cannot."""
        return _leaves_images(self._world, demand, lanes, beside)

    def backfill_proof(
        self, donors: Iterable[SequenceHandle], borrower: Activation, head: Activation, protected: Many[OwnerId] = ()
    ) -> BackfillProof | None:
        """Whether the borrower may pass the head (ACT-5): see `prove_backfill`. None too while a transition is open.

        Raises:
            RuntimeError: a donor's handle is stale.
        """
        if self._gate.blocked():
            return None
        owners = {self._sequences.sequence(donor).owner for donor in donors}
        return prove_backfill(self._world, owners, borrower, head, protected)


def _leaves_images(world: World, demand: Capture, lanes: int, beside: int) -> bool:
    active = [owner for owner in world.owners.values() if owner.lane is not None]
    held = 0
    for owner in active:
        held |= owner.needs_images
    most = world.geometry.capacity.device_images - demand.device_image
    kept = (held & world.replicas.device_images).bit_count()
    if kept + max(0, lanes - len(active)) > most:
        return False
    return not beside or world.used().device_images + beside <= most
