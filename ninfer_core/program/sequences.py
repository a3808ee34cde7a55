"""Sequences: the active requests, from their publication to finish or discard (context-cache ACT). Every verb runs
inside what its sequence was promised."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Many

from ninfer_core.contract.ids import Frontier, Generation, OwnerId, SequenceId
from ninfer_core.contract.plans import FinalScheduleIntent, RequestWork, SequenceHandle
from ninfer_core.contract.results import Grant
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.execution.passes import Passes
from ninfer_core.program.execution.pending import PendingBatch
from ninfer_core.program.execution.sampling import SamplerRow
from ninfer_core.program.gate import Gate
from ninfer_core.program.identity import Trace
from ninfer_core.program.ledger.objects import Checkpoint, Owner
from ninfer_core.program.records import Records
from ninfer_core.program.sequence import Sequence, SequenceStatus
from ninfer_core.program.storage.page_store import pages_for
from ninfer_core.program.storage.physical import Physical
from ninfer_core.program.transactions.publish import Publisher
from ninfer_core.program.verification import Claim


class Sequences:
    """By handle. A stale handle raises RuntimeError in every verb."""

    def __init__(
        self,
        physical: Physical,
        records: Records,
        publisher: Publisher,
        passes: Passes,
        gate: Gate,
        lease: int | None,
    ) -> None:
        self._physical = physical
        self._records = records
        self._publisher = publisher
        self._passes = passes
        self._gate = gate
        self._lease = lease
        self._sequences: dict[SequenceId, Sequence] = {}

    def publish(
        self,
        owner: OwnerId,
        work: RequestWork,
        source: Checkpoint | None,
        trace: Trace,
        schedule: FinalScheduleIntent | None = None,
    ) -> SequenceHandle:
        """The activation of a request has committed: its sequence, at the source's frontier.

        Args:
            trace: the source's, empty without one.
            schedule: of its plan.
        """
        prompt = work.prompt
        handle = SequenceHandle(SequenceId(owner), Generation(self._physical.world.revision))
        sequence = Sequence(
            handle=handle,
            owner=owner,
            ledger=list(prompt.token_ids),
            prompt_tokens=len(prompt),
            lifetime_tokens=work.lifetime_tokens,
            sampler=SamplerRow(work.sampling, prompt.token_ids, self._passes.vocab_size),
            cuts=prompt.boundaries.rewrite_execution_frontiers if prompt.boundaries else (),
            mode=prompt.mode,
        )
        if source is not None:
            sequence.frontier = Frontier(source.frontier)
            sequence.trace = list(trace)
        if schedule is not None:
            sequence.schedule = frozenset((sequence.frontier, *schedule.frontiers))
        self._sequences[handle.id] = sequence
        return handle

    # --- look-ups -------------------------------------------------------------------------------------------------
    def sequence(self, handle: SequenceHandle) -> Sequence:
        """For reading. Raises RuntimeError for a stale handle."""
        sequence = self._sequences.get(handle.id)
        if sequence is None or sequence.handle != handle:
            raise RuntimeError("the sequence handle is stale")
        return sequence

    def all(self) -> Collection[Sequence]:
        """Every one that lives, for the audit."""
        return self._sequences.values()

    def owner_of(self, handle: SequenceHandle) -> Owner:
        """Its place in the ledger."""
        return self._physical.world.owners[self.sequence(handle).owner]

    def claim(self, handle: SequenceHandle) -> Claim:
        """What a sequence says it did, to be verified later (VER-1)."""
        s = self.sequence(handle)
        forced, sampling = frozenset(s.forced), s.sampler.params
        return Claim(tuple(s.ledger), s.prompt_tokens, s.frontier, forced, sampling, tuple(s.trace))

    def unexecuted(self, handle: SequenceHandle) -> int:
        """Ledger tokens that no pass has covered yet."""
        return self.sequence(handle).unexecuted

    # --- passes ---------------------------------------------------------------------------------------------------
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
        return self._passes.execute([(self._active(handle), count) for handle, count in work])

    def truncate(self, handle: SequenceHandle) -> None:
        """Unmap provisional pages behind the frontier; their capacity stays promised (ACT-2)."""
        sequence = self._active(handle)
        for number in range(len(self._physical.pools)):
            self._physical.unmap_pages(sequence.owner, number, pages_for(sequence.frontier))

    # --- captures -------------------------------------------------------------------------------------------------
    def arm(self, handle: SequenceHandle, frontier: Frontier, kind: SourceKind, grant: Grant) -> None:
        """Use a grant for the checkpoint at a frontier that is still to come, or at the present one (Freeze).

        Raises:
            RuntimeError: the frontier has passed, is not in the sealed schedule (PLAN-12), or a Host image is asked for
                inside a pass to come.
        """
        self._passes.arm(self._active(handle), frontier, kind, grant)

    def drop_grant(self, handle: SequenceHandle, grant: Grant) -> None:
        """Give unused room back."""
        self._publisher.drop_grant(self.sequence(handle), grant)

    # --- beside an open transition --------------------------------------------------------------------------------
    def settled(self, handle: SequenceHandle) -> bool:
        """Whether it reads what it writes: otherwise its next pass settles a Fork, which no transition may overlap
        (ST-3)."""
        lane = self.owner_of(handle).lane
        return lane is not None and lane.reads is None

    def runs_beside(self, handle: SequenceHandle, until: int) -> bool:
        """Whether a pass up to a frontier may run while a transition is open: it settles no Fork, publishes no
        checkpoint, and stays inside what the sequence was promised (TXN-7)."""
        waiting = any(armed.frontier <= until for armed in self._active(handle).armed)
        return self.settled(handle) and not waiting and self.covered(handle)

    # --- leases (ACT-3) -------------------------------------------------------------------------------------------
    def covered(self, handle: SequenceHandle) -> bool:
        """Whether the next pass runs inside what the sequence was promised: always, without a lease."""
        if self._lease is None:
            return True
        sequence = self._active(handle)
        lane = self._physical.world.owners[sequence.owner].lane
        assert lane is not None
        held = len(lane.pages[0]) + lane.promised[0]
        return held >= pages_for(min(sequence.lifetime_tokens, len(sequence.ledger) + 1))

    def extend_lease(self, handle: SequenceHandle) -> bool:
        """At a round's boundary, promise the next window (ACT-3). False when there is no room: finish with length."""
        if self._lease is None:
            return True
        self._gate.quiet()
        sequence = self._active(handle)
        return self._publisher.extend_lease(sequence, min(sequence.lifetime_tokens, len(sequence.ledger) + self._lease))

    # --- ends -----------------------------------------------------------------------------------------------------
    def end(self, handle: SequenceHandle) -> None:
        """The request has its last token: keep handle and reservation until finish or discard (ACT-4)."""
        self._active(handle).status = SequenceStatus.TERMINAL_PENDING

    def finish(self, handle: SequenceHandle) -> OwnerId | None:
        """Publish an ended sequence as a private continuation with its endpoint. Zero-stage (TXN-2).

        Returns:
            The owner; None when there was no state to keep, and everything was released.
        """
        self._gate.quiet()
        sequence = self.sequence(handle)
        if sequence.status is not SequenceStatus.TERMINAL_PENDING:
            raise RuntimeError("finish follows end")
        if sequence.frontier == 0:
            self.discard(handle)
            return None
        self._publisher.finish(sequence)
        del self._sequences[handle.id]
        return sequence.owner

    def discard(self, handle: SequenceHandle) -> None:
        """Release the whole sequence with its optional checkpoints, whatever its status. Cannot fail for a live one."""
        self._gate.quiet()
        sequence = self.sequence(handle)
        del self._sequences[handle.id]
        self._physical.publish(self._physical.world.without_owner(sequence.owner).advanced())
        self._records.follow(self._physical.world)

    def _active(self, handle: SequenceHandle) -> Sequence:
        sequence = self.sequence(handle)
        if sequence.status is not SequenceStatus.ACTIVE:
            raise RuntimeError(f"the sequence is {sequence.status.value}, not active")
        return sequence
