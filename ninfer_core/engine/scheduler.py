"""Scheduler: which request is tried, and in which order passes run (context-cache AUT-1). It knows no memory fact."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ninfer_core.contract.ids import RequestId, Revision
from ninfer_core.engine.active import ActiveRequest, Wish

MOST_PASSES = 32
"""How many requests may pass one blocked head, however safe it is: nobody waits behind an endless stream."""


@dataclass(frozen=True, slots=True)
class Signal:
    """What a blocked request waits for a change of (PLAN-11): nothing else makes it worth trying again.

    Attributes:
        revision: of the resources.
        running: requests that occupy a lane.
        settled: admissions that have come to an end with a change.
        head: whose protection holds.
    """

    revision: Revision
    running: int
    settled: int
    head: RequestId


class Scheduler:
    """First in, first out. A blocked head may be passed only by a request that Program has proved not to delay it.

    Attributes:
        waiting: in order of submission.
        running: in order of admission; those that have ended too, until their state is settled.
        opening: it is being decided how to admit it, or its transition is being carried out.
        donors: what ran when the head was first blocked: their ends are what it waits for (ACT-5).
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self.waiting: deque[ActiveRequest] = deque()
        self.running: list[ActiveRequest] = []
        self.opening: ActiveRequest | None = None
        self.donors: tuple[ActiveRequest, ...] = ()
        self._before_opening: tuple[ActiveRequest, ...] = ()
        self._blocked_at: Signal | None = None
        self._tried: set[RequestId] = set()
        self._settled = 0
        self._passes = 0

    # --- order ----------------------------------------------------------------------------------------------------
    def next(self, revision: Revision) -> ActiveRequest | None:
        """The request to try now: never one while another's transition is open or every lane is taken.

        The head, unless it is blocked and nothing that it waits for has changed. Then those behind it, in order, each
        once until something changes.
        """
        busy = len(self.running) + (self.opening is not None)
        if not self.waiting or self.opening is not None or busy >= self._lanes:
            return None
        if self._blocked_at != self._signal(revision):
            return self.waiting[0]
        if not self.donors or self._passes >= MOST_PASSES:
            return None
        return next((r for i, r in enumerate(self.waiting) if i and r.id not in self._tried), None)

    def passed_by(self, request: ActiveRequest) -> ActiveRequest | None:
        """The head that a waiting request would pass; None for the head itself."""
        return None if request is self.waiting[0] else self.waiting[0]

    def block(self, request: ActiveRequest, revision: Revision) -> None:
        """A request could not be admitted. Once it is the head, what runs is protected for it."""
        if request is not self.waiting[0]:
            self._tried.add(request.id)
            return
        if not self.donors:
            self.donors = tuple(self.running)
        self._blocked_at = self._signal(revision)
        self._tried.clear()

    def open(self, request: ActiveRequest) -> None:
        """A waiting request's admission takes several pieces. Until it is Active it keeps its place."""
        place = self.waiting.index(request)
        self._before_opening = tuple(self.waiting)[:place]
        self.waiting.remove(request)
        self.opening = request

    def start(self, request: ActiveRequest) -> None:
        """A waiting or opening request has become Active."""
        if self.opening is not request:
            self.open(request)
        if self._heads():
            self._forget_head()
        else:
            self._passes += 1
        self._close()
        self.running.append(request)

    def reopen(self, request: ActiveRequest) -> None:
        """An opening request's transition was aborted: it waits where it did before."""
        self.put_back(request)
        self._settled += 1

    def put_back(self, request: ActiveRequest) -> bool:
        """An opening request turned out to be blocked before its transition started: nothing has changed.

        Returns:
            Whether that still tells anything: not when the head that it would have passed has left meanwhile.
        """
        holds = not self._before_opening or self._before_opening[0] in self.waiting
        self.waiting.insert(sum(r in self.waiting for r in self._before_opening), request)
        self.opening, self._before_opening = None, ()
        return holds

    def leave(self, request: ActiveRequest) -> None:
        """The request is over: forget it here."""
        if request in self.running:
            self.running.remove(request)
            self.donors = tuple(donor for donor in self.donors if donor is not request)
        elif self.opening is request:
            if self._heads():
                self._forget_head()
            self._close()
        else:
            if request is self.waiting[0] and not (self.opening is not None and self._heads()):
                self._forget_head()
            self.waiting.remove(request)

    def _heads(self) -> bool:
        """Whether the opening request passes nobody."""
        return not any(r in self.waiting for r in self._before_opening)

    def _forget_head(self) -> None:
        self.donors, self._passes, self._blocked_at = (), 0, None

    def _close(self) -> None:
        self.opening, self._before_opening = None, ()
        self._settled += 1

    def _signal(self, revision: Revision) -> Signal:
        return Signal(revision, len(self.running), self._settled, self.waiting[0].id)

    # --- passes ---------------------------------------------------------------------------------------------------
    def prefilling(self) -> ActiveRequest | None:
        """The oldest running request whose prompt is not yet computed."""
        return next((r for r in self._going_on() if not r.prompt_done), None)

    def decoding(self) -> list[ActiveRequest]:
        """All rows of the next decode round."""
        return [r for r in self._going_on() if r.prompt_done]

    def stopping(self) -> list[ActiveRequest]:
        """Requests, waiting or running, that their callers want ended."""
        return [r for r in (*self.waiting, *self._going_on()) if r.wish is not Wish.GO_ON]

    def ended(self) -> list[ActiveRequest]:
        """Requests that occupy their lane only until their state is settled."""
        return [r for r in self.running if r.ending is not None]

    def _going_on(self) -> list[ActiveRequest]:
        return [r for r in self.running if r.ending is None]

    @property
    def everyone(self) -> list[ActiveRequest]:
        return [*self.running, *([] if self.opening is None else [self.opening]), *self.waiting]

    def has_work(self, revision: Revision) -> bool:
        """Whether anything can move without news from outside."""
        busy = self.running or self.opening is not None
        return bool(busy) or self.next(revision) is not None or bool(self.stopping())
