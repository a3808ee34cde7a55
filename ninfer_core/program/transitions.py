"""Transitions: how owners come, change and go. A sealed plan runs as the one open transaction; what copies nothing is
published in one step (context-cache TXN)."""

from __future__ import annotations

from collections.abc import Callable

from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.contract.plans import FinalScheduleIntent, RequestWork, SequenceHandle
from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.assessments import Assessments
from ninfer_core.program.gate import Gate
from ninfer_core.program.identity import Trace
from ninfer_core.program.owner_ids import OwnerIds
from ninfer_core.program.planning.plan import ResourcePlan, seal
from ninfer_core.program.planning.projection import project
from ninfer_core.program.planning.target import Activation, Capture, Target, source_of
from ninfer_core.program.records import Records
from ninfer_core.program.sequences import Sequences
from ninfer_core.program.storage.physical import Physical
from ninfer_core.program.transactions.aliases import Aliases
from ninfer_core.program.transactions.running import Phase, RunningTransaction


class Transitions:
    """Every verb but `seal` mutates, from one stable world to the next.

    Attributes:
        fault: called before each copy of a transaction, with its phase, to inject a failure under test.
    """

    def __init__(
        self,
        physical: Physical,
        records: Records,
        sequences: Sequences,
        assessments: Assessments,
        gate: Gate,
        owner_ids: OwnerIds,
    ) -> None:
        self.fault: Callable[[Phase], None] | None = None
        self._physical = physical
        self._records = records
        self._sequences = sequences
        self._assessments = assessments
        self._gate = gate
        self._owner_ids = owner_ids
        self._aliases = Aliases(physical, records)
        self._works: dict[ResourcePlan, tuple[RequestWork, Trace] | None] = {}
        """Sealed and not yet used: what a committed activation makes a sequence of."""

    # --- plans ----------------------------------------------------------------------------------------------------
    def seal(
        self, target: Target, work: RequestWork | None = None, schedule: FinalScheduleIntent | None = None
    ) -> ResourcePlan:
        """Fix a feasible target as a plan. Reserves nothing.

        Args:
            work: the request, for an activation.
            schedule: the only frontiers at which its sequence may be captured (PLAN-12); None leaves it open.

        Raises:
            ValueError: it is illegal (TGT-2), or does not fit; or the schedule is none of it.
        """
        owner = target.demand.owner if isinstance(target.demand, Capture) else None
        trace: Trace = ()
        if isinstance(target.demand, Activation):
            assert work is not None, "an activation needs its request"
            owner = self._owner_ids.take()
            source = source_of(target)
            trace = () if source is None else self._records[source.checkpoint.ref].trace
        end = 0 if work is None else len(work.prompt)
        plan = seal(self._physical.world, target, owner, self._assessments.projection, schedule, end)
        self._works[plan] = None if work is None else (work, trace)
        return plan

    def start(self, plan: ResourcePlan) -> RunningTransaction | ResourceResult:
        """Verify the plan again and begin it (TXN-3). A stale or used plan is aborted without any effect.

        The target is projected once more, from nothing: no session's word counts against what is true now.

        Returns:
            The transaction, to be driven with `advance`; or an ABORTED result.
        """
        world = self._physical.world
        if self._gate.is_open:
            return ResourceResult.refused(world.revision, "another transition is open")
        if plan not in self._works:
            return ResourceResult.refused(world.revision, "the plan was used already")
        if plan.revision != world.revision or project(world, plan.target) != plan.projection:
            del self._works[plan]
            return ResourceResult.refused(world.revision, "the plan is stale")
        transaction = RunningTransaction(self._physical, plan, self.fault)
        self._gate.enter(transaction)
        return transaction

    def advance(self, transaction: RunningTransaction, plan: ResourcePlan) -> ResourceResult | SequenceHandle | None:
        """Drive the open transaction by one piece of work. When it commits an activation, its sequence's handle."""
        try:
            result = transaction.advance()
        except BaseException:
            self._gate.fail()
            raise
        if result is None:
            return None
        self._gate.leave()
        work = self._works.pop(plan)
        self._records.follow(self._physical.world)
        if result.ending is Ending.COMMITTED and result.owner is not None and work is not None:
            source, (request, trace) = source_of(plan.target), work
            checkpoint = None if source is None else source.checkpoint
            return self._sequences.publish(result.owner, request, checkpoint, trace, plan.schedule)
        return result

    # --- zero-stage: nothing is copied (TXN-2) --------------------------------------------------------------------
    def release(self, owner: OwnerId) -> None:
        """An inactive owner goes at once. Raises RuntimeError for an active or unknown one."""
        self._gate.quiet()
        found = self._physical.world.owners.get(owner)
        if found is None or found.lane is not None:
            raise RuntimeError(f"owner {owner} is not an inactive owner")
        self._physical.publish(self._physical.world.without_owner(owner).advanced())
        self._records.follow(self._physical.world)

    def share(self, owner: OwnerId, ref: CheckpointRef, *, keep: bool) -> OwnerId:
        """Publish a checkpoint as a shared prefix, a new owner (CAN-9). With keep its owner has it, too.

        Raises:
            KeyError: the checkpoint is gone. RuntimeError: a transition is open.
        """
        self._gate.quiet()
        shared = self._owner_ids.next
        (self._aliases.share if keep else self._aliases.separate)(owner, ref, shared)
        self._owner_ids.take()
        self._records.follow(self._physical.world)
        return shared

    def alias(self, source: OwnerId, ref: CheckpointRef, owner: OwnerId, kind: SourceKind) -> CheckpointRef:
        """Give an owner a checkpoint that another one has, too. Raises like `share`."""
        self._gate.quiet()
        return self._aliases.add(source, ref, owner, kind)

    def drop_checkpoint(self, owner: OwnerId, ref: CheckpointRef) -> None:
        """Delete one checkpoint; an inactive owner goes with its last one. Raises like `share`."""
        self._gate.quiet()
        self._aliases.drop(owner, ref)
        self._records.follow(self._physical.world)
