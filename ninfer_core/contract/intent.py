"""CacheIntent: what one request may do with the context cache, fixed before it is queued (context-cache REQ-1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ninfer_core.contract.cache_limits import EXPLICIT_MARKERS
from ninfer_core.contract.ids import Frontier
from ninfer_core.errors import UsageError


class CacheMode(Enum):
    """REQ-1: what a request may do with the context cache."""

    READ_WRITE = "read_write"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class CacheIntent:
    """
    Attributes:
        mode: REQ-1. Disabled starts from root and leaves nothing.
        session: the conversation that the request belongs to, or None. It finds and binds, and proves nothing (RET-3).
        sibling: other requests start from the same place at the same time: no source is consumed (CAN-8).
        publishes: whether the request leaves a continuation behind when it finishes.
        markers: explicit content boundaries that other requests will share, at most four (CAN-3).
        share_prompt: whether the whole prompt may become a shared prefix: asked for, refused, or (None) left to what is
            observed.
        anchor_prompt_end: keep a recovery point one token before a raw prompt's end (CAN-6).

    Raises:
        UsageError: too many markers, or one that is no frontier.
    """

    mode: CacheMode = CacheMode.READ_WRITE
    session: str | None = None
    sibling: bool = False
    publishes: bool = True
    markers: tuple[Frontier, ...] = ()
    share_prompt: bool | None = None
    anchor_prompt_end: bool = False

    def __post_init__(self) -> None:
        if len(self.markers) > EXPLICIT_MARKERS:
            raise UsageError(f"{len(self.markers)} markers are set: a request takes at most {EXPLICIT_MARKERS}")
        if any(marker < 1 for marker in self.markers):
            raise UsageError("a marker is a frontier behind at least one token")

    @property
    def writes(self) -> bool:
        return self.mode is CacheMode.READ_WRITE and self.publishes
