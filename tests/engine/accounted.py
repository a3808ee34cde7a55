"""An Engine whose books are compared with an account kept beside them, and that can be disturbed at any call.

The worker's calls of ResourceManager and Program are counted by name. The account hears what was asked, sealed and
ended (tests.cache.logical_model); it takes nothing from the books.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ninfer_core.cache.admission import Admitted, Ask, Failed
from ninfer_core.contract.ids import RequestId
from ninfer_core.engine.active import ActiveRequest, Wish
from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.program.planning.target import Activation, Target
from tests.cache.logical_model import LogicalModel
from tests.support.bench_engine import BenchEngine

Place = tuple[str, int]
"""Before the n-th call of a name, the first being 1."""

MANAGER = ("before_pass", "after_pass", "finish", "discard", "forget")
PROGRAM = ("seal", "start", "execute", "arm", "end")


class Accounted:
    """
    Attributes:
        before: what is to be done at a place.
        counts: calls so far, by name. "plan" is a piece of an admission's planning or transition, "copy" one of an open
            transition's.
        rows: requests that decode for the others' sake: they go on only while there is something else to do.
    """

    def __init__(self, engine: BenchEngine, cells: int) -> None:
        self.engine = engine
        self.account = LogicalModel(engine.program, cells)
        self.before: dict[Place, Callable[[], object]] = {}
        self.counts: Counter[str] = Counter()
        self.rows: list[ActiveRequest] = []
        self._sealed: Target | None = None
        self._asks: dict[RequestId, Ask] = {}
        manager, program = engine.manager, engine.program
        self._wrap_admissions()
        self._wrap_ends()
        self._wrap(program, "advance", "copy")
        for owner, names in ((manager, MANAGER), (program, PROGRAM)):
            for name in names:
                self._wrap(owner, name, name)
        engine.fault = self._pause

    def reaches(self, name: str) -> None:
        self.counts[name] += 1
        self.before.pop((name, self.counts[name]), lambda: None)()

    def compare(self) -> None:
        """Between two units of work, with the books at rest: they are as the account says, and nothing is claimed."""
        manager = self.engine.manager

        def look() -> None:
            self.account.settled()
            self.account.compare(manager)
            assert manager.at_rest and not manager.books.claims
            manager.audit()

        self.engine.worker.call(look)

    # --- parts ----------------------------------------------------------------------------------------------------
    def _wrap(self, owner: Any, method: str, name: str) -> None:
        act = getattr(owner, method)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            self.reaches(name)
            if name == "before_pass" and named.get("most_ns") is not None:
                named["most_ns"] = 1  # every step is a piece of its own, however fast the machine is
            done = act(*arguments, **named)
            if name == "seal" and isinstance(arguments[0].demand, Activation):
                self._sealed = arguments[0]
            if name in ("before_pass", "after_pass"):
                self.account.settled()
            return done

        setattr(owner, method, wrapped)

    def _wrap_admissions(self) -> None:
        manager = self.engine.manager
        admit, advance = manager.admit, manager.advance

        def heard(request: RequestId, admission: Any) -> Any:
            if isinstance(admission, Failed):
                self.account.settled()
            elif isinstance(admission, Admitted):
                assert self._sealed is not None
                self.account.admitted(self._asks[request], self._sealed)
            return admission

        def admitting(ask: Ask, *rest: Any, most_ns: int | None) -> Any:
            self.reaches("plan")
            self._asks[ask.request] = ask
            return heard(ask.request, admit(ask, *rest, most_ns=None if most_ns is None else 1))

        def advancing(*room: int | None) -> Any:
            if not room:
                return advance()  # the manager itself, with a plan that needs no copies
            self.reaches("plan")
            opening = self.engine.worker._scheduler.opening
            assert opening is not None
            return heard(opening.id, advance(None if room[0] is None else 1))

        manager.admit, manager.advance = admitting, advancing  # type: ignore[method-assign]

    def _wrap_ends(self) -> None:
        manager, program = self.engine.manager, self.engine.program
        finish, discard = manager.finish, manager.discard

        def finishing(request: RequestId, **how: Any) -> bool:
            sequence = program.sequence(manager._running[request].handle)
            owner, frontier = sequence.owner, int(sequence.frontier)
            kept = finish(request, **how)
            assert kept == self.account.finished(request, owner, frontier), "kept otherwise than it should be"
            return kept

        def discarding(request: RequestId) -> None:
            discard(request)
            self.account.left(request)

        manager.finish, manager.discard = finishing, discarding  # type: ignore[method-assign]

    def _pause(self, batch: ForwardBatch) -> None:
        """A slow test does not find the rows at their end."""
        while all(len(row.token_ids) == 1 for row in batch.rows) and self._idle:
            time.sleep(0.0005)

    @property
    def _idle(self) -> bool:
        worker = self.engine.worker
        if worker._inbox or worker._errands or worker._closing:
            return False
        others = [r for r in worker._scheduler.everyone if r not in self.rows or not r.token_ids]
        return bool(self.rows) and not others and not any(row.wish is not Wish.GO_ON for row in self.rows)
