"""Worker: the one thread that changes requests, Scheduler, ResourceManager and Program.

Callers reach it through an inbox, a wish on their request and an event channel. It never waits for a caller.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

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
from ninfer_core.cache.books import AdoptionError
from ninfer_core.cache.budget import Budget
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.engine.active import ActiveRequest, Ending, Wish
from ninfer_core.engine.delivery import deliver, preview, tell_end
from ninfer_core.engine.errand import Errand
from ninfer_core.engine.events import FinishReason, Prefilled, Started
from ninfer_core.engine.outcome import describe
from ninfer_core.engine.scheduler import Scheduler
from ninfer_core.errors import CapacityError, EngineClosed, QueueFull
from ninfer_core.frontend.output import Preview
from ninfer_core.program.execution.pending import PendingRow
from ninfer_core.program.program import Program

T = TypeVar("T")

MOST_ATTEMPTS = 3
"""How often an admission whose transition was aborted is tried before its request is given up."""


LOOK_AGAIN = 0.001
"""Seconds until copies are looked at again while no row runs."""

PIECE_NS = 700_000
"""Time between two decode rounds for planning, about: what takes longer goes on after the next. Where rounds are long,
planning may take the same share of one as a transition: few pieces do then, and the first token does not wait for many.
"""

TRANSFER_SHARE = 0.15
"""How much longer than the decode round before it a request may wait for the next, for another's state to be moved, or
for planning where rounds are long."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """
    Attributes:
        lanes: requests that run at once.
        prefill_chunk: tokens of one prefill pass.
        queue: requests that may wait.
        transfer_share: of a decode round's time, that the open transition or planning may take before the next one. A
            transition takes one piece of its work in any case.
    """

    lanes: int
    prefill_chunk: int
    queue: int
    transfer_share: float = TRANSFER_SHARE


class Worker:
    """Runs until `close`. A failure inside one request ends that request; one outside ends the Engine."""

    def __init__(self, program: Program, manager: ResourceManager, limits: WorkerLimits) -> None:
        self._program = program
        self._manager = manager
        self._chunk = limits.prefill_chunk
        self._limit = limits.queue
        self._share = limits.transfer_share
        self._round = 0.0
        """Seconds of the last decode round; 0 when no row was ready."""
        self._ran = False
        """Whether a pass ran since the last pause."""
        self._until: int | None = None
        """When planning has to leave the machine to the rows that decode; None where there are none."""
        self._put_off: set[str] = set()
        """What there was no time for before the last decode round."""
        self._boundary: Budget | None = None
        """What is left of an admission boundary's optional planning, while it goes on after a round."""
        self._scheduler = Scheduler(limits.lanes)
        self._inbox: deque[ActiveRequest] = deque()
        self._errands: deque[Errand[Any]] = deque()
        self._waiting = 0
        self._closing = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ninfer-worker", daemon=True)
        self._thread.start()
        # A thread within torch when the interpreter ends would abort the process: end it before that.
        atexit.register(self.close)

    # --- callers' side --------------------------------------------------------------------------------------------
    def submit(self, request: ActiveRequest) -> None:
        """Queue a request. Raises QueueFull, or EngineClosed when the Engine no longer serves."""
        with self._changed:
            if self._failure is not None:
                reason = describe(self._failure)
                raise EngineClosed(f"the Engine has failed ({reason}): start a new one") from self._failure
            if self._closing:
                raise EngineClosed("the Engine is closed: start a new one")
            if self._waiting >= self._limit:
                raise QueueFull(f"{self._waiting} requests are waiting already: try again when one has ended")
            self._waiting += 1
            self._inbox.append(request)
            self._changed.notify_all()

    def call(self, act: Callable[[], T]) -> T:
        """Have the worker do something between two units of work, and wait for it.

        Raises:
            EngineClosed: the Engine no longer serves; or whatever act raises.
        """
        errand: Errand[T] = Errand(act)
        with self._changed:
            if self._closing:
                raise EngineClosed("the Engine is closed: start a new one")
            self._errands.append(errand)
            self._changed.notify_all()
        return errand.result()

    def wish(self, request: ActiveRequest, wish: Wish) -> None:
        """Ask for an early end. Ignored by a request whose end is settled or who was cancelled already."""
        with self._changed:
            if request.wish is not Wish.CANCEL:
                request.wish = wish
            self._changed.notify_all()

    def stop(self) -> None:
        """End every request and the thread, without waiting."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self) -> None:
        """End every request and the thread. Idempotent; waits for the pass in progress."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    # --- the thread -----------------------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            while self._collect():
                self._until, opening = self._deadline(), self._scheduler.opening
                self._transfer()
                self._stop_wished()
                self._settle_ended()
                self._calls()
                if opening is None:
                    self._until = self._deadline()  # what callers ask for does not take planning's time
                self._admit()
                self._prefill()
                self._decode()
                self._pause()
        except BaseException as error:  # nothing may leave callers waiting
            self._failure = error
        finally:
            with self._changed:
                self._closing = True
                requests = [*self._scheduler.everyone, *self._inbox]
                self._inbox.clear()
                errands, self._errands = [*self._errands], deque()
            cause = self._failure or EngineClosed("the Engine was closed before the request ended")
            for request in requests:
                ending = request.ending or Ending(FinishReason.ERROR, cause, keep=False)
                tell_end(request, ending.reason, ending.error)
            for errand in errands:
                errand.fail(cause)
            atexit.unregister(self.close)  # it would keep the whole model

    def _collect(self) -> bool:
        """Wait for something to do and take new requests in; False when it is time to go."""
        scheduler = self._scheduler
        with self._changed:
            self._changed.wait_for(
                lambda: self._closing or self._inbox or self._errands or scheduler.has_work(self._program.revision)
            )
            scheduler.waiting.extend(self._inbox)
            self._inbox.clear()
            return not self._closing

    def _pause(self) -> None:
        """Look at copies again a little later when no row ran beside them: asking at once would keep a core busy."""
        if not self._ran and self._manager.waits_for_copies:
            with self._changed:
                self._changed.wait(LOOK_AGAIN)
        self._ran = False

    def _calls(self) -> None:
        """Carry out what callers asked of the books, between two units of work and with the books at rest (SES-1)."""
        while self._errands and self._manager.at_rest:
            with self._changed:
                errand = self._errands.popleft()
            errand.run()

    def _stop_wished(self) -> None:
        for request in self._scheduler.stopping():
            keep = request.wish is Wish.INTERRUPT and bool(request.token_ids)
            self._end(request, FinishReason.INTERRUPTED, keep=keep)

    # --- admission ------------------------------------------------------------------------------------------------
    def _transfer(self) -> None:
        """Pieces of the opening request's work for a bounded time; rows run between two calls (TXN-7)."""
        until = time.perf_counter() + self._share * self._round
        while (request := self._scheduler.opening) is not None:
            if request.wish is not Wish.GO_ON:
                self._manager.cancel(request.id)  # once it has come to its abort, it waits again
            admission = self._try(request, partial(self._manager.advance, self._left))
            if not isinstance(admission, Undecided | Blocked | Refused):
                self._boundary = None  # one was admitted: the next looks at another state of things
            self._heard(request, admission)
            if time.perf_counter() >= until:
                return

    def _admit(self) -> None:
        """The head first, then those that may pass it. All of them share one boundary's planning time (PLAN-8)."""
        scheduler, manager = self._scheduler, self._manager
        waited_for = any(row.held or not self._program.settled(_handle(row)) for row in scheduler.running)
        if self._errands or waited_for or not manager.at_rest:
            return  # another transition would keep them from what they wait for
        budget, self._boundary = self._boundary or manager.budget(len(scheduler.running)), None
        while (request := scheduler.next(self._program.revision)) is not None:
            most_ns = self._allowance("admission")
            if most_ns == 0:
                self._boundary = budget
                return
            passing = None
            if (head := scheduler.passed_by(request)) is not None:
                passing = Passing(_ask(head), tuple(_handle(donor) for donor in scheduler.donors))
            admission = self._try(request, partial(manager.admit, _ask(request), budget, passing, most_ns=most_ns))
            if isinstance(admission, Undecided):
                self._boundary = budget
            self._heard(request, admission)

    def _deadline(self) -> int | None:
        """When planning is to end before the next decode round; None where no row waits for one."""
        if not self._scheduler.decoding():
            return None
        return time.perf_counter_ns() + max(PIECE_NS, int(self._share * self._round * 1e9))

    @property
    def _left(self) -> int | None:
        """Nanoseconds that planning may still take before the next decode round; None where nobody waits for one."""
        return None if self._until is None else self._until - time.perf_counter_ns()

    def _allowance(self, what: str) -> int | None:
        """As long, for something that has not begun: 0 puts it off, but never twice in a row."""
        left = self._left
        if left is None or left > 0 or what in self._put_off:
            self._put_off.discard(what)
            return None if left is None else max(1, left)
        self._put_off.add(what)
        return 0

    def _try(self, request: ActiveRequest, act: Callable[[], Admission]) -> Admission | None:
        """None when the request has failed and is told so."""
        try:
            return act()
        except AdoptionError:
            raise  # the books can no longer be trusted: the Engine ends (TXN-11)
        except BaseException as error:
            self._end(request, FinishReason.ERROR, error)
            return None

    def _heard(self, request: ActiveRequest, admission: Admission | None) -> None:
        """Act on an admission's outcome."""
        scheduler = self._scheduler
        match admission:
            case None:
                pass
            case Blocked():
                if scheduler.opening is not request or scheduler.put_back(request):
                    scheduler.block(request, self._program.revision)
            case Refused(reason=reason):
                self._end(request, FinishReason.ERROR, CapacityError(reason))
            case Undecided() | Transferring():
                if scheduler.opening is not request:
                    scheduler.open(request)
            case Failed(reason=reason, begun=begun):
                if scheduler.opening is request:
                    (scheduler.reopen if begun else scheduler.put_back)(request)
                request.attempts += request.wish is Wish.GO_ON  # one that was cancelled has not failed
                if request.attempts >= MOST_ATTEMPTS:
                    why = f"room could not be made ({reason}): try again, or lower --max-new"
                    self._end(request, FinishReason.ERROR, CapacityError(why))
            case Admitted():
                self._begin(request, admission)

    def _begin(self, request: ActiveRequest, admission: Admitted) -> None:
        request.handle = admission.handle
        request.reuse, request.planning, request.transfer = admission.reuse, admission.planning, admission.transfer
        request.prefilled = admission.reuse.frontier
        request.clock.admitted = time.perf_counter()
        self._scheduler.start(request)
        self._leave_queue()
        request.channel.put(Started(request.id, request.prompt_tokens, admission.reuse))
        try:
            self._close_thinking(request, admission.handle)
        except BaseException as error:
            self._end(request, FinishReason.ERROR, error)

    # --- passes ---------------------------------------------------------------------------------------------------
    def _prefill(self) -> None:
        """One chunk of the oldest prompt, so that running rows decode again soon."""
        if (request := self._scheduler.prefilling()) is None:
            return
        until = request.prefilled + self._chunk
        # What closes the think block before the first token runs with the prompt, and no lease has counted it. Captures
        # are granted after that, from what it leaves.
        if not self._may_run(request, until) or not self._grown(request):
            return
        try:
            blocked = len(self._scheduler.running)
            end = self._manager.before_pass(request.id, until, blocked, most_ns=self._allowance("captures"))
        except AdoptionError:
            raise
        except BaseException as error:
            self._end(request, FinishReason.ERROR, error)
            return
        if end is not None:
            self._pass([request], end - request.prefilled)

    def _decode(self) -> None:
        """One round over every ready row. Almost always one token each; after a forced closing a few."""
        ready = [
            row for row in self._scheduler.decoding() if self._may_run(row, row.prompt_tokens + len(row.token_ids))
        ]
        rows, self._round = [row for row in ready if self._grown(row)], 0.0
        if rows:
            began = time.perf_counter()
            self._pass(rows, self._chunk)
            self._round = time.perf_counter() - began

    def _may_run(self, request: ActiveRequest, until: int) -> bool:
        """Whether a pass up to a frontier may run now: beside an open transition only inside its own reservation
        (TXN-7). What else it has to do waits for the books to be at rest; meanwhile the others run."""
        request.held = not (self._manager.at_rest_for(request.id) or self._manager.runs_beside(request.id, until))
        return not request.held

    def _grown(self, request: ActiveRequest) -> bool:
        """With kv_lease_growth, promise the next window before a pass needs it, or end with length (ACT-3)."""
        handle = _handle(request)
        if self._program.covered(handle) or self._program.extend_lease(handle):
            return True
        self._end(request, FinishReason.LENGTH)
        return False

    def _pass(self, requests: Sequence[ActiveRequest], most: int) -> None:
        """Execute -> preview -> Program commit -> output commit -> event. Failures stay with their row."""
        self._ran = True
        try:
            pending = self._program.execute([(_handle(request), most) for request in requests])
        except BaseException as error:
            for request in requests:
                self._end(request, FinishReason.ERROR, error)
            return
        previews: dict[ActiveRequest, Preview | None] = {}
        failures: dict[ActiveRequest, BaseException] = {}
        with pending:
            for request, row in zip(requests, pending.rows, strict=True):
                try:
                    previews[request] = preview(request, row)
                except BaseException as error:
                    failures[request] = error
            pending.commit([_handle(request) for request in previews])
        for request, row in zip(requests, pending.rows, strict=True):
            try:
                if request in failures:
                    raise failures[request]
                self._accept(request, row, previews[request])
            except AdoptionError:
                raise
            except BaseException as error:
                self._end(request, FinishReason.ERROR, error)

    def _accept(self, request: ActiveRequest, row: PendingRow, shown: Preview | None) -> None:
        if not request.prompt_done:
            self._manager.after_pass(request.id)
            request.captures = self._manager.captures(request.id)
            request.prefilled = min(request.prefilled + row.executed, request.prompt_tokens)
            request.channel.put(Prefilled(request.prefilled, request.prompt_tokens))
        if row.token is None or shown is None:
            return
        now = time.perf_counter()
        if not request.prompt_done:
            request.prompt_done = True
            request.clock.prefilled = now
        if request.most_new == 0:  # a prefill: what the last pass drew is nobody's
            self._end(request, FinishReason.LENGTH)
            return
        request.clock.first_token = request.clock.first_token or now
        request.clock.last_token = now
        deliver(request, row.token, shown)
        if shown.finish is not None:
            self._end(request, FinishReason.STOP)
        elif len(request.token_ids) >= request.most_new:
            self._end(request, FinishReason.LENGTH)
        else:
            self._close_thinking(request, _handle(request))

    def _close_thinking(self, request: ActiveRequest, handle: SequenceHandle) -> None:
        """Append the end of the think block once its budget is spent."""
        budget = request.request.thinking_budget
        if budget is None or request.reasoning_tokens < budget or not request.output.in_reasoning:
            return
        closing = request.request.prompt.thinking_close
        for token in closing[: self._program.force(handle, closing)]:
            deliver(request, token, request.output.preview(token))
        if len(request.token_ids) >= request.most_new:
            self._end(request, FinishReason.LENGTH)

    def _end(
        self, request: ActiveRequest, reason: FinishReason, error: BaseException | None = None, *, keep: bool = True
    ) -> None:
        """Settle Program and ResourceManager, then tell the caller, whatever fails on the way. Until the books are at
        rest a running request only stops, and keeps its reservation (ACT-4, TXN-1).

        Only what cannot even be discarded is raised: then the books no longer hold, and the Engine must not go on.
        """
        if request.channel.finished is not None or request.ending is not None:  # what came after is not its own failure
            raise error or RuntimeError(f"request {request.id} has two ends")
        if request.handle is not None and not self._manager.at_rest_for(request.id):
            request.ending = Ending(reason, error, keep)
            return
        self._scheduler.leave(request)
        try:
            if request.handle is None:
                self._manager.forget(request.id)
                self._leave_queue()
            else:
                error = self._settle(request, request.handle, keep=keep and error is None) or error
        except BaseException as lost:
            error = error or lost
            raise
        finally:
            tell_end(request, reason if error is None else FinishReason.ERROR, error, self._program.axes)

    def _settle_ended(self) -> None:
        """The books are at rest again: settle who has ended meanwhile, in order of admission. Who was cancelled since
        then is not kept (DEF-4)."""
        for request in self._scheduler.ended() if self._manager.at_rest else ():
            ending, request.ending = request.ending, None
            assert ending is not None
            self._end(request, ending.reason, ending.error, keep=ending.keep and request.wish is not Wish.CANCEL)

    def _settle(self, request: ActiveRequest, handle: SequenceHandle, *, keep: bool) -> BaseException | None:
        """Keep or discard a sequence. Returns why it could not be kept; it is discarded then."""
        trouble: BaseException | None = None
        if keep:
            try:
                self._program.end(handle)
                request.kept = self._manager.finish(request.id, unreachable=self._unreachable(request))
                return None
            except AdoptionError:
                raise
            except BaseException as error:
                trouble = error
        self._manager.discard(request.id)
        return trouble

    @staticmethod
    def _unreachable(request: ActiveRequest) -> bool:
        """Whether the Frontend says that no rendering of history reproduces this endpoint (VAL-9). A call's may be: a
        tool loop keeps its reasoning until the next question."""
        bounds = request.request.prompt.boundaries
        return bounds is not None and not bounds.reproduces_history and "<tool_call>" not in request.output.text

    def _leave_queue(self) -> None:
        with self._changed:
            self._waiting -= 1


def _ask(request: ActiveRequest) -> Ask:
    return Ask(request.id, request.work, request.request.cache)


def _handle(request: ActiveRequest) -> SequenceHandle:
    assert request.handle is not None, "a running request has its sequence"
    return request.handle
