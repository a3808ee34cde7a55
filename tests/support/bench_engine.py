"""A worker over the ledger model, without files: what the Engine's tests submit to."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.plans import RequestWork
from ninfer_core.contract.prompt import OutputStart, PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.engine.active import ActiveRequest
from ninfer_core.engine.cache_options import ContextCacheOptions
from ninfer_core.engine.cache_sizing import cache_limits
from ninfer_core.engine.handle import RequestHandle
from ninfer_core.engine.request import GenerationRequest
from ninfer_core.engine.worker import Worker, WorkerLimits
from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.program import Program
from tests.support.ledger_model import LedgerModel
from tests.support.plain_output import PlainOutput

OFF = ContextCacheOptions(enabled=False)
PAGE_BYTES = 64 * 4 * 2
"""Bytes of one page of the ledger model."""


class BenchEngine:
    """Context manager. On leaving, every request must have been settled and the audit must hold."""

    def __init__(
        self,
        lanes: int = 2,
        pages: int = 64,
        chunk: int = 64,
        queue_limit: int = 16,
        limits: CacheLimits | None = None,
        slots: tuple[int, int] = (0, 0),
        host_pages: int = 0,
        lease: int | None = None,
    ) -> None:
        """
        Args:
            limits: of the context cache, which is off without.
            slots: StateImage slots on Device beside the lanes', and on Host.
            lease: tokens of one lease with kv_lease_growth.
        """
        self.model = LedgerModel()
        self.gate = threading.Semaphore(1 << 30)
        self.model.fault = self._pass_gate
        self.fault: Any = lambda batch: None
        capacity = Vector(lanes + slots[0], slots[1], (pages,), host_pages * PAGE_BYTES)
        self.program = Program(self.model, capacity, lease)
        self.manager = ResourceManager(self.program, limits or cache_limits(OFF, lanes), CostModel())
        self.worker = Worker(self.program, self.manager, WorkerLimits(lanes, chunk, queue_limit, transfer_share=0.0))
        self._ids = itertools.count(1)

    def _pass_gate(self, batch: ForwardBatch) -> None:
        self.gate.acquire()
        self.fault(batch)

    def hold(self) -> None:
        """From now on every pass waits for `gate.release()`."""
        self.gate = threading.Semaphore(0)

    def go_on(self) -> None:
        self.gate.release(1 << 20)

    def submit(
        self, prompt: Sequence[int], most_new: int = 10, output: PlainOutput | None = None, **request: Any
    ) -> RequestHandle:
        reasoning = output is not None and output.in_reasoning
        closing, boundaries = request.pop("thinking_close", ()), request.pop("boundaries", None)
        start = OutputStart.REASONING if reasoning else OutputStart.ANSWER
        prepared = PreparedPrompt(tuple(prompt), boundaries, start, thinking_close=closing)
        asked = GenerationRequest(prepared, SamplingParams(temperature=0), most_new, **request)
        work = RequestWork(prepared, len(prepared) + most_new, asked.sampling)
        active = ActiveRequest(RequestId(next(self._ids)), asked, work, output or PlainOutput())
        self.worker.submit(active)
        return RequestHandle(active, self.worker.wish)

    def __enter__(self) -> BenchEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.go_on()
        self.worker.close()
        if kind is None:
            self.manager.audit()
