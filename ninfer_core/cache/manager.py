"""ResourceManager: the logical policy (context-cache AUT-2). As yet it knows one candidate, root, and keeps nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.plans import Readiness, RequestWork, SequenceHandle
from ninfer_core.contract.results import ResourceResult
from ninfer_core.contract.statistics import Miss, MissReason, Planning, Reuse
from ninfer_core.program.planning.target import Target
from ninfer_core.program.program import Program


@dataclass(frozen=True, slots=True)
class Blocked:
    """Not now: look again when a lane or the resource revision changes (PLAN-11)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Never: the request exceeds what this Engine has even when it is alone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The sequence is Active; what was reused and what it took to decide."""

    handle: SequenceHandle
    reuse: Reuse
    planning: Planning


Admission = Admitted | Blocked | Refused


class ResourceManager:
    """Chooses where a request starts from, has Program seal and start the plan, adopts the result."""

    def __init__(self, program: Program, lanes: int) -> None:
        self._program = program
        self._lanes: list[RequestId | None] = [None] * lanes

    def admit(self, request: RequestId, work: RequestWork) -> Admission:
        """Try to make one request Active. Blocked and Refused change nothing."""
        began = time.perf_counter()
        program = self._program
        target = Target(program.activation(None, work))
        assessment = program.assess(target)
        if assessment.readiness is Readiness.PERMANENTLY_INFEASIBLE:
            return Refused(
                f"prompt and output may take {work.lifetime_tokens} tokens, which need {assessment.reason}: "
                "lower --max-new or raise --kv-capacity"
            )
        # The lane is claimed before Program is asked, so that adoption never has to search (RET-4).
        lane = self._free_lane()
        if lane is None:
            return Blocked("every lane is taken")
        if assessment.readiness is not Readiness.READY:
            return Blocked(assessment.reason)
        self._lanes[lane] = request
        try:
            done = program.materialize(target, work)
        except BaseException:
            self._lanes[lane] = None
            raise
        if isinstance(done, ResourceResult):
            self._lanes[lane] = None
            return Blocked(done.reason)
        miss = Miss(0, len(work.prompt), MissReason.DISABLED, "the context cache is off")
        return Admitted(
            handle=done,
            reuse=Reuse(misses=(miss,)),
            planning=Planning(ms=(time.perf_counter() - began) * 1e3),
        )

    def finish(self, request: RequestId, handle: SequenceHandle) -> None:
        """An ended request frees its lane. With nothing to keep it in, its context goes (OPT-3)."""
        self._program.discard(handle)
        self._free(request)

    def discard(self, request: RequestId, handle: SequenceHandle) -> None:
        """A cancelled or failed request: release everything, then free its lane."""
        self._program.discard(handle)
        self._free(request)

    def _free(self, request: RequestId) -> None:
        self._lanes[self._lanes.index(request)] = None

    def _free_lane(self) -> int | None:
        return next((lane for lane, owner in enumerate(self._lanes) if owner is None), None)
