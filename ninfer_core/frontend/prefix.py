"""The part of a conversation's prompt that stays the same whatever is said next: what a session prefills once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.errors import UsageError
from ninfer_core.frontend.frontend import Frontend
from ninfer_core.frontend.messages import Message

# One beginning of each kind that pre-tokenizers tell apart, so that no merge across the edge is missed.
_BEGINNINGS = ("a", "7", "\u4e2d", ".", "(", "\u00e9", "\n\na", " a", "\u0301a")


def open_prefix(
    frontend: Frontend,
    messages: Sequence[Message],
    waiting: str = "",
    tools: Sequence[Mapping[str, Any]] | None = None,
    thinking: bool | None = None,
) -> PreparedPrompt:
    """The tokens that every prompt with these messages, and a next user message behind them, begins with.

    Args:
        waiting: text that the next message begins with, such as a document; a blank line follows it.

    Raises:
        UsageError: a message that the template does not take, or the prompts have nothing in common.
    """
    opening = f"{waiting}\n\n" if waiting else ""
    probes = [frontend.prepare([*messages, Message("user", opening + text)], tools, thinking) for text in _BEGINNINGS]
    first = probes[0]
    end = min(_shared(first.token_ids, probe.token_ids) for probe in probes[1:])
    if not end:
        raise UsageError("there is nothing to read ahead: give a document, a system message or a conversation")
    bounds = first.boundaries
    assert bounds is not None

    def inside(places: Sequence[Frontier]) -> tuple[Frontier, ...]:
        return tuple(place for place in places if place <= end)

    cut = replace(
        bounds,
        message_ends=inside(bounds.message_ends),
        generation_opener=Frontier(min(bounds.generation_opener, end)),
        turn_closure=Frontier(min(bounds.turn_closure, end)),
        rewrite_execution_frontiers=inside(bounds.rewrite_execution_frontiers),
        reproduces_history=True,  # by construction: it is what history shows
    )
    return replace(first, token_ids=first.token_ids[:end], boundaries=cut, text="")


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    length = min(len(one), len(other))
    return next((i for i in range(length) if one[i] != other[i]), length)
