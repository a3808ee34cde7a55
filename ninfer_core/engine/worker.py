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

from ninfer_core.cache.admission import Admission, Admitted, Ask, Blocked, Failed, Passing, Refused, Transferring
from ninfer_core.cache.books import AdoptionError
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.engine.active import ActiveRequest, Wish
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


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """lanes: requests that run at once; prefill_chunk: tokens of one prefill pass; queue: requests that may wait."""

    lanes: int
    prefill_chunk: int
    queue: int


class Worker:
    """Runs until `close`. A failure inside one request ends that request; one outside ends the Engine."""

    def __init__(self, program: Program, manager: ResourceManager, limits: WorkerLimits) -> None:
        self._program = program
        self._manager = manager
        self._chunk = limits.prefill_chunk
        self._limit = limits.queue
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
        """Ask for an early end. Ignored by a request that has ended or was cancelled already."""
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
                self._calls()
                self._stop_wished()
                self._transfer()
                self._admit()
                self._prefill()
                self._decode()
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
                tell_end(request, FinishReason.ERROR, cause)
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

    def _calls(self) -> None:
        """Carry out what callers asked of the books, between two units of work and with no transition open (SES-1)."""
        while self._errands:
            self._finish_transfer()  # before it is taken: should that fail, its caller must still be told
            with self._changed:
                errand = self._errands.popleft()
            errand.run()

    def _stop_wished(self) -> None:
        opening = self._scheduler.opening
        if opening is not None and opening.wish is not Wish.GO_ON:
            self._manager.cancel(opening.id)
            self._finish_transfer()
        for request in self._scheduler.stopping():
            keep = request.wish is Wish.INTERRUPT and bool(request.token_ids)
            self._end(request, FinishReason.INTERRUPTED, keep=keep)

    # --- admission ------------------------------------------------------------------------------------------------
    def _transfer(self) -> None:
        """One piece of the open transition's work; rows decode between two of them (TXN-7)."""
        request = self._scheduler.opening
        if request is not None:
            self._heard(request, self._try(request, self._manager.advance))

    def _finish_transfer(self) -> None:
        """Drive the open transition to its end: what follows needs the books at rest (TXN-1)."""
        while self._scheduler.opening is not None:
            self._transfer()

    def _admit(self) -> None:
        """The head first, then those that may pass it. All of them share one boundary's planning time (PLAN-8)."""
        scheduler, manager = self._scheduler, self._manager
        budget = manager.budget(len(scheduler.running))
        while (request := scheduler.next(self._program.revision)) is not None:
            passing = None
            if (head := scheduler.passed_by(request)) is not None:
                passing = Passing(_ask(head), tuple(_handle(donor) for donor in scheduler.donors))
            admission = self._try(request, partial(manager.admit, _ask(request), budget, passing))
            if isinstance(admission, Blocked):
                scheduler.block(request, self._program.revision)
            self._heard(request, admission)

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
            case None | Blocked():
                pass
            case Refused(reason=reason):
                self._end(request, FinishReason.ERROR, CapacityError(reason))
            case Transferring():
                if scheduler.opening is not request:
                    scheduler.open(request)
            case Failed(reason=reason):
                if scheduler.opening is request:
                    scheduler.reopen(request)
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
        self._finish_transfer()  # captures are transitions too
        try:
            until = request.prefilled + self._chunk
            until = self._manager.before_pass(request.id, until, len(self._scheduler.running))
        except AdoptionError:
            raise
        except BaseException as error:
            self._end(request, FinishReason.ERROR, error)
            return
        self._pass([request], until - request.prefilled)

    def _decode(self) -> None:
        """One round over every ready row. Almost always one token each; after a forced closing a few."""
        rows = self._scheduler.decoding()
        for request in rows:
            self._grow(request)
        if rows := [row for row in rows if row in self._scheduler.running]:
            self._pass(rows, self._chunk)

    def _grow(self, request: ActiveRequest) -> None:
        """With kv_lease_growth, promise the next window at a round's boundary, or end with length (ACT-3)."""
        if self._program.covered(_handle(request)):
            return
        self._finish_transfer()
        if not self._program.extend_lease(_handle(request)):
            self._end(request, FinishReason.LENGTH)

    def _pass(self, requests: Sequence[ActiveRequest], most: int) -> None:
        """Execute -> preview -> Program commit -> output commit -> event. Failures stay with their row."""
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
        """Settle Program and ResourceManager, then tell the caller, whatever fails on the way.

        Only what cannot even be discarded is raised: then the books no longer hold, and the Engine must not go on.
        """
        if request.channel.finished is not None:  # told already: what came after its end is not its own failure
            raise error or RuntimeError(f"request {request.id} has two ends")
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
            tell_end(request, reason if error is None else FinishReason.ERROR, error)

    def _settle(self, request: ActiveRequest, handle: SequenceHandle, *, keep: bool) -> BaseException | None:
        """Keep or discard a sequence. Returns why it could not be kept; it is discarded then."""
        self._finish_transfer()
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
