"""Worker: the one thread that changes requests, Scheduler, ResourceManager and Program.

Callers reach it through an inbox, a wish on their request and an event channel. It never waits for a caller.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Sequence

from ninfer_core.cache.manager import Admitted, Blocked, ResourceManager
from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.engine.active import ActiveRequest, Wish
from ninfer_core.engine.events import Finished, FinishReason, Prefilled, ReasoningDelta, Started, TextDelta
from ninfer_core.engine.outcome import completion, describe
from ninfer_core.engine.scheduler import Scheduler
from ninfer_core.errors import CapacityError, EngineClosed, QueueFull, ReplyError
from ninfer_core.frontend.output import Preview
from ninfer_core.program.execution.pending import PendingRow
from ninfer_core.program.program import Program


class Worker:
    """Runs until `close`. A failure inside one request ends that request; one outside ends the Engine."""

    def __init__(self, program: Program, manager: ResourceManager, prefill_chunk: int, queue_limit: int) -> None:
        self._program = program
        self._manager = manager
        self._chunk = prefill_chunk
        self._limit = queue_limit
        self._scheduler = Scheduler()
        self._inbox: deque[ActiveRequest] = deque()
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
                self._stop_wished()
                self._admit()
                self._prefill()
                self._decode()
        except BaseException as error:  # nothing may leave callers waiting
            self._failure = error
        finally:
            with self._changed:
                self._closing = True
                requests = [*self._scheduler.running, *self._scheduler.waiting, *self._inbox]
                self._inbox.clear()
            cause = self._failure or EngineClosed("the Engine was closed before the request ended")
            for request in requests:
                self._tell_end(request, FinishReason.ERROR, cause)
            atexit.unregister(self.close)  # it would keep the whole model

    def _collect(self) -> bool:
        """Wait for something to do and take new requests in; False when it is time to go."""
        scheduler = self._scheduler
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._inbox or scheduler.has_work(self._program.revision))
            scheduler.waiting.extend(self._inbox)
            self._inbox.clear()
            return not self._closing

    def _stop_wished(self) -> None:
        for request in self._scheduler.stopping():
            keep = request.wish is Wish.INTERRUPT and bool(request.token_ids)
            self._end(request, FinishReason.INTERRUPTED, keep=keep)

    def _admit(self) -> None:
        while (request := self._scheduler.head(self._program.revision)) is not None:
            try:
                admission = self._manager.admit(request.id, request.work)
            except BaseException as error:
                self._end(request, FinishReason.ERROR, error)
                continue
            if isinstance(admission, Blocked):
                self._scheduler.block(self._program.revision)
                return
            if not isinstance(admission, Admitted):
                self._end(request, FinishReason.ERROR, CapacityError(admission.reason))
                continue
            request.handle = admission.handle
            request.reuse, request.planning = admission.reuse, admission.planning
            request.prefilled = admission.reuse.frontier
            request.clock.admitted = time.perf_counter()
            self._scheduler.start(request)
            self._leave_queue()
            request.channel.put(Started(request.id, request.prompt_tokens, admission.reuse))
            try:
                self._close_thinking(request, admission.handle)
            except BaseException as error:
                self._end(request, FinishReason.ERROR, error)

    def _prefill(self) -> None:
        """One chunk of the oldest prompt, so that running rows decode again soon."""
        if (request := self._scheduler.prefilling()) is not None:
            self._pass([request])

    def _decode(self) -> None:
        """One round over every ready row. Almost always one token each; after a forced closing a few."""
        if rows := self._scheduler.decoding():
            self._pass(rows)

    def _pass(self, requests: Sequence[ActiveRequest]) -> None:
        """Execute -> preview -> Program commit -> output commit -> event. Failures stay with their row."""
        try:
            pending = self._program.execute([(_handle(request), self._chunk) for request in requests])
        except BaseException as error:
            for request in requests:
                self._end(request, FinishReason.ERROR, error)
            return
        previews: dict[ActiveRequest, Preview | None] = {}
        failures: dict[ActiveRequest, BaseException] = {}
        with pending:
            for request, row in zip(requests, pending.rows, strict=True):
                try:
                    previews[request] = self._preview(request, row)
                except BaseException as error:
                    failures[request] = error
            pending.commit([_handle(request) for request in previews])
        for request, row in zip(requests, pending.rows, strict=True):
            try:
                if request in failures:
                    raise failures[request]
                self._accept(request, row, previews[request])
            except BaseException as error:
                self._end(request, FinishReason.ERROR, error)

    @staticmethod
    def _preview(request: ActiveRequest, row: PendingRow) -> Preview | None:
        if row.error is not None:
            raise ReplyError(f"{row.error}: try --dtype float32; if it stays, the weights may be damaged")
        return None if row.token is None else request.output.preview(row.token)

    def _accept(self, request: ActiveRequest, row: PendingRow, preview: Preview | None) -> None:
        if not request.prompt_done:
            request.prefilled = min(request.prefilled + row.executed, request.prompt_tokens)
            request.channel.put(Prefilled(request.prefilled, request.prompt_tokens))
        if row.token is None or preview is None:
            return
        now = time.perf_counter()
        if not request.prompt_done:
            request.prompt_done = True
            request.clock.prefilled = now
        request.clock.first_token = request.clock.first_token or now
        request.clock.last_token = now
        self._output(request, row.token, preview)
        if preview.finish is not None:
            self._end(request, FinishReason.STOP)
        elif len(request.token_ids) >= request.most_new:
            self._end(request, FinishReason.LENGTH)
        else:
            self._close_thinking(request, _handle(request))

    @staticmethod
    def _output(request: ActiveRequest, token: int, preview: Preview) -> None:
        request.output.commit(preview)
        request.token_ids.append(token)
        _show(request, preview)
        request.reasoning_tokens += request.output.in_reasoning

    def _close_thinking(self, request: ActiveRequest, handle: SequenceHandle) -> None:
        """Append the end of the think block once its budget is spent."""
        budget = request.request.thinking_budget
        if budget is None or request.reasoning_tokens < budget or not request.output.in_reasoning:
            return
        closing = request.request.prompt.thinking_close
        for token in closing[: self._program.force(handle, closing)]:
            self._output(request, token, request.output.preview(token))
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
                self._leave_queue()
            else:
                error = self._settle(request, request.handle, keep=keep and error is None) or error
        except BaseException as lost:
            error = error or lost
            raise
        finally:
            self._tell_end(request, reason if error is None else FinishReason.ERROR, error)

    def _settle(self, request: ActiveRequest, handle: SequenceHandle, *, keep: bool) -> BaseException | None:
        """Keep or discard a sequence. Returns why it could not be kept; it is discarded then."""
        trouble: BaseException | None = None
        if keep:
            try:
                self._program.end(handle)
                self._manager.finish(request.id, handle)
                return None
            except BaseException as error:
                trouble = error
        self._manager.discard(request.id, handle)
        return trouble

    @staticmethod
    def _tell_end(request: ActiveRequest, reason: FinishReason, error: BaseException | None) -> None:
        """The last events. Trouble with the text is the request's own: the caller hears of its end in any case."""
        try:
            _show(request, request.output.flush())
            result = completion(request, reason, error)
        except BaseException as trouble:
            result = completion(request, FinishReason.ERROR, error or trouble, text="")
        request.channel.put(Finished(result))

    def _leave_queue(self) -> None:
        with self._changed:
            self._waiting -= 1


def _show(request: ActiveRequest, preview: Preview) -> None:
    if preview.reasoning_delta:
        request.channel.put(ReasoningDelta(preview.reasoning_delta))
    if preview.text_delta:
        request.channel.put(TextDelta(preview.text_delta))


def _handle(request: ActiveRequest) -> SequenceHandle:
    assert request.handle is not None, "a running request has its sequence"
    return request.handle
