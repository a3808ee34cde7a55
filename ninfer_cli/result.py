"""A Completion as a JSON object and as a line for people. Every key is always there; what does not apply is null."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_cli.wording import counted

if TYPE_CHECKING:
    from ninfer_cli.settings import Settings
    from ninfer_core import Completion, EngineInfo

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a reply stands in its conversation; counting from 1."""

    turn: int = 1
    sibling: int = 1
    siblings: int = 1
    name: str | None = None


def result_object(completion: Completion, model: str, branch: Branch, *, with_tokens: bool) -> dict[str, Any]:
    statistics = completion.statistics
    usage, timings = statistics.usage, statistics.timings
    calls = completion.tool_calls
    return {
        "version": SCHEMA_VERSION,
        "model": model,
        "text": completion.text,
        "reasoning": completion.reasoning,
        "tool_calls": None if calls is None else [{"name": c.name, "arguments": dict(c.arguments)} for c in calls],
        "finish_reason": completion.finish_reason.value,
        "error": completion.error,
        "seed": completion.seed,
        "prompt_token_ids": list(completion.prompt_token_ids) if with_tokens else None,
        "token_ids": list(completion.token_ids) if with_tokens else None,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "reused_tokens": usage.reused_tokens,
            "prefill_tokens": usage.prefill_tokens,
            "completion_tokens": usage.completion_tokens,
        },
        "reuse": reuse_json(completion),
        "transfer": {"bytes": statistics.transfer.bytes, "ms": finite(statistics.transfer.ms)},
        "planning": {
            "ms": finite(statistics.planning.ms),
            "stop": statistics.planning.stop,
            "targets": statistics.planning.targets,
        },
        "captures": [
            {"kind": c.kind.value, "frontier": c.frontier, "outcome": c.outcome, "reason": c.reason}
            for c in statistics.captures
        ],
        "timings": {
            "ttft_ms": finite(timings.ttft_ms),
            "prefill_ms": finite(timings.prefill_ms),
            "decode_tokens_per_s": finite(timings.decode_tokens_per_s),
        },
        "branch": branch_json(branch),
    }


def branch_json(branch: Branch) -> dict[str, Any]:
    return {"turn": branch.turn, "sibling": branch.sibling, "siblings": branch.siblings, "name": branch.name}


def reuse_json(completion: Completion) -> dict[str, Any]:
    reuse = completion.statistics.reuse
    return {
        "source": reuse.source.value,
        "frontier": reuse.frontier,
        "placement": reuse.placement.value,
        "operation": reuse.operation.value,
        "misses": [
            {"from": miss.start, "to": miss.end, "reason": miss.reason.value, "detail": miss.detail}
            for miss in reuse.misses
        ],
    }


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def json_line(value: object, *, terminal: bool = False) -> str:
    """One line of strict JSON; for a terminal everything beyond ASCII is escaped, bidi controls with it.

    Lone surrogates become escapes in the stream's error handler, which JSON reads back.
    """
    return json.dumps(value, ensure_ascii=terminal, allow_nan=False) + "\n"


def notices(completion: Completion, settings: Settings, info: EngineInfo, shorter: str) -> list[str]:
    """Lines that a person must not miss beside the reply: its tool calls, which are no part of its text, and what
    went not quite right. shorter says how a context that is full needs less."""
    calls = () if settings.json else completion.tool_calls or ()
    lines = [f"tool call: {call.name} {json.dumps(dict(call.arguments), ensure_ascii=False)}" for call in calls]
    if completion.notice:
        lines.append(completion.notice)
    if completion.finish_reason.value == "length":
        usage = completion.statistics.usage
        whole = usage.prompt_tokens + usage.completion_tokens
        if usage.completion_tokens >= settings.max_new:
            lines.append(f"the reply was cut at {counted(usage.completion_tokens, 'token')}: raise --max-new")
        elif settings.kv_lease_growth and whole < info.max_context:
            cut = f"no KV pages were free at {counted(whole, 'token')} and the reply was cut"
            lines.append(f"{cut}: raise --kv-capacity, or leave out --kv-lease-growth")
        else:
            advice = f"raise {info.context_options} or {shorter}"
            lines.append(f"the context is full at {counted(whole, 'token')} and the reply was cut: {advice}")
    return lines


def reuse_line(completion: Completion) -> str:
    """What the request reused and how fast it was, for people."""
    statistics = completion.statistics
    usage, reuse, timings = statistics.usage, statistics.reuse, statistics.timings
    parts = [f"reused {usage.reused_tokens}/{usage.prompt_tokens} tok"]
    if usage.reused_tokens:
        parts += [f"{reuse.source.value} @ {reuse.placement.value}", reuse.operation.value]
    else:
        parts.append(reuse.source.value)
    parts.append(f"prefill {usage.prefill_tokens} tok")
    if timings.ttft_ms is not None:
        parts.append(f"TTFT {timings.ttft_ms:.0f} ms")
    if timings.decode_tokens_per_s is not None:
        parts.append(f"{timings.decode_tokens_per_s:.1f} tok/s")
    parts.append(f"plan {statistics.planning.ms:.1f} ms")
    return " · ".join(parts)
