"""Private recovery points of a request: rewrite checkpoints and anchors (context-cache DEF-3, CAN-5, CAN-6, CAN-7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.contract.statistics import SourceKind

ENDPOINT_ANCHOR_DISTANCE = 1024
"""CAN-7: an endpoint so many tokens above the owner's anchors gets one even when no slot is spare."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A recovery point that a request would like to leave.

    Attributes:
        spare: only where it degrades nothing else.
        by_coverage: when the anchors' places are taken, the one that covers least gives way; else the shallowest.
    """

    frontier: Frontier
    kind: SourceKind
    spare: bool = False
    by_coverage: bool = False

    @property
    def rewrite(self) -> bool:
        """Whether it is a rewrite checkpoint of the present turn, which takes no anchor's place."""
        return self.kind is not SourceKind.LONG_ANCHOR


def wishes(prompt: PreparedPrompt, intent: CacheIntent, limits: CacheLimits) -> tuple[Wish, ...]:
    """The recovery points of a prompt, ascending, one per frontier. Rewrite checkpoints come before anchors.

    What the next request most likely starts from may degrade what is worth less: where the reply is generated again
    or closed into history, and where the last message is edited. Anchors deeper in history take spare room only.
    """
    found: dict[Frontier, Wish] = {}

    def add(frontier: Frontier, kind: SourceKind, *, spare: bool) -> None:
        if 0 < frontier <= len(prompt):
            found.setdefault(frontier, Wish(frontier, kind, spare))

    bounds = prompt.boundaries
    if bounds is not None:
        g, t = bounds.generation_opener, bounds.turn_closure
        if not bounds.reproduces_history:
            add(t, SourceKind.TURN_CLOSURE, spare=False)
        add(g, SourceKind.RESPONSE_REPLAY, spare=False)
        inside = [end for end in bounds.message_ends if 0 < end < g]
        for end in inside[-limits.automatic_anchors :] if limits.automatic_anchors else ():
            add(end, SourceKind.LONG_ANCHOR, spare=end != inside[-1])
    elif intent.anchor_prompt_end and len(prompt) > 1:
        add(Frontier(len(prompt) - 1), SourceKind.LONG_ANCHOR, spare=True)
    return tuple(found[frontier] for frontier in sorted(found))


def shallowest(anchors: Sequence[int]) -> int:
    """CAN-5: which of the anchors an automatic one replaces."""
    return min(anchors)


def select_long_anchor_replacement(anchors: Sequence[int], end: int) -> int:
    """CAN-7: the anchor whose loss costs least coverage.

    Without anchor a, whoever leaves the path in [a, next) starts from the one before: a - before tokens more. So the
    loss is that distance times the length of the stretch.

    Args:
        anchors: their frontiers, ascending, the one to be added included.
        end: where the path ends.
    """
    edges = [0, *anchors, max(end, anchors[-1] + 1)]
    losses = [(edges[i] - edges[i - 1]) * (edges[i + 1] - edges[i]) for i in range(1, len(edges) - 1)]
    return anchors[losses.index(min(losses))]
