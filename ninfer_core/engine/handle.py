"""RequestHandle: a caller's hold on one submitted request."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ninfer_core.contract.ids import RequestId
from ninfer_core.engine.active import ActiveRequest, Wish
from ninfer_core.engine.events import Completion, Event, Finished


class RequestHandle:
    """Read `events` (one reader), or wait for `result`; end it early with `interrupt` or `cancel`."""

    def __init__(self, request: ActiveRequest, wish: Callable[[ActiveRequest, Wish], None]) -> None:
        self._request = request
        self._wish = wish

    @property
    def id(self) -> RequestId:
        return self._request.id

    def events(self) -> Iterator[Event]:
        """Every event until Finished, waiting for each."""
        while (event := self.next_event()) is not None:
            yield event
            if isinstance(event, Finished):
                return

    def next_event(self, timeout: float | None = None) -> Event | None:
        """The next event, or None when timeout seconds passed without one or Finished was read."""
        return self._request.channel.get(timeout)

    def interrupt(self) -> None:
        """End at the next token boundary and keep what there is: Finished follows with INTERRUPTED. Returns at once."""
        self._wish(self._request, Wish.INTERRUPT)

    def cancel(self) -> None:
        """End at the next token boundary and keep no state: Finished follows with INTERRUPTED. Returns at once."""
        self._wish(self._request, Wish.CANCEL)

    def result(self, timeout: float | None = None) -> Completion:
        """Wait for the end.

        Raises:
            TimeoutError: it did not end within timeout seconds; the request goes on.
        """
        finished = self._request.channel.wait(timeout)
        if finished is None:
            raise TimeoutError(f"the request did not end within {timeout} s")
        return finished.completion
