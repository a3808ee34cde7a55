"""The last word of a request: its Completion, whatever way it ended."""

from __future__ import annotations

from ninfer_core.engine.active import ActiveRequest
from ninfer_core.engine.events import Completion, FinishReason
from ninfer_core.errors import NinferError
from ninfer_core.frontend.tools import parse_tool_calls
from ninfer_core.models.memory import is_out_of_memory


def describe(error: BaseException) -> str:
    """One line for people. Our own errors speak for themselves; a foreign one is named."""
    text = " ".join(str(error).split())
    if isinstance(error, NinferError):
        return text
    if is_out_of_memory(error):
        return "out of memory while generating: lower --max-context, --max-concurrency or --kv-capacity"
    name = type(error).__name__
    return f"{name}: {text[:300]}" if text else name


def completion(
    request: ActiveRequest, reason: FinishReason, error: BaseException | None = None, text: str | None = None
) -> Completion:
    """Put the result together.

    Args:
        error: what ended the request, with FinishReason.ERROR.
        text: stands in for the output's text when that is what failed.
    """
    tools, notice = None, None
    answer = request.output.text if text is None else text
    if text is None and error is None:
        parsed = parse_tool_calls(answer, request.request.tools)
        answer, tools, notice = parsed.text, parsed.calls or None, parsed.notice
        if tools and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
    return Completion(
        request_id=request.id,
        text=answer,
        reasoning=request.output.reasoning or None,
        tool_calls=tools,
        notice=notice,
        finish_reason=reason,
        error=None if error is None else describe(error),
        cause=error,
        seed=request.work.sampling.seed,
        prompt_token_ids=request.request.prompt.token_ids,
        token_ids=tuple(request.token_ids),
        statistics=request.statistics(),
    )
