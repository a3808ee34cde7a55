"""Delivery: what a row's token means for its caller, and the events that say so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ninfer_core.contract.cache_table import AxisUse
from ninfer_core.engine.active import ActiveRequest
from ninfer_core.engine.events import Finished, FinishReason, ReasoningDelta, TextDelta
from ninfer_core.engine.outcome import completion
from ninfer_core.errors import ReplyError
from ninfer_core.frontend.output import Preview
from ninfer_core.program.execution.pending import PendingRow


def preview(request: ActiveRequest, row: PendingRow) -> Preview | None:
    """What the drawn token would change; None without one. Raises ReplyError for a row that could not draw."""
    if row.error is not None:
        raise ReplyError(f"{row.error}: try --dtype float32; if it stays, the weights may be damaged")
    return None if row.token is None else request.output.preview(row.token)


def deliver(request: ActiveRequest, token: int, shown: Preview) -> None:
    """A token was accepted: it joins the output, and its text goes to the caller."""
    request.output.commit(shown)
    request.token_ids.append(token)
    _show(request, shown)
    request.reasoning_tokens += request.output.in_reasoning


def tell_end(
    request: ActiveRequest,
    reason: FinishReason,
    error: BaseException | None,
    axes: Callable[[], tuple[AxisUse, ...]] = tuple,
) -> None:
    """The last events. Trouble with the text is the request's own: the caller hears of its end in any case."""
    try:
        _show(request, request.output.flush())
        result = completion(request, reason, error)
    except BaseException as trouble:
        result = completion(request, FinishReason.ERROR, error or trouble, text="")
    held: tuple[AxisUse, ...] = ()
    with suppress(Exception):  # figures for people: they must never cost the caller its end
        held = axes()
    request.channel.put(Finished(result, held))


def _show(request: ActiveRequest, shown: Preview) -> None:
    if shown.reasoning_delta:
        request.channel.put(ReasoningDelta(shown.reasoning_delta))
    if shown.text_delta:
        request.channel.put(TextDelta(shown.text_delta))
