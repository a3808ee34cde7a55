"""Random histories of a Program: one set of rules for the property test and for the long seeded run.

    python -m tests.program.history --steps 1000000 --seed 7

Every rule takes whole numbers and makes of them whatever is legal now, so that a shrunk example stays readable. The
ledger model proves state and pages at every pass; `check` recounts the ledger and compares the bytes of checkpoints.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import torch

from ninfer_core.contract.ids import CheckpointRef, Frontier, OwnerId
from ninfer_core.contract.plans import Readiness, RequestWork, SequenceHandle
from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt
from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.errors import SessionError
from ninfer_core.program.identity import decode
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.outcome import Outcome, Step, identity, successors
from ninfer_core.program.planning.target import Source, SourceMode, Target
from ninfer_core.program.program import Program
from ninfer_core.program.session_file import SessionContent
from tests.program.checksum import checksum
from tests.program.choices import Choices
from tests.program.driven import drive_plan
from tests.support.ledger_model import LedgerModel

GREEDY = SamplingParams(temperature=0)
KINDS = (SourceKind.TURN_CLOSURE, SourceKind.RESPONSE_REPLAY, SourceKind.LONG_ANCHOR)


@dataclass(frozen=True)
class Saved:
    """A snapshot, and per continuation (kind, frontier, checksum) of every checkpoint in it."""

    content: SessionContent
    continuations: tuple[tuple[tuple[SourceKind, int, bytes], ...], ...]


PURE_PLACEMENT = {Step.DROP_DEVICE_COPY, Step.DROP_HOST_COPY, Step.DEMOTE_IMAGE, Step.DEMOTE_PAGES}
CHECK_BYTES_EVERY = 8
"""Rules between two comparisons of all checkpoints' bytes; new checkpoints are summed at once."""


@dataclass
class History:
    """
    Attributes:
        keeps: the first finished continuation is never consumed, deleted or released: it is demoted and read at will,
            and its bytes must be the same at the end of however long a history.
    """

    capacity: Vector = field(default_factory=lambda: Vector(5, 4, (14,), 64 * 4 * 2 * 8))
    lanes: int = 3
    keeps: bool = False

    def __post_init__(self) -> None:
        self.keepsake: OwnerId | None = None
        self.saved: list[Saved] = []
        self.checks = 0
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
        if choices.pick(4) == 0:
            session = program.session()
            session.assess(Target(target.demand))
            assert session.assess(target) == assessment, "a session judges otherwise"
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
            owner = self.program.finish(handle)
            if self.keeps and self.keepsake is None:
                self.keepsake = owner
            self.count("finished")
        else:
            self.program.discard(handle)
            self.count("discarded")

    def release(self, choices: Choices) -> None:
        idle = self._removable()
        if idle and choices.pick(3) == 0:
            self.program.release(idle[choices.pick(len(idle))])
            self.count("released")

    def save(self, choices: Choices) -> None:
        """A snapshot of some continuations: it changes nothing."""
        idle = self._idle()
        if not idle or choices.pick(2):
            return
        program, world = self.program, self.program.world
        first = choices.pick(len(idle))
        owners = idle[first : first + 1 + choices.pick(2)]
        content = program.save_continuations(owners)
        assert program.world is world, "saving changed something"
        sums = tuple(
            tuple((c.kind, c.frontier, checksum(program, c)) for c in world.owners[owner].checkpoints)
            for owner in owners
        )
        self.saved = [*self.saved[-2:], Saved(content, sums)]
        self.count("saved")

    def load(self, choices: Choices) -> None:
        """A snapshot comes back, perhaps after all that it held has gone: exactly, in part (named), or not at all."""
        if not self.saved or choices.pick(2):
            return
        program, world = self.program, self.program.world
        saved = self.saved[choices.pick(len(self.saved))]
        try:
            restored = program.restore_continuations(saved.content)
        except SessionError as error:
            assert program.world is world and "no room" in str(error)
            self.count("no room to load")
            return
        assert program.revision == world.revision + 1
        dropped: Counter[tuple[SourceKind, int]] = Counter()
        back = [saved.continuations[place] for place in restored.continuations]
        missing = [one for place, one in enumerate(saved.continuations) if place not in restored.continuations]
        named = Counter(tuple(entry[:2] for entry in one) for one in missing)
        assert named == Counter(tuple(one) for one in restored.left_out), "what found no room was not named"
        for owner, expected in zip(restored.owners, back, strict=True):
            checkpoints = program.world.owners[owner].checkpoints
            found = [(c.kind, c.frontier, checksum(program, c)) for c in checkpoints]
            assert found[-1] == expected[-1], "the endpoint is mandatory (SES-3)"
            assert not Counter(found) - Counter(expected), "another checkpoint came back"
            dropped.update(entry[:2] for entry in (Counter(expected) - Counter(found)).elements())
        assert dropped == Counter(restored.dropped), "a drop was not named"
        self.count("loaded in part" if dropped or missing else "loaded")

    RULES = (
        *(admit, admit, execute, execute, execute, execute),
        *(capture, rearrange, force, settle, release, save, load),
    )

    # --- the check after every rule -------------------------------------------------------------------------------
    def check(self) -> None:
        """Audit; sum the bytes of new checkpoints; compare those of all every few times."""
        self.program.audit()
        self.checks += 1
        living = [c for owner in self.program.world.owners.values() for c in owner.checkpoints]
        for checkpoint in living:
            if checkpoint.ref not in self.sums:
                self.sums[checkpoint.ref] = checksum(self.program, checkpoint)
                assert self.program.record(checkpoint.ref).identity.frontier == checkpoint.frontier
        if self.checks % CHECK_BYTES_EVERY == 0:
            self.compare()

    def compare(self) -> None:
        """Every living checkpoint has the bytes that it was published with (CKP-4)."""
        living = [c for owner in self.program.world.owners.values() for c in owner.checkpoints]
        for checkpoint in living:
            now = checksum(self.program, checkpoint)
            assert self.sums[checkpoint.ref] == now, f"checkpoint {checkpoint.ref} changed (CKP-4)"
        self.sums = {c.ref: self.sums[c.ref] for c in living}

    # --- parts ----------------------------------------------------------------------------------------------------
    def _idle(self) -> list[OwnerId]:
        return [owner.id for owner in self.program.world.owners.values() if owner.lane is None]

    def _removable(self) -> list[OwnerId]:
        return [owner for owner in self._idle() if owner != self.keepsake]

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
        mode = SourceMode.CONSUME if choices.pick(2) and owner.id != self.keepsake else SourceMode.RETAIN
        return program.source(owner.id, found, mode, keep=choices.pick(2) == 0), prompt

    def _victims(self, choices: Choices, source: Source | None) -> dict[OwnerId, Outcome]:
        world, outcomes = self.program.world, {}
        for owner_id in self._idle():
            if source is not None and owner_id == source.owner:
                continue
            outcome = start = identity(world.owners[owner_id], world.replicas)
            for _ in range(choices.pick(4)):
                steps = list(successors(outcome))
                if owner_id == self.keepsake:
                    steps = [s for s in steps if s.step in PURE_PLACEMENT]
                if steps:
                    outcome = steps[choices.pick(len(steps))].outcome
            if outcome != start:
                outcomes[owner_id] = outcome
        return outcomes

    def _drive(self, plan, choices: Choices) -> SequenceHandle | None:
        done = drive_plan(self, plan, choices)
        return done if isinstance(done, SequenceHandle) else None

    def _drive_result(self, plan, choices: Choices) -> ResourceResult | None:
        done = drive_plan(self, plan, choices)
        return done if isinstance(done, ResourceResult) and done.ending is Ending.COMMITTED else None

    def _disturb(self) -> bool:
        """Something that moves the revision."""
        idle = self._removable()
        if not idle:
            return False
        self.program.release(idle[0])
        return True

    @staticmethod
    def _label(source: Source | None) -> str:
        return "root" if source is None else source.mode.value


