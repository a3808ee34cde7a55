"""Program: the only physical authority (context-cache AUT-5). It puts its rooms together and speaks with their verbs.

    views           what there is                               read only
    assessments     what a target would lead to                 read only
    transitions     how owners come, change and go              one at a time, through the gate
    sequences       active requests: passes, captures, ends     inside what each was promised
    continuations   owners saved to and restored from outside   between units of work
    verifier        replays in memory of its own                read only

Data flows one way: a room knows the stores below it and, where it must, the rooms that stand above it in this order:
sequences, assessments and transitions. None knows Program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ninfer_core.contract.ids import Revision
from ninfer_core.contract.plans import RequestWork, SequenceHandle
from ninfer_core.contract.results import ResourceResult
from ninfer_core.models.model import Model
from ninfer_core.program.assessments import Assessments
from ninfer_core.program.audit import audit, audit_records, audit_sequences
from ninfer_core.program.continuations import Continuations
from ninfer_core.program.execution.passes import Passes
from ninfer_core.program.gate import Gate
from ninfer_core.program.ledger.geometry import Geometry, Vector
from ninfer_core.program.ledger.world import World
from ninfer_core.program.owner_ids import OwnerIds
from ninfer_core.program.planning.target import Target
from ninfer_core.program.records import Records
from ninfer_core.program.restoring import Restorer
from ninfer_core.program.sequences import Sequences
from ninfer_core.program.snapshot import Photographer
from ninfer_core.program.storage.physical import Physical
from ninfer_core.program.transactions.publish import Publisher
from ninfer_core.program.transactions.running import Phase
from ninfer_core.program.transitions import Transitions
from ninfer_core.program.verification import Verifier
from ninfer_core.program.views import Views


class Program:
    """Physical state of one resident model. Only the Engine's worker thread calls it.

    Its verbs are those of its rooms, named one by one below; each is described where it is defined.
    """

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
        self.publisher = Publisher(self.physical, self.records)
        """Zero-stage transitions of running sequences."""
        self.passes = Passes(model, self.physical, self.publisher)
        self._whole_lives = lease is None
        gate, owner_ids = Gate(), OwnerIds()

        views = Views(self.physical, self.records)
        self.record, self.identity, self.verify = views.record, views.identity, views.verify
        self.matching, self.longest_common = views.matching, views.longest_common
        self.checkpoints, self.is_prefix, self.domain = views.checkpoints, views.is_prefix, views.domain
        self.summaries, self.axes, self.footprint = views.summaries, views.axes, views.footprint

        sequences = Sequences(self.physical, self.records, self.publisher, self.passes, gate, lease)
        self._sequences = sequences
        self.sequence, self.owner_of, self.claim = sequences.sequence, sequences.owner_of, sequences.claim
        self.unexecuted, self.force, self.execute = sequences.unexecuted, sequences.force, sequences.execute
        self.truncate, self.arm, self.drop_grant = sequences.truncate, sequences.arm, sequences.drop_grant
        self.covered, self.extend_lease = sequences.covered, sequences.extend_lease
        self.settled, self.runs_beside = sequences.settled, sequences.runs_beside
        self.end, self.finish, self.discard = sequences.end, sequences.finish, sequences.discard

        assessments = Assessments(self.physical, sequences, gate, lease)
        self.source, self.activation = assessments.source, assessments.activation
        self.capture_demand, self.fits_without = assessments.capture_demand, assessments.fits_without
        self.assess, self.session = assessments.assess, assessments.session
        self.immediate, self.leaves_images = assessments.immediate, assessments.leaves_images
        self.backfill_proof = assessments.backfill_proof

        transitions = Transitions(self.physical, self.records, sequences, assessments, gate, owner_ids)
        self._transitions = transitions
        self.seal, self.start, self.advance = transitions.seal, transitions.start, transitions.advance
        self.release, self.share = transitions.release, transitions.share
        self.alias, self.drop_checkpoint = transitions.alias, transitions.drop_checkpoint

        photographer = Photographer(model, self.physical, self.records, facts or {})
        restorer = Restorer(self.physical, self.records, model.layout.vocab_size)
        continuations = Continuations(photographer, restorer, gate, owner_ids)
        self._continuations = continuations
        self.model_facts, self.fitting = continuations.model_facts, continuations.fitting
        self.snapshot, self.save_continuations = continuations.snapshot, continuations.save
        self.selection, self.resident = continuations.selection, continuations.resident
        self.restorable = restorer.restorable
        self.check_continuations = continuations.check
        self.restore_continuations = continuations.restore

        verifier = Verifier(model, self.physical, self.records)
        self.verify_claim, self.verify_checkpoint = verifier.verify_claim, verifier.verify_checkpoint

    @property
    def world(self) -> World:
        """The published ledger."""
        return self.physical.world

    @property
    def revision(self) -> Revision:
        """See CAP-10."""
        return self.world.revision

    @property
    def geometry(self) -> Geometry:
        """The capacity vector and what follows from it: fixed."""
        return self.world.geometry

    @property
    def origin(self) -> str:
        """Names this Program among all, for what it has handed out keys of."""
        return self._continuations.origin

    @property
    def fault(self) -> Callable[[Phase], None] | None:
        """Called before each copy of a transaction, with its phase, to inject a failure under test."""
        return self._transitions.fault

    @fault.setter
    def fault(self, fault: Callable[[Phase], None] | None) -> None:
        self._transitions.fault = fault

    def materialize(self, target: Target, work: RequestWork) -> SequenceHandle | ResourceResult:
        """Seal, start and drive an activation to its end. Raises like `seal`."""
        return self._driven(target, work)

    def transition(self, target: Target) -> ResourceResult:
        """Seal, start and drive a capture's room or an explicit release to its end. Raises like `seal`."""
        done = self._driven(target, None)
        assert isinstance(done, ResourceResult)
        return done

    def audit(self) -> None:
        """Recount everything (INV). Raises AssertionError naming the first difference."""
        audit(self.physical)
        audit_records(self.world, self.records)
        audit_sequences(self.world, self._sequences.all(), whole=self._whole_lives)

    def _driven(self, target: Target, work: RequestWork | None) -> SequenceHandle | ResourceResult:
        plan = self.seal(target, work)
        begun = self.start(plan)
        if isinstance(begun, ResourceResult):
            return begun
        while (done := self.advance(begun, plan)) is None:
            pass
        return done
