"""Follow one request from submission to its Completion, showing what comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ninfer_cli.reply_view import ReplyView
    from ninfer_core import Completion, RequestHandle

POLL_SECONDS = 0.05
"""How long a signal may wait before it is seen."""


def follow(handle: RequestHandle, view: ReplyView, wants_end: Callable[[], bool]) -> Completion:
    """Show events until Finished. wants_end is asked between events; once true the request is interrupted.

    If showing fails (a closed pipe), the request is cancelled before the error goes on.
    """
    from ninfer_core import Finished, Prefilled, ReasoningDelta, TextDelta

    ending = False
    try:
        while True:
            if not ending and wants_end():
                handle.interrupt()
                ending = True
            event = handle.next_event(POLL_SECONDS)
            if isinstance(event, TextDelta):
                view.text(event.text)
            elif isinstance(event, ReasoningDelta):
                view.reasoning(event.text)
            elif isinstance(event, Prefilled):
                view.prefilled(event.done, event.total)
            elif isinstance(event, Finished):
                view.finish()
                return event.completion
    except BaseException:
        handle.cancel()
        raise
