"""Verification: what a cold replay of one request showed (context-cache VER-1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verification:
    """
    Attributes:
        state: the recurrent state at the frontier is the replay's, bit for bit; None when it was not compared.
        kv: the same of keys and values.
        tokens: every output token is drawn again; None when nothing was replayed.
        detail: for people: what differs, or why something was not compared.
    """

    state: bool | None
    kv: bool | None
    tokens: bool | None
    detail: str = ""

    @property
    def differs(self) -> bool:
        return False in (self.state, self.kv, self.tokens)

    @property
    def done(self) -> bool:
        """Whether anything was replayed at all."""
        return self.tokens is not None
