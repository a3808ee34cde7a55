"""Follow requests from submission to their Completions, showing what comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_core import Finished, Prefilled, ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from ninfer_cli.reply_view import ReplyView
    from ninfer_core import AxisUse, Completion, Event, RequestHandle

POLL_SECONDS = 0.05
"""How long a signal may wait before it is seen."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What came of requests, in their order. axes: how full the cache was when the last of them had ended."""

    completions: tuple[Completion, ...]
    axes: tuple[AxisUse, ...]


def follow(handle: RequestHandle, view: ReplyView, wants_end: Callable[[], bool]) -> Completion:
    """Show events until Finished. wants_end is asked between events; once true the request is interrupted.

    If showing fails (a closed pipe), the request is cancelled before the error goes on.
    """
    return follow_all([handle], view, wants_end).completions[0]


def follow_all(
    handles: Sequence[RequestHandle],
    view: ReplyView,
    wants_end: Callable[[], bool],
    progress: Callable[[Mapping[int, str]], None] | None = None,
) -> Followed:
    """Follow requests that run at the same time: the first is shown, of the others how far they are.

    Args:
        wants_end: once true, all of them are interrupted.
        progress: told, for every request but the first, what to say of it; nothing if there is one only.
    """
    done: dict[int, Finished] = {}
    others = dict.fromkeys(range(1, len(handles)), "waiting")
    lengths = dict.fromkeys(others, 0)
    ending = False
    try:
        while len(done) < len(handles):
            if not ending and wants_end():
                for handle in handles:
                    handle.interrupt()
                ending = True
            wait = POLL_SECONDS
            for i, handle in enumerate(handles):
                if i in done:
                    continue
                event = handle.next_event(wait)
                wait = 0.0  # one is waited for; what the others have is taken as it comes
                if i == 0:
                    _show(event, view)
                elif event is not None:
                    others[i] = _progress_of(event, lengths, i)
                if isinstance(event, Finished):
                    done[i] = event
            if progress is not None and others:
                progress(others)
    except BaseException:
        for handle in handles:
            handle.cancel()
        raise
    *_, last = done.values()
    return Followed(tuple(done[i].completion for i in range(len(handles))), last.axes)


def _show(event: Event | None, view: ReplyView) -> None:
    if isinstance(event, TextDelta):
        view.text(event.text)
    elif isinstance(event, ReasoningDelta):
        view.reasoning(event.text)
    elif isinstance(event, Prefilled):
        view.prefilled(event.done, event.total)
    elif isinstance(event, Finished):
        view.finish()


def _progress_of(event: Event, lengths: dict[int, int], i: int) -> str:
    if isinstance(event, TextDelta | ReasoningDelta):
        lengths[i] += len(event.text)
    if isinstance(event, Finished):
        return "done"
    return f"{lengths[i]} characters" if lengths[i] else "reading"
