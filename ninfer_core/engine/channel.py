"""EventChannel: one request's events on their way to its caller. The worker never waits here."""

from __future__ import annotations

import threading
from collections import deque

from ninfer_core.engine.events import Event, Finished, Prefilled, ReasoningDelta, TextDelta


class EventChannel:
    """Unread deltas of one kind are joined, so a caller that reads slowly, or never, holds at most its own text."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._ready = threading.Condition()
        self.finished: Finished | None = None

    def put(self, event: Event) -> None:
        """Called by the worker. Never blocks longer than a reader takes to pop one event."""
        with self._ready:
            last = self._events[-1] if self._events else None
            match event, last:
                case TextDelta(text), TextDelta(before):
                    self._events[-1] = TextDelta(before + text)
                case ReasoningDelta(text), ReasoningDelta(before):
                    self._events[-1] = ReasoningDelta(before + text)
                case Prefilled(), Prefilled():
                    self._events[-1] = event
                case _:
                    self._events.append(event)
            if isinstance(event, Finished):
                self.finished = event
            self._ready.notify_all()

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; None when timeout seconds passed without one, or everything was read."""
        with self._ready:
            self._ready.wait_for(lambda: self._events or self.finished, timeout)
            return self._events.popleft() if self._events else None

    def wait(self, timeout: float | None = None) -> Finished | None:
        """Wait for the end without reading the events before it."""
        with self._ready:
            self._ready.wait_for(lambda: self.finished, timeout)
            return self.finished