def drive(seed: int, steps: int, keeps: bool = False, history: History | None = None) -> History:
    """The long run: the same rules from a seeded generator, a check after each."""
    rng = random.Random(seed)
    history = history or History(keeps=keeps)
    for step in range(steps):
        rule = rng.choice(History.RULES)
        try:
            rule(history, Choices([rng.randrange(998) for _ in range(12)]))
            history.check()
        except BaseException as error:
            error.add_note(f"seed {seed}, step {step}: {rule.__name__}")
            raise
    history.compare()
    return history


def capacities(rng: random.Random) -> tuple[Vector, int]:
    """Machines of all kinds: with and without a Host tier, roomy and tight."""
    lanes = rng.randint(1, 4)
    host_bytes = rng.choice([0, 3, 8, 20]) * 64 * 4 * 2
    return Vector(lanes + rng.randint(0, 4), rng.choice([0, 1, 4]), (rng.randint(6, 24),), host_bytes), lanes


def main() -> None:
    """A tenth of the steps is one history with a keepsake, the rest many short ones on machines of all kinds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    begin, rng, done = time.perf_counter(), random.Random(args.seed), 0
    long = drive(args.seed, args.steps // 10, keeps=True)
    assert long.keepsake is not None
    done, counts = args.steps // 10, dict(long.counts)
    print(f"one continuation kept its bytes over {done} operations", flush=True)
    while done < args.steps:
        capacity, lanes = capacities(rng)
        steps = min(2_000, args.steps - done)
        history = drive(rng.randrange(1 << 30), steps, history=History(capacity, lanes, keeps=rng.random() < 0.2))
        done += steps
        for what, count in history.counts.items():
            counts[what] = counts.get(what, 0) + count
    seconds = time.perf_counter() - begin
    for what, count in sorted(counts.items()):
        print(f"{count:9} {what}")
    print(f"seed {args.seed}: {done} steps, an audit after each, no difference; {done / seconds:.0f} steps/s")


if __name__ == "__main__":
    main()
