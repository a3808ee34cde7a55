"""Random histories of a whole ResourceManager over the ledger model: the rules that the property tests share.

    python -m tests.cache.history --steps 100000 --seed 7

Every rule takes whole numbers and makes of them whatever is legal now. The ledger model recounts state and pages at
every pass, so a wrongly reused state ends the history; `check` compares the books with an account kept beside them.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ninfer_core.cache.admission import (
    Admission,
    Admitted,
    Ask,
    Blocked,
    Failed,
    Passing,
    Refused,
    Transferring,
    Undecided,
)
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.contract.ids import Frontier, RequestId
from ninfer_core.contract.intent import CacheIntent, CacheMode
from ninfer_core.contract.plans import RequestWork, SequenceHandle
from ninfer_core.contract.prompt import OutputStart, PreparedPrompt
from ninfer_core.contract.results import ResourceResult
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.program.audit import audit
from ninfer_core.program.planning.target import Activation, Target
from ninfer_core.program.program import Program
from ninfer_core.program.sequence import SequenceStatus
from ninfer_core.program.transactions.running import CopyError, Phase
from tests.cache.logical_model import LogicalModel
from tests.cache.machines import FakeClock, Machine, machines
from tests.cache.talks import Talk
from tests.program.history import Choices
from tests.support.ledger_model import LedgerModel, checksum

GREEDY = SamplingParams(temperature=0)
CHUNK = 64
MOST_TALKS = 6
OFF = CacheIntent(mode=CacheMode.DISABLED)


@dataclass
class Turn:
    """One request: what it asked for and, once it runs, what it must draw."""

    ask: Ask
    talk: Talk | None
    handle: SequenceHandle | None = None
    drawn: list[int] = field(default_factory=list)
    value: int = 0
    prompt_done: bool = False
    reused: int = 0
    tried: bool = False

    def next_token(self) -> int:
        token = self.value % 64
        self.value = checksum([token], self.value)
        self.drawn.append(token)
        return token


class History:
    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine = machine or Machine()
        self.model = LedgerModel()
        self.program = Program(self.model, machine.capacity)
        self.manager = ResourceManager(self.program, machine.limits, CostModel(), FakeClock())
        self.account = LogicalModel(self.program, machine.limits.private_cells)
        self.sealed: Target | None = None
        self.talks: list[Talk] = []
        self.waiting: list[Turn] = []
        self.opening: Turn | None = None
        self.undecided = False
        """Of the opening: nothing has changed for it yet."""
        self.offering: Turn | None = None
        """Whose captures are being settled piece by piece."""
        self.running: list[Turn] = []
        self.counts: Counter[str] = Counter()
        self.trouble = ""
        self._requests = 0
        self._spy()

    def _spy(self) -> None:
        """Remember sealed targets; inject what `trouble` names, once."""
        program, seal, start, arm = self.program, self.program.seal, self.program.start, self.program.arm

        def sealed(target: Target, *rest: Any):
            if isinstance(target.demand, Activation):
                self.sealed = target
            plan = seal(target, *rest)
            if self._troubled("stale"):
                self._move_revision()
            return plan

        def started(plan):
            if self._troubled("refused"):
                return ResourceResult.refused(program.revision, "injected")
            if self._troubled("start"):
                raise MemoryError("injected: start")
            return start(plan)

        def armed(*arguments) -> None:
            if self._troubled("arm"):
                raise MemoryError("injected: arm")
            arm(*arguments)

        room = self.manager._captures._points._room
        adopt = room._adopt

        def adopted(*arguments):
            found = adopt(*arguments)
            self.account.settled()  # other pieces may follow before the pass
            return found

        room._adopt = adopted  # type: ignore[method-assign]
        program.seal, program.start, program.arm = sealed, started, armed  # type: ignore[method-assign]

    def _troubled(self, kind: str) -> bool:
        if self.trouble != kind:
            return False
        self.trouble = ""
        self.counts[f"injected {kind}"] += 1
        return True

    def _move_revision(self) -> None:
        books = self.manager.books
        free = [o for o, entry in books.eligible().items() if entry is not None]
        if free:
            books.release(free[0])
            self.account.settled()

    # --- rules ----------------------------------------------------------------------------------------------------
    def submit(self, choices: Choices) -> None:
        if len(self.waiting) >= 3:
            return
        self._requests += 1
        prompt, talk = self._prompt(choices)
        intent = self._intent(choices, prompt)
        most_new = 1 + choices.pick(40)
        work = RequestWork(prompt, len(prompt) + most_new, GREEDY)
        turn = Turn(Ask(RequestId(self._requests), work, intent), talk, value=checksum(prompt.token_ids))
        self.waiting.append(turn)
        self._admit(turn, choices)

    def retry(self, choices: Choices) -> None:
        if self.waiting:
            self._admit(self.waiting[choices.pick(len(self.waiting))], choices)

    def advance(self, choices: Choices) -> None:
        """A piece of the opening's planning or transition; sometimes its request is cancelled."""
        if self.opening is None:
            return
        if choices.pick(8) == 0:
            self.manager.cancel(self.opening.ask.request)
            self.counts["cancelled"] += 1
        for _ in range(1 + choices.pick(3)):
            if self.opening is not None:
                self._go_on(self.opening, _piece(choices))

    def prefill(self, choices: Choices) -> None:
        turn = self.offering or next((turn for turn in self.running if not turn.prompt_done), None)
        if turn is None:
            return
        self._finish_transfer()
        assert turn.handle is not None
        self.offering = None
        self._arrange_trouble(choices, ("arm", "refused", "stale", "copy"))
        try:
            until = self.program.sequence(turn.handle).frontier + CHUNK
            if self.manager.before_pass(turn.ask.request, until, len(self.running), most_ns=_piece(choices)) is None:
                self.counts["captures take pieces"] += 1
                self.offering = turn
                return
        except MemoryError:
            self._end(turn, keep=False)
            return
        finally:
            self._calm()
        self._pass([turn], choices)

    def decode(self, choices: Choices) -> None:
        """Rounds of all ready rows; they may run between two pieces of a transition."""
        for _ in range(1 + choices.pick(6)):
            if rows := [turn for turn in self.running if turn.prompt_done]:
                self.counts["decode beside a transition"] += self.opening is not None and not self.undecided
                self.counts["decode beside planning"] += self.undecided
                self.counts["decode beside captures"] += self.offering is not None
                self._pass(rows, choices)

    def end(self, choices: Choices) -> None:
        if self.running and choices.pick(3) == 0:
            turn = self.running[choices.pick(len(self.running))]
            self._end(turn, keep=choices.pick(3) > 0 and turn.prompt_done)

    def leave(self, choices: Choices) -> None:
        if self.waiting and choices.pick(4) == 0:
            turn = self.waiting.pop(choices.pick(len(self.waiting)))
            self.manager.forget(turn.ask.request)

    def release(self, choices: Choices) -> None:
        """An explicit release: never of an owner that somebody leans on."""
        owners = [entry.owner for entry in self.manager.books.entries()]
        if not owners or choices.pick(4) or self.undecided or self.offering is not None:
            return
        owner = owners[choices.pick(len(owners))]
        held = owner in self.account.edges.values() or self.opening is not None
        try:
            self.manager.books.release(owner)
        except RuntimeError:
            assert held
            self.counts["release refused"] += 1
        else:
            assert not held
            self.counts["released"] += 1
            self.account.settled()

    RULES = (submit, submit, retry, advance, advance, *(prefill,) * 4, decode, decode, end, leave, release)

    # --- the check after every rule -------------------------------------------------------------------------------
    def check(self) -> None:
        if (self.opening is None or self.undecided) and self.offering is None:
            self.manager.audit()
        else:  # between two pieces of a transition the ledger is whole; records and books follow at its end
            audit(self.program.physical)
        self.account.compare(self.manager)

    # --- admission ------------------------------------------------------------------------------------------------
    def _admit(self, turn: Turn, choices: Choices) -> None:
        if self.opening is not None or self.offering is not None:
            assert isinstance(self.manager.admit(turn.ask), Blocked), "one transition at a time"
            return
        if len(self.running) >= self.machine.lanes:
            return
        # Nobody is tried for the first time before those that were submitted earlier.
        turn = min((other for other in self.waiting if not other.tried), key=lambda t: t.ask.order, default=turn)
        turn.tried = True
        self._arrange_trouble(choices, ("start", "refused", "stale", "arm", *("copy",) * 4))
        passing, head = None, self.waiting[0]
        donors = tuple(other.handle for other in self.running if other.handle is not None)
        if head is not turn and donors:
            passing = Passing(head.ask, donors)
        try:
            budget, most_ns = self.manager.budget(len(self.running)), _piece(choices)
            self._heard(turn, self.manager.admit(turn.ask, budget, passing, most_ns=most_ns))
        except MemoryError:
            self.counts["start raised"] += 1
        if self.opening is None:
            self._calm()

    def _heard(self, turn: Turn, admission: Admission) -> None:
        self.undecided = isinstance(admission, Undecided)
        self.counts["planning takes pieces"] += self.undecided
        match admission:
            case Undecided() | Transferring():
                if self.opening is None:
                    self.waiting.remove(turn)
                    self.opening = turn
            case Blocked():
                self.counts["blocked"] += 1
                assert self.running, "nothing runs, and yet the request is blocked"
                if self.opening is turn:
                    self.counts["blocked after pieces"] += 1
                    self.opening = None
                    self.waiting.insert(0, turn)
            case Refused():
                self.counts["refused"] += 1
                if self.opening is turn:
                    self.opening = None
                else:
                    self.waiting.remove(turn)
                self.manager.forget(turn.ask.request)
            case Failed(reason=reason):
                self.counts[f"failed: {reason}"] += 1
                self._calm()
                self.account.settled()
                if self.opening is turn:
                    self.opening = None
                    self.waiting.insert(0, turn)
            case Admitted(handle=handle, reuse=reuse):
                self._calm()
                if self.opening is turn:
                    self.opening = None
                else:
                    self.waiting.remove(turn)
                assert self.sealed is not None
                ask = turn.ask if self.machine.limits.enabled else replace(turn.ask, intent=OFF)  # OPT-3
                self.account.admitted(ask, self.sealed)
                turn.handle, turn.reused = handle, reuse.frontier
                self.running.append(turn)
                self.counts[f"{reuse.source.value} {reuse.operation.value}"] += 1
                assert not (ask.intent.mode is CacheMode.DISABLED and reuse.frontier), (
                    "a Disabled request starts from root (REQ-1)"
                )

    def _finish_transfer(self) -> None:
        while self.opening is not None:
            self._go_on(self.opening, None)

    def _go_on(self, turn: Turn, most_ns: int | None) -> None:
        try:
            self._heard(turn, self.manager.advance(most_ns))
        except MemoryError:  # its plan could not be started: it waits again
            self.counts["start raised"] += 1
            self.opening, self.undecided = None, False
            self.waiting.insert(0, turn)
            self._calm()

    def _finish_offering(self) -> None:
        if (turn := self.offering) is not None:
            assert turn.handle is not None
            self.offering = None
            until = self.program.sequence(turn.handle).frontier + CHUNK
            self.manager.before_pass(turn.ask.request, until, len(self.running))

    # --- passes and ends ------------------------------------------------------------------------------------------
    def _pass(self, turns: list[Turn], choices: Choices) -> None:
        def fault(batch: object) -> None:
            raise MemoryError("injected: pass")

        self.model.fault = fault if choices.pick(97) == 0 else lambda batch: None
        handles = [turn.handle for turn in turns if turn.handle is not None]
        try:
            pending = self.program.execute([(handle, CHUNK) for handle in handles])
        except MemoryError:
            self.counts["a pass failed"] += 1
            self.model.fault = lambda batch: None
            for turn in turns:
                self._end(turn, keep=False)
            return
        with pending:
            pending.commit(handles)
        for turn, row in zip(turns, pending.rows, strict=True):
            if not turn.prompt_done:
                self.manager.after_pass(turn.ask.request)
                self.account.settled()
            if row.token is not None:
                turn.prompt_done = True
                assert row.token == turn.next_token(), "another history's token"
                if len(turn.drawn) >= turn.ask.work.lifetime_tokens - len(turn.ask.work.prompt):
                    self._end(turn, keep=True)

    def _end(self, turn: Turn, keep: bool) -> None:
        self._finish_transfer()
        if self.offering is turn:  # what is being settled for it ends with it
            self.counts["ended while captures were settled"] += 1
            self.offering = None
        else:
            self._finish_offering()
        assert turn.handle is not None
        request, sequence = turn.ask.request, self.program.sequence(turn.handle)
        self.running.remove(turn)
        if keep and sequence.status is SequenceStatus.ACTIVE:
            self.program.end(turn.handle)
            owner, frontier = sequence.owner, int(sequence.frontier)
            kept = self.manager.finish(request, unreachable=bool(turn.drawn and turn.drawn[0] % 3 == 0))
            assert kept == self.account.finished(request, owner, frontier), "kept otherwise than it should be"
            self.counts["kept" if kept else "finished without a place"] += 1
            if turn.talk is not None:
                turn.talk.parts.append(list(turn.drawn))
        else:
            self.manager.discard(request)
            self.account.left(request)
            self.counts["discarded"] += 1

    # --- what is asked for ----------------------------------------------------------------------------------------
    def _prompt(self, choices: Choices) -> tuple[PreparedPrompt, Talk | None]:
        """A new conversation, a longer, edited or branched one, the same again, or raw tokens."""
        text = [choices.pick(50) for _ in range(3 + choices.pick(80))]
        kind = choices.pick(7)
        if kind == 0:
            known = [turn.ask.work.prompt.token_ids for turn in self.running if turn.talk is None]
            before = list(known[0][: choices.pick(200)]) if known else []
            return PreparedPrompt((*before, *text), None, OutputStart.ANSWER), None
        if not self.talks or kind == 1:
            if len(self.talks) >= MOST_TALKS:
                self.talks.pop(0)
            talk = Talk([[7] * 70, [9] * 130, [3] * 20][choices.pick(3)])
        else:
            old = self.talks[choices.pick(len(self.talks))]
            turns = len(old.parts) // 2
            talk = old.branch(2 * (turns - (kind == 2 and turns > 0)))
            if kind == 3 and talk.parts:
                talk.parts[-1] = talk.parts[-1][:2]  # a history that does not repeat the reply exactly
        if len(talk.parts) > 8:
            talk = talk.branch(0)
        talk.parts.append(text[: 3 + choices.pick(60)])
        self.talks.append(talk)
        self.talks = self.talks[-MOST_TALKS:]
        return talk.prompt(reproduces=choices.pick(2) == 0), talk

    @staticmethod
    def _intent(choices: Choices, prompt: PreparedPrompt) -> CacheIntent:
        session = (None, None, "first", "second", "third")[choices.pick(5)]
        markers = (Frontier(1 + choices.pick(len(prompt))),) if choices.pick(5) == 0 else ()
        return CacheIntent(
            mode=CacheMode.DISABLED if choices.pick(12) == 0 else CacheMode.READ_WRITE,
            session=session,
            sibling=choices.pick(6) == 0,
            publishes=choices.pick(8) > 0,
            markers=markers,
            share_prompt=(None, None, True, False)[choices.pick(4)],
            anchor_prompt_end=choices.pick(3) == 0,
        )

    # --- trouble --------------------------------------------------------------------------------------------------
    def _arrange_trouble(self, choices: Choices, kinds: tuple[str, ...]) -> None:
        if choices.pick(4):
            return
        kind = kinds[choices.pick(len(kinds))]
        if kind != "copy":
            self.trouble = kind
            return
        left = 1 + choices.pick(2)

        def fault(phase: Phase) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise CopyError("a copy failed")

        self.program.fault = fault

    def _calm(self) -> None:
        self.trouble, self.program.fault = "", None


def _piece(choices: Choices) -> int | None:
    """How long the manager may plan before it comes back, on the history's clock; mostly to the end."""
    return (None, None, 1, 3_000, 20_000)[choices.pick(5)]


def drive(history: History, seed: int, steps: int) -> History:
    """The same rules from a seeded generator, a check after each."""
    rng = random.Random(seed)
    for step in range(steps):
        rule: Callable[[History, Choices], None] = rng.choice(History.RULES)
        try:
            rule(history, Choices([rng.randrange(998) for _ in range(12)]))
            history.check()
        except BaseException as error:
            error.add_note(f"seed {seed}, step {step}: {rule.__name__}")
            raise
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    begin, rng, done, counts = time.perf_counter(), random.Random(args.seed), 0, Counter[str]()
    while done < args.steps:
        steps = min(400, args.steps - done)
        counts += drive(History(machines(rng)), rng.randrange(1 << 30), steps).counts
        done += steps
    for what, count in sorted(counts.items()):
        print(f"{count:9} {what}")
    print(f"seed {args.seed}: {done} steps, no difference; {done / (time.perf_counter() - begin):.0f} steps/s")


if __name__ == "__main__":
    main()
