"""Gate: whether a global transition may begin, and which one is open (context-cache TXN-1, TXN-11)."""

from __future__ import annotations

from ninfer_core.program.transactions.running import RunningTransaction


class Gate:
    """At most one global transition at a time; none any more once Program has lost its stable state."""

    def __init__(self) -> None:
        self._open: RunningTransaction | None = None
        self._failed = False

    @property
    def is_open(self) -> bool:
        """Whether a transition is in progress."""
        return self._open is not None

    def enter(self, transaction: RunningTransaction) -> None:
        """The transition is in progress until `leave`."""
        assert self._open is None, "the caller refuses a second transition"
        self._open = transaction

    def leave(self) -> None:
        """It has settled."""
        self._open = None

    def fail(self) -> None:
        """No stable state can be explained any more: Engine-wide failure."""
        self._failed = True

    def quiet(self) -> None:
        """Raises RuntimeError while a transition is open: what follows may not overlap one."""
        if self._open is not None:
            raise RuntimeError("a transition is open: it must settle first (TXN-1)")

    def blocked(self) -> str:
        """Why nothing can start now, in a line; empty when something can.

        Raises:
            RuntimeError: the stable state is lost.
        """
        if self._failed:
            raise RuntimeError("Program lost its stable state: start a new Engine (TXN-11)")
        return "" if self._open is None else "a transition is open"
