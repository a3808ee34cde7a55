"""Scheduler: which request is tried, and in which order passes run (context-cache AUT-1). It knows no memory fact."""

from __future__ import annotations

from collections import deque

from ninfer_core.contract.ids import Revision
from ninfer_core.engine.active import ActiveRequest, Wish


class Scheduler:
    """First in, first out; the head is never passed. Prefill goes to the oldest request that still needs it."""

    def __init__(self) -> None:
        self.waiting: deque[ActiveRequest] = deque()
        self.running: list[ActiveRequest] = []
        self._blocked_at: Revision | None = None

    def head(self, revision: Revision) -> ActiveRequest | None:
        """The request to try now. A blocked head is tried again only when the resource revision has moved."""
        if not self.waiting or self._blocked_at == revision:
            return None
        return self.waiting[0]

    def block(self, revision: Revision) -> None:
        """The head could not be admitted at this revision."""
        self._blocked_at = revision

    def start(self, request: ActiveRequest) -> None:
        """The head was admitted."""
        self.leave(request)
        self.running.append(request)

    def leave(self, request: ActiveRequest) -> None:
        """The request is over, or about to run: forget it here."""
        if request in self.running:
            self.running.remove(request)
        else:
            if self.waiting and self.waiting[0] is request:
                self._blocked_at = None
            self.waiting.remove(request)

    def prefilling(self) -> ActiveRequest | None:
        """The oldest running request whose prompt is not yet computed."""
        return next((r for r in self.running if not r.prompt_done), None)

    def decoding(self) -> list[ActiveRequest]:
        """All rows of the next decode round."""
        return [r for r in self.running if r.prompt_done]

    def stopping(self) -> list[ActiveRequest]:
        """Requests, waiting or running, that their callers want ended."""
        return [r for r in (*self.waiting, *self.running) if r.wish is not Wish.GO_ON]

    def has_work(self, revision: Revision) -> bool:
        """Whether anything can move without news from outside."""
        return bool(self.running) or self.head(revision) is not None or bool(self.stopping())
