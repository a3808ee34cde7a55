"""Program: the only physical authority (context-cache AUT-5). Planning here is read only; transitions go through one
transaction at a time; passes run inside what a sequence was promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many
from dataclasses import replace

from ninfer_core.contract.cache_table import AxisUse
from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, Frontier, Generation, OwnerId, Revision, SequenceId
from ninfer_core.contract.plans import Readiness, RequestWork, SequenceHandle
from ninfer_core.contract.results import CheckpointSummary, Ending, Grant, ResourceResult
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.statistics import SourceKind, Transfer
from ninfer_core.contract.verification import Verification
from ninfer_core.models.model import Model
from ninfer_core.program.audit import audit, audit_records, audit_sequences
from ninfer_core.program.execution.passes import Passes
from ninfer_core.program.execution.pending import PendingBatch
from ninfer_core.program.execution.sampling import SamplerRow
from ninfer_core.program.identity import Identity, Trace, decode
from ninfer_core.program.ledger.geometry import Geometry, Vector
from ninfer_core.program.ledger.objects import Checkpoint, Owner, Replicas
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.assessment import Assessment, AssessmentSession, judge
from ninfer_core.program.planning.backfill import BackfillProof, prove_backfill
from ninfer_core.program.planning.outcome import Outcome, identity
from ninfer_core.program.planning.plan import ResourcePlan, seal
from ninfer_core.program.planning.pressure import sole
from ninfer_core.program.planning.projection import Projection, project
from ninfer_core.program.planning.target import Activation, Capture, Source, SourceMode, Target
from ninfer_core.program.planning.work import ImmediateWork, immediate
from ninfer_core.program.records import Record, Records
from ninfer_core.program.restoring import Restored, Restorer
from ninfer_core.program.sequence import Sequence, SequenceStatus
from ninfer_core.program.session_content import SessionContent
from ninfer_core.program.session_directory import Fit, Sizes
from ninfer_core.program.snapshot import Known, Nothing, Photographer, Snapshot
from ninfer_core.program.snapshot import content as complete_content
from ninfer_core.program.storage.page_store import pages_for
from ninfer_core.program.storage.physical import Physical
from ninfer_core.program.summary import axes, footprint, summarise
from ninfer_core.program.transactions.aliases import Aliases
from ninfer_core.program.transactions.publish import Publisher
from ninfer_core.program.transactions.running import Phase, RunningTransaction
from ninfer_core.program.verification import Claim, Left
from ninfer_core.program.verification import verify as verify_claim


class Program:
    """Physical state of one resident model. Only the Engine's worker thread calls it."""

    def __init__(
        self, model: Model, capacity: Vector, lease: int | None = None, facts: Mapping[str, str] | None = None
    ) -> None:
        """
        Args:
            capacity: the capacity vector (CAP-1).
            facts: what a saved state must agree in beside the model, such as digests of tokenizer and template.
            lease: with kv_lease_growth (ACT-3) the tokens that a running sequence is promised beyond its frontier;
                None promises its whole life.
        """
        self.model = model
        self.physical = Physical(model.layout, capacity, model.device)
        self.records = Records()
        self.fault: Callable[[Phase], None] | None = None
        self._lease = lease
        self._open: RunningTransaction | None = None
        self._failed = False
        self._session: AssessmentSession | None = None
        self._works: dict[ResourcePlan, tuple[RequestWork, Trace] | None] = {}
        self._sequences: dict[SequenceId, Sequence] = {}
        self._next_owner = 1
        self.publisher = Publisher(self.physical, self.records)
        """Zero-stage transitions of running sequences."""
        self._aliases = Aliases(self.physical, self.records)
        self._photographer = Photographer(model, self.physical, self.records, facts or {})
        self._restorer = Restorer(self.physical, self.records, model.layout.vocab_size)
        self.passes = Passes(model, self.physical, self.publisher)

    @property
    def world(self) -> World:
        return self.physical.world

    @property
    def revision(self) -> Revision:
        return self.world.revision

    # --- look-ups: read only, valid at this revision --------------------------------------------------------------
    def record(self, ref: CheckpointRef) -> Record:
        """Identity, trace and short-list digest of a checkpoint. Raises KeyError when it is gone."""
        return self.records[ref]

    def summaries(self, owner: OwnerId) -> tuple[CheckpointSummary, ...]:
        return summarise(self.world, owner)

    def axes(self) -> tuple[AxisUse, ...]:
        """Use, reservations and capacity of every axis."""
        return axes(self.world)

    def footprint(self, owner: OwnerId) -> tuple[int, int]:
        """(exclusive bytes, bytes held together with others) of an owner. Raises KeyError when it is gone."""
        return footprint(self.world, owner)

    def identity(self, work: RequestWork) -> Identity:
        """The identity of a whole prompt, to verify candidates with."""
        prompt = work.prompt
        cuts = prompt.boundaries.rewrite_execution_frontiers if prompt.boundaries else ()
        return Identity.of(prompt.token_ids, cuts, prompt.mode, len(prompt))

    def verify(self, owner: OwnerId, ref: CheckpointRef, prompt: Identity) -> Checkpoint | None:
        """The checkpoint if its identity is exactly that of a prefix of the prompt, else None (CAN-1, CKP-1)."""
        found = self.world.owners.get(owner)
        for checkpoint in found.checkpoints if found else ():
            if checkpoint.ref == ref and self.records[ref].identity.matches(prompt):
                return checkpoint
        return None

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
            for c in self.world.owners[owner].checkpoints
            if c.frontier < checkpoint.frontier or (stays and c.ref == checkpoint.ref)
        )
        return Source(owner, checkpoint, mode, lineage)

    def activation(self, source: Source | None, work: RequestWork) -> Activation:
        """The demand of a request from a source; with a lease only the window beyond the prompt."""
        tokens = work.lifetime_tokens
        if self._lease is not None:
            tokens = min(tokens, len(work.prompt) + self._lease)
        return Activation(source, tuple(pages_for(tokens) for _ in self.physical.pools))

    def assess(self, target: Target) -> Assessment:
        """Judge one complete target. Mutates nothing."""
        blocked, projection = self._blocked(), project(self.world, target)
        if blocked:
            return Assessment(Readiness.TEMPORARILY_BLOCKED, projection, blocked)
        return judge(self.world, target, projection)

    def session(self) -> AssessmentSession:
        """For a planner that assesses many targets: the same judgements, much faster. Valid at this revision."""
        if self._session is None or self._session.revision != self.revision:
            self._session = AssessmentSession(lambda: self.world, self._blocked)
        return self._session

    # --- for the planner: read only, valid at this revision --------------------------------------------------------
    @property
    def geometry(self) -> Geometry:
        return self.world.geometry

    def checkpoints(self, owner: OwnerId) -> tuple[Checkpoint, ...]:
        """Opaque handles of an owner's checkpoints, ascending; none when it is gone."""
        found = self.world.owners.get(owner)
        return () if found is None else found.checkpoints

    def is_prefix(self, first: CheckpointRef, second: CheckpointRef) -> bool:
        """Whether the first checkpoint lies on the path to the second, exactly (ID-1)."""
        return self.records[first].identity.matches(self.records[second].identity)

    def domain(self, owners: Iterable[OwnerId]) -> dict[OwnerId, Outcome]:
        """The identity outcome of every named owner that is inactive: the eligible victims (TGT-2, PLAN-14)."""
        world = self.world
        found = [world.owners[owner] for owner in owners if owner in world.owners]
        return {owner.id: identity(owner, world.replicas) for owner in found if owner.lane is None}

    def sole(self, target: Target) -> Replicas:
        """What each survivor of a target alone holds: a hint at what a further step would free."""
        return sole(self.world, target)

    def immediate(self, target: Target, projection: Projection, prompt_tokens: int) -> ImmediateWork:
        """What executing an assessed target does, and what is left to prefill then (COST-1)."""
        activation = target.demand if isinstance(target.demand, Activation) else None
        places = self.physical.pools[0].device_page
        return immediate(self.geometry, projection, activation, prompt_tokens, places)

    # --- sealing --------------------------------------------------------------------------------------------------
    def backfill_proof(
        self, donors: Iterable[SequenceHandle], borrower: Activation, head: Activation, protected: Many[OwnerId] = ()
    ) -> BackfillProof | None:
        """Whether the borrower may pass the head (ACT-5): see `prove_backfill`. None too while a transition is open.

        Raises:
            RuntimeError: a donor's handle is stale.
        """
        if self._blocked():
            return None
        owners = {self._sequence(donor).owner for donor in donors}
        return prove_backfill(self.world, owners, borrower, head, protected)

    def seal(self, target: Target, work: RequestWork | None = None) -> ResourcePlan:
        """Fix a feasible target as a plan.

        Raises:
            ValueError: it is illegal (TGT-2), or does not fit.
        """
        owner = target.demand.owner if isinstance(target.demand, Capture) else None
        if isinstance(target.demand, Activation):
            assert work is not None, "an activation needs its request"
            owner = OwnerId(self._next_owner)
            self._next_owner += 1
            source = target.demand.source
            trace = () if source is None else self.records[source.checkpoint.ref].trace
        plan = seal(self.world, target, owner)
        self._works[plan] = None if work is None else (work, trace)
        return plan

    # --- transitions ----------------------------------------------------------------------------------------------
    def start(self, plan: ResourcePlan) -> RunningTransaction | ResourceResult:
        """Verify the plan again and begin it (TXN-3). A stale or used plan is aborted without any effect.

        Returns:
            The transaction, to be driven with `advance`; or an ABORTED result.
        """
        if self._open is not None:
            return self._refused("another transition is open")
        if plan not in self._works:
            return self._refused("the plan was used already")
        if plan.revision != self.revision or project(self.world, plan.target) != plan.projection:
            del self._works[plan]
            return self._refused("the plan is stale")
        self._open = RunningTransaction(self.physical, plan, self.fault)
        return self._open

    def advance(self, transaction: RunningTransaction, plan: ResourcePlan) -> ResourceResult | SequenceHandle | None:
        """Drive the open transaction by one piece of work. When it commits an activation, its sequence's handle."""
        try:
            result = transaction.advance()
        except BaseException:
            self._failed = True
            raise
        if result is None:
            return None
        self._open = None
        work = self._works.pop(plan)
        self._forget_records()
        if result.ending is Ending.COMMITTED and result.owner is not None and work is not None:
            return self._publish_sequence(plan, *work, result.owner)
        return result

    def materialize(self, target: Target, work: RequestWork) -> SequenceHandle | ResourceResult:
        """Seal, start and drive an activation to its end."""
        plan = self.seal(target, work)
        begun = self.start(plan)
        if isinstance(begun, ResourceResult):
            return begun
        while (done := self.advance(begun, plan)) is None:
            pass
        return done

    def transition(self, target: Target) -> ResourceResult:
        """Seal, start and drive a capture's room or an explicit release to its end."""
        plan = self.seal(target)
        begun = self.start(plan)
        if isinstance(begun, ResourceResult):
            return begun
        while (done := self.advance(begun, plan)) is None:
            pass
        assert isinstance(done, ResourceResult)
        return done

    def release(self, owner: OwnerId) -> None:
        """Zero-stage: an inactive owner goes at once (TXN-2). Raises RuntimeError for an active or unknown one."""
        self._quiet()
        found = self.world.owners.get(owner)
        if found is None or found.lane is not None:
            raise RuntimeError(f"owner {owner} is not an inactive owner")
        self.physical.publish(self.world.without_owner(owner).advanced())
        self._forget_records()

    # --- checkpoints that share another's image and pages: zero-stage, nothing is copied ---------------------------
    def share(self, owner: OwnerId, ref: CheckpointRef, *, keep: bool) -> OwnerId:
        """Publish a checkpoint as a shared prefix, a new owner (CAN-9). With keep its owner has it, too.

        Raises:
            KeyError: the checkpoint is gone. RuntimeError: a transition is open.
        """
        self._quiet()
        shared = OwnerId(self._next_owner)
        (self._aliases.share if keep else self._aliases.separate)(owner, ref, shared)
        self._next_owner += 1
        self._forget_records()
        return shared

    def alias(self, source: OwnerId, ref: CheckpointRef, owner: OwnerId, kind: SourceKind) -> CheckpointRef:
        """Give an owner a checkpoint that another one has, too. Raises like `share`."""
        self._quiet()
        return self._aliases.add(source, ref, owner, kind)

    def drop_checkpoint(self, owner: OwnerId, ref: CheckpointRef) -> None:
        """Delete one checkpoint; an inactive owner goes with its last one. Raises like `share`."""
        self._quiet()
        self._aliases.drop(owner, ref)
        self._forget_records()

    # --- passes ---------------------------------------------------------------------------------------------------
    def unexecuted(self, handle: SequenceHandle) -> int:
        """Ledger tokens that no pass has covered yet."""
        return self._sequence(handle).unexecuted

    def force(self, handle: SequenceHandle, token_ids: Many[int]) -> int:
        """Append output tokens that were not drawn. They run with the next pass, like any others.

        Returns:
            How many fitted the sequence's lifetime: the rest was not appended.
        """
        sequence = self._active(handle)
        fitting = token_ids[: sequence.lifetime_tokens - len(sequence.ledger)]
        for token in fitting:
            sequence.forced.append(len(sequence.ledger))
            sequence.ledger.append(token)
            sequence.sampler.accept(token)
        return len(fitting)

    def execute(self, work: Many[tuple[SequenceHandle, int]]) -> PendingBatch:
        """Run one pass: for each sequence up to n unexecuted ledger tokens. A row that reaches the end of its ledger
        draws the next token; one that has nothing left to execute draws from the hidden row of its state (DEF-5).

        The caller must commit the returned batch. When the pass itself raises, every sequence in it has failed.
        """
        return self.passes.execute([(self._active(handle), count) for handle, count in work])

    # --- captures -------------------------------------------------------------------------------------------------
    def capture_demand(self, handle: SequenceHandle, frontier: int, on_device: bool) -> Capture:
        """The room that a checkpoint of the sequence at frontier needs."""
        sequence = self._sequence(handle)
        tails = tuple(int(frontier % PAGE_SIZE != 0) for _ in self.physical.pools)
        return Capture(sequence.owner, on_device, not on_device, tails)

    def fits_without(self, owner: OwnerId, ref: CheckpointRef, demand: Capture) -> bool:
        """Whether a capture would fit once one of its owner's own checkpoints is given up. Mutates nothing."""
        found = self.world.owners[owner]
        left = replace(found, checkpoints=tuple(c for c in found.checkpoints if c.ref != ref))
        return project(self.world.with_owner(left).collected(), Target(demand)).feasible

    def leaves_images(self, demand: Capture, lanes: int, beside: int = 0) -> bool:
        """Whether every one of so many lanes could still have a StateImage on Device with the capture made, and
        `beside` places were free even now. What is inactive can be released for the lanes; what running sequences
        hold cannot."""
        active = [owner for owner in self.world.owners.values() if owner.lane is not None]
        held = 0
        for owner in active:
            held |= owner.needs_images
        most = self.geometry.capacity.device_images - demand.device_image
        kept = (held & self.world.replicas.device_images).bit_count()
        if kept + max(0, lanes - len(active)) > most:
            return False
        return not beside or self.world.used().device_images + beside <= most

    def arm(self, handle: SequenceHandle, frontier: Frontier, kind: SourceKind, grant: Grant) -> None:
        """Use a grant for the checkpoint at a frontier that is still to come, or at the present one (Freeze).

        Raises:
            RuntimeError: the frontier has passed, or a Host image is asked for inside a pass to come.
        """
        self.passes.arm(self._active(handle), frontier, kind, grant)

    def drop_grant(self, handle: SequenceHandle, grant: Grant) -> None:
        """Give unused room back."""
        self.publisher.drop_grant(self._sequence(handle), grant)

    # --- ends -----------------------------------------------------------------------------------------------------
    def end(self, handle: SequenceHandle) -> None:
        """The request has its last token: keep handle and reservation until finish or discard (ACT-4)."""
        self._active(handle).status = SequenceStatus.TERMINAL_PENDING

    def finish(self, handle: SequenceHandle) -> OwnerId | None:
        """Publish an ended sequence as a private continuation with its endpoint. Zero-stage (TXN-2).

        Returns:
            The owner; None when there was no state to keep, and everything was released.
        """
        self._quiet()
        sequence = self._sequence(handle)
        if sequence.status is not SequenceStatus.TERMINAL_PENDING:
            raise RuntimeError("finish follows end")
        if sequence.frontier == 0:
            self.discard(handle)
            return None
        self.publisher.finish(sequence)
        del self._sequences[handle.id]
        return sequence.owner

    def discard(self, handle: SequenceHandle) -> None:
        """Release the whole sequence with its optional checkpoints, whatever its status. Cannot fail for a live one."""
        self._quiet()
        sequence = self._sequence(handle)
        del self._sequences[handle.id]
        self.physical.publish(self.world.without_owner(sequence.owner).advanced())
        self._forget_records()

    # --- sessions: between units of work --------------------------------------------------------------------------
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
        """Copy what is not known yet of inactive owners. Mutates nothing (SES-2).

        Raises:
            ValueError: an owner is active or gone.
        """
        self._quiet()
        return self._photographer.take(owners, known or Nothing())

    def save_continuations(self, owners: Many[OwnerId], conversation: object = None) -> SessionContent:
        """Snapshot inactive owners for a portable file. Mutates nothing. Raises like `snapshot`."""
        return complete_content(self.snapshot(owners), conversation)

    def selection(self, header: Mapping[str, object], sizes: Sizes, cells: int) -> Fit:
        """What of a session could find room in an empty Program. Any thread may ask; raises SessionError."""
        return self._restorer.selection(header, sizes, self.model_facts(), cells)

    def restorable(self, content: SessionContent, cells: int) -> int:
        """How many of a content's continuations find room now. Mutates nothing; raises SessionError."""
        return self._restorer.restorable(content, cells)

    def restore_continuations(self, content: SessionContent, cells: int = 1 << 30) -> Restored:
        """Publish what fits of a checked content as private owners (SES-1, SES-3). The revision advances.

        Args:
            cells: how many continuations have a place.

        Raises:
            SessionError: another model, a damaged directory, or room for nothing; nothing changed then.
        """
        self._quiet()
        restored = self._restorer.restore(content, self.model_facts(), self._next_owner, cells)
        self._next_owner += len(restored.owners)
        return restored

    # --- progress of a sequence -----------------------------------------------------------------------------------
    def sequence(self, handle: SequenceHandle) -> Sequence:
        """For reading. Raises RuntimeError for a stale handle."""
        return self._sequence(handle)

    def owner_of(self, handle: SequenceHandle) -> Owner:
        return self.world.owners[self._sequence(handle).owner]

    def claim(self, handle: SequenceHandle) -> Claim:
        """What a sequence says it did, to be verified later (VER-1)."""
        s = self._sequence(handle)
        forced, sampling = frozenset(s.forced), s.sampler.params
        return Claim(tuple(s.ledger), s.prompt_tokens, s.frontier, forced, sampling, tuple(s.trace))

    def verify_claim(self, claim: Claim, owner: OwnerId, ref: CheckpointRef) -> Verification:
        """Replay a claim cold and compare it with the checkpoint that it left, as far as that is resident.

        Mutates nothing and takes nothing from the pools.
        """
        found = next((c for c in self.checkpoints(owner) if c.ref == ref), None)
        return verify_claim(self.model, claim, None if found is None else Left.of(self.physical, found))

    def verify_checkpoint(self, owner: OwnerId, ref: CheckpointRef) -> Verification:
        """Replay a checkpoint's trace cold and compare state and KV: whether it is what it says. Mutates nothing."""
        found = next((c for c in self.checkpoints(owner) if c.ref == ref), None)
        if found is None:
            return Verification(None, None, None, "it is not resident any more")
        record = self.records[ref]
        tokens = tuple(decode(record.identity.tokens))
        claim = Claim(tokens, len(tokens), found.frontier, frozenset(), SamplingParams(), record.trace)
        return verify_claim(self.model, claim, Left.of(self.physical, found))

    def truncate(self, handle: SequenceHandle) -> None:
        """Unmap provisional pages behind the frontier; their capacity stays promised (ACT-2)."""
        sequence = self._active(handle)
        for number in range(len(self.physical.pools)):
            self.physical.unmap_pages(sequence.owner, number, pages_for(sequence.frontier))

    def covered(self, handle: SequenceHandle) -> bool:
        """Whether the next pass runs inside what the sequence was promised: always, without a lease."""
        if self._lease is None:
            return True
        sequence = self._active(handle)
        lane = self.world.owners[sequence.owner].lane
        assert lane is not None
        held = len(lane.pages[0]) + lane.promised[0]
        return held >= pages_for(min(sequence.lifetime_tokens, len(sequence.ledger) + 1))

    def extend_lease(self, handle: SequenceHandle) -> bool:
        """At a round's boundary, promise the next window (ACT-3). False when there is no room: finish with length."""
        if self._lease is None:
            return True
        self._quiet()
        sequence = self._active(handle)
        return self.publisher.extend_lease(sequence, min(sequence.lifetime_tokens, len(sequence.ledger) + self._lease))

    def audit(self) -> None:
        """Recount everything (INV). Raises AssertionError naming the first difference."""
        audit(self.physical)
        audit_records(self.world, self.records)
        audit_sequences(self.world, self._sequences.values(), whole=self._lease is None)

    def _blocked(self) -> str:
        """Why nothing can start now."""
        if self._failed:
            raise RuntimeError("Program lost its stable state: start a new Engine (TXN-11)")
        return "" if self._open is None else "a transition is open"

    # --- parts ----------------------------------------------------------------------------------------------------
    def _publish_sequence(self, plan: ResourcePlan, work: RequestWork, trace: Trace, owner: OwnerId) -> SequenceHandle:
        demand = plan.target.demand
        assert isinstance(demand, Activation)
        handle = SequenceHandle(SequenceId(owner), Generation(self.revision))
        boundaries = work.prompt.boundaries
        sequence = Sequence(
            handle=handle,
            owner=owner,
            ledger=list(work.prompt.token_ids),
            prompt_tokens=len(work.prompt),
            lifetime_tokens=work.lifetime_tokens,
            sampler=SamplerRow(work.sampling, work.prompt.token_ids, self.model.layout.vocab_size),
            cuts=boundaries.rewrite_execution_frontiers if boundaries else (),
            mode=work.prompt.mode,
        )
        if demand.source is not None:
            sequence.frontier = Frontier(demand.source.checkpoint.frontier)
            sequence.trace = list(trace)
        self._sequences[handle.id] = sequence
        return handle

    def _refused(self, reason: str) -> ResourceResult:
        return ResourceResult(Ending.ABORTED, self.revision, None, None, {}, Transfer(), reason)

    def _quiet(self) -> None:
        if self._open is not None:
            raise RuntimeError("a transition is open: it must settle first (TXN-1)")

    def _forget_records(self) -> None:
        self.records.keep(c.ref for owner in self.world.owners.values() for c in owner.checkpoints)

    def _sequence(self, handle: SequenceHandle) -> Sequence:
        sequence = self._sequences.get(handle.id)
        if sequence is None or sequence.handle != handle:
            raise RuntimeError("the sequence handle is stale")
        return sequence

    def _active(self, handle: SequenceHandle) -> Sequence:
        sequence = self._sequence(handle)
        if sequence.status is not SequenceStatus.ACTIVE:
            raise RuntimeError(f"the sequence is {sequence.status.value}, not active")
        return sequence
