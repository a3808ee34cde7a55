"""Random histories of a Program: one set of rules for the property test and for the long seeded run.

Every rule takes whole numbers and makes of them whatever is legal now, so that a shrunk example stays readable. The
ledger model proves state and pages at every pass; `check` recounts the ledger and compares the bytes of checkpoints.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from ninfer_core.contract.ids import CheckpointRef, Frontier, OwnerId
from ninfer_core.contract.plans import Readiness, RequestWork, SequenceHandle
from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt
from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.identity import decode
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import Checkpoint
from ninfer_core.program.planning.outcome import Outcome, identity, successors
from ninfer_core.program.planning.target import Activation, Capture, Source, SourceMode, Target
from ninfer_core.program.program import Program
from ninfer_core.program.transactions.running import CopyError, Phase
from tests.support.ledger_model import LedgerModel

GREEDY = SamplingParams(temperature=0)
KINDS = (SourceKind.TURN_CLOSURE, SourceKind.RESPONSE_REPLAY, SourceKind.LONG_ANCHOR)


def checksum(program: Program, checkpoint: Checkpoint) -> bytes:
    """Digest of everything that the checkpoint protects, from any replica."""
    hasher = hashlib.blake2b(program.physical.images.bytes_of(checkpoint.image).numpy().tobytes(), digest_size=16)
    for number, pool in enumerate(checkpoint.pages):
        for i, page in enumerate(pool):
            tokens = min(64, checkpoint.frontier - 64 * i)
            for plane in program.physical.pools[number].bytes_of(page, tokens):
                hasher.update(plane.numpy().tobytes())
    return hasher.digest()


@dataclass
class Choices:
    """Endless small numbers from a list: what a rule decides with."""

    numbers: list[int]
    at: int = 0

    def pick(self, limit: int) -> int:
        number = self.numbers[self.at % len(self.numbers)] + self.at
        self.at += 1
        return number % limit if limit > 0 else 0


@dataclass
class History:
    capacity: Vector = field(default_factory=lambda: Vector(5, 4, (14,), 64 * 4 * 2 * 8))
    lanes: int = 3

    def __post_init__(self) -> None:
        self.program = Program(LedgerModel(), self.capacity)
        self.program.physical.checking = True
        self.expected: dict[SequenceHandle, list[int]] = {}
        self.sums: dict[CheckpointRef, bytes] = {}
        self.counts: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # --- rules ----------------------------------------------------------------------------------------------------
    def admit(self, choices: Choices) -> None:
        """From any candidate, in any mode, with any victims; stale, cancelled or failing on the way."""
        program = self.program
        if len(self.expected) >= self.lanes:
            return
        source, prompt = self._candidate(choices)
        if choices.pick(4) == 0:
            prompt += [choices.pick(64) for _ in range(choices.pick(140))]
        if not prompt:
            prompt = [1]
        work = self._work(prompt, 1 + choices.pick(90))
        target = Target(program.activation(source, work), self._victims(choices, source))
        assessment = program.assess(target)
        if assessment.readiness not in (Readiness.READY, Readiness.NEEDS_TRANSFER):
            self.count("infeasible")
            return
        plan = program.seal(target, work)
        if choices.pick(9) == 0 and self._disturb():
            before = program.world
            refused = program.start(plan)
            assert isinstance(refused, ResourceResult) and refused.reason == "the plan is stale"
            assert program.world is before, "a stale start has an effect"
            self.count("stale")
            return
        handle = self._drive(plan, choices)
        if handle is not None:
            self.expected[handle] = list(prompt)
            self.count(f"admitted {self._label(source)}")

    def rearrange(self, choices: Choices) -> None:
        """An explicit release: demotions, deletions and evictions for their own sake."""
        target = Target(None, self._victims(choices, None))
        if target.outcomes and self.program.assess(target).projection.feasible:
            self._drive(self.program.seal(target), choices)
            self.count("rearranged")

    def execute(self, choices: Choices, busy: OwnerId | None = None, losing: bool = True) -> None:
        """One pass over some sequences; sometimes one of them is not accepted.

        While a transition is open nothing is discarded, and the capturing sequence waits.
        """
        live = [h for h in self.expected if self._runs(h) and self.program.sequence(h).owner != busy]
        rows = [(handle, 1 + choices.pick(130)) for handle in live if choices.pick(3)]
        if not rows:
            return
        pending = self.program.execute(rows)
        lost = [handle for handle, _ in rows if losing and choices.pick(40) == 0]
        pending.commit([handle for handle, _ in rows if handle not in lost])
        for row in pending.rows:
            if row.handle in lost:
                self.program.discard(row.handle)
                del self.expected[row.handle]
            elif row.token is not None:
                history = self.expected[row.handle]
                assert row.token == self.program.model.greedy(history, 1)[0]
                history.append(row.token)

    def capture(self, choices: Choices) -> None:
        """A tap at a frontier to come, or a freeze of the present state, on Device or Host."""
        program, live = self.program, [h for h in self.expected if self._runs(h)]
        if not live:
            return
        handle = live[choices.pick(len(live))]
        sequence = program.sequence(handle)
        ahead = choices.pick(sequence.unexecuted + 1)
        frontier = Frontier(sequence.frontier + ahead)
        if frontier == 0 or len(program.owner_of(handle).checkpoints) + len(sequence.armed) >= 4:
            return
        on_device = ahead > 0 or choices.pick(2) == 0
        target = Target(program.capture_demand(handle, frontier, on_device), self._victims(choices, None))
        if not program.assess(target).projection.feasible:
            return
        plan = program.seal(target)
        result = self._drive_result(plan, choices)
        if result is None or result.grant is None:
            return
        if choices.pick(8) == 0:
            program.drop_grant(handle, result.grant)
            return
        program.arm(handle, frontier, KINDS[choices.pick(3)], result.grant)
        self.count("tap" if ahead else "freeze on device" if on_device else "freeze on host")

    def force(self, choices: Choices) -> None:
        live = [h for h in self.expected if self._runs(h)]
        if live:
            handle = live[choices.pick(len(live))]
            tokens = [choices.pick(64) for _ in range(choices.pick(4))]
            self.expected[handle] += tokens[: self.program.force(handle, tokens)]

    def settle(self, choices: Choices) -> None:
        """Finish or discard."""
        if not self.expected:
            return
        handle = list(self.expected)[choices.pick(len(self.expected))]
        sequence = self.program.sequence(handle)
        for armed in list(sequence.armed):
            self.program.drop_grant(handle, armed.grant)
            sequence.armed.remove(armed)
        del self.expected[handle]
        if choices.pick(4):
            self.program.end(handle)
            self.program.finish(handle)
            self.count("finished")
        else:
            self.program.discard(handle)
            self.count("discarded")

    def release(self, choices: Choices) -> None:
        idle = self._idle()
        if idle and choices.pick(3) == 0:
            self.program.release(idle[choices.pick(len(idle))])
            self.count("released")

    RULES = (admit, admit, execute, execute, execute, execute, capture, rearrange, force, settle, release)

    # --- the check after every rule -------------------------------------------------------------------------------
    def check(self) -> None:
        program = self.program
        program.audit()
        living = [c for owner in program.world.owners.values() for c in owner.checkpoints]
        for checkpoint in living:
            now = checksum(program, checkpoint)
            assert self.sums.setdefault(checkpoint.ref, now) == now, f"checkpoint {checkpoint.ref} changed (CKP-4)"
            tokens = decode(program.record(checkpoint.ref).identity.tokens)
            assert len(tokens) == checkpoint.frontier
        self.sums = {c.ref: self.sums[c.ref] for c in living}

    # --- parts ----------------------------------------------------------------------------------------------------
    def _idle(self) -> list[OwnerId]:
        return [owner.id for owner in self.program.world.owners.values() if owner.lane is None]

    def _runs(self, handle: SequenceHandle) -> bool:
        sequence = self.program.sequence(handle)
        return len(sequence.ledger) < sequence.lifetime_tokens

    @staticmethod
    def _work(prompt: list[int], most_new: int) -> RequestWork:
        cuts = tuple(Frontier(f) for f in range(50, len(prompt) + 1, 90))
        bounds = Boundaries(None, None, (), Frontier(len(prompt)), Frontier(len(prompt)), cuts, False)
        return RequestWork(PreparedPrompt(tuple(prompt), bounds, OutputStart.ANSWER), len(prompt) + most_new, GREEDY)

    def _candidate(self, choices: Choices) -> tuple[Source | None, list[int]]:
        program = self.program
        idle = self._idle()
        if not idle or choices.pick(4) == 0:
            return None, [choices.pick(64) for _ in range(choices.pick(200))]
        owner = program.world.owners[idle[choices.pick(len(idle))]]
        checkpoint = owner.checkpoints[choices.pick(len(owner.checkpoints))]
        prompt = decode(program.record(checkpoint.ref).identity.tokens)
        prompt += [choices.pick(64) for _ in range(choices.pick(70))]
        found = program.verify(owner.id, checkpoint.ref, program.identity(self._work(prompt, 1)))
        if found is None:  # the cuts of this prompt differ from those that the checkpoint was made with
            return None, prompt
        mode = SourceMode.CONSUME if choices.pick(2) else SourceMode.RETAIN
        return program.source(owner.id, found, mode, keep=choices.pick(2) == 0), prompt

    def _victims(self, choices: Choices, source: Source | None) -> dict[OwnerId, Outcome]:
        world, outcomes = self.program.world, {}
        for owner_id in self._idle():
            if source is not None and owner_id == source.owner:
                continue
            outcome = start = identity(world.owners[owner_id], world.replicas)
            for _ in range(choices.pick(4)):
                steps = list(successors(outcome))
                if steps:
                    outcome = steps[choices.pick(len(steps))].outcome
            if outcome != start:
                outcomes[owner_id] = outcome
        return outcomes

    def _drive(self, plan, choices: Choices) -> SequenceHandle | None:
        done = self._drive_any(plan, choices)
        return done if isinstance(done, SequenceHandle) else None

    def _drive_result(self, plan, choices: Choices) -> ResourceResult | None:
        done = self._drive_any(plan, choices)
        return done if isinstance(done, ResourceResult) and done.ending is Ending.COMMITTED else None

    def _drive_any(self, plan, choices: Choices):
        """Advance with decode rounds in between; sometimes cancel, sometimes let a copy fail."""
        program = self.program
        left = choices.pick(30)

        def fault(phase: Phase) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise CopyError("injected")

        program.fault = fault if choices.pick(4) == 0 else None
        cancel_after = choices.pick(6) if choices.pick(4) == 0 else -1
        before = {o: {c.ref for c in program.world.owners[o].checkpoints} for o in self._idle()}
        sources = plan.target.demand.source if isinstance(plan.target.demand, Activation) else None
        transaction = program.start(plan)
        assert not isinstance(transaction, ResourceResult), transaction
        steps = 0
        while (done := program.advance(transaction, plan)) is None:
            over = program.world.used().excess(program.world.geometry.capacity)
            assert not over, f"stage {transaction.phase} exceeds the capacity by {over}"
            if steps == cancel_after:
                transaction.cancel()
            if choices.pick(3) == 0 and not any(program.sequence(h).armed for h in self.expected):
                self.execute(
                    choices, plan.target.demand.owner if isinstance(plan.target.demand, Capture) else None, False
                )
            steps += 1
        result = transaction.result
        assert result is not None
        for owner_id, summary in result.owners.items():
            now = {c.ref for c in summary.checkpoints}
            if owner_id in before:
                assert now == before[owner_id] - summary.deleted, "the deletion set is not exact (TXN-9)"
            owner = program.world.owners.get(owner_id)
            assert now == ({c.ref for c in owner.checkpoints} if owner else set())
        if result.ending is Ending.ABORTED:
            self.count(f"aborted in {transaction.aborted_in.value}: {result.reason}")
            if sources is not None:
                kept = program.world.owners[sources.owner]
                assert sources.checkpoint in kept.checkpoints, "an abort lost its source (TXN-10)"
        return done

    def _disturb(self) -> bool:
        """Something that moves the revision."""
        idle = self._idle()
        if not idle:
            return False
        self.program.release(idle[0])
        return True

    @staticmethod
    def _label(source: Source | None) -> str:
        return "root" if source is None else source.mode.value
