"""The context cache for people and for --json: its table, the fate of a request's tokens, and a verification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ninfer_cli.result import reuse_line
from ninfer_cli.wording import counted
from ninfer_core import size_text

if TYPE_CHECKING:
    from ninfer_core import AxisUse, CacheTable, Completion, OwnerRow, Verification


def use_text(axes: Sequence[AxisUse]) -> str:
    """How full the cache is on the device and in main memory, by its fullest axis there; or nothing."""
    parts = []
    for place in ("Device", "Host"):
        shares = [axis.used / axis.capacity for axis in axes if axis.capacity and axis.name.startswith(place)]
        if shares:
            parts.append(f"{place} {max(shares):.0%}")
    return f"cache: {', '.join(parts)}" if parts else ""


# --- the table ------------------------------------------------------------------------------------------------------
def table_text(table: CacheTable) -> str:
    lines = []
    for axis in table.axes:
        if axis.capacity:
            numbers = [axis.used, axis.reserved, axis.capacity]
            words = [size_text(n) for n in numbers] if axis.unit == "bytes" else [str(n) for n in numbers]
            unit = "" if axis.unit == "bytes" else f" {axis.unit}"
            lines.append(f"{axis.name}: {words[0]} used ({words[1]} reserved) of {words[2]}{unit}")
    used, cells = table.private_cells
    shared, shared_cells = table.shared_cells
    lines.append(f"continuations: {used} of {cells}, shared prefixes: {shared} of {shared_cells}")
    return "\n".join([*lines, *map(_owner_line, table.owners)])


def _owner_line(row: OwnerRow) -> str:
    points = " ".join(f"{c.kind.value}@{c.frontier}:{c.placement.value}" for c in row.checkpoints)
    ago = f"used {counted(row.age, 'request')} ago" if row.age else "used by the last request"
    age = "running" if row.age is None else ago
    bytes_ = f"{size_text(row.exclusive_bytes)} alone, {size_text(row.shared_bytes)} shared"
    notes = f"{counted(row.hits, 'hit')}, {age}, {row.retention}{', leased' if row.leased else ''}"
    return f"{row.kind} {row.owner}: {points or 'no checkpoint yet'} · {bytes_} · {notes}"


def table_json(table: CacheTable) -> dict[str, Any]:
    return {
        "axes": [
            {"name": a.name, "unit": a.unit, "used": a.used, "reserved": a.reserved, "capacity": a.capacity}
            for a in table.axes
        ],
        "private_cells": {"used": table.private_cells[0], "capacity": table.private_cells[1]},
        "shared_cells": {"used": table.shared_cells[0], "capacity": table.shared_cells[1]},
        "owners": [
            {
                "owner": int(row.owner),
                "kind": row.kind,
                "checkpoints": [
                    {"kind": c.kind.value, "frontier": c.frontier, "placement": c.placement.value}
                    for c in row.checkpoints
                ],
                "exclusive_bytes": row.exclusive_bytes,
                "shared_bytes": row.shared_bytes,
                "hits": row.hits,
                "age": row.age,
                "retention": row.retention,
                "leased": row.leased,
            }
            for row in table.owners
        ],
    }


# --- one request ----------------------------------------------------------------------------------------------------
def statistics_lines(completion: Completion, *, verbose: bool) -> list[str]:
    """What --stats says of a request: a line, and with -v the fate of every token."""
    return [reuse_line(completion), *(why_text(completion).split("\n") if verbose else ())]


def why_text(completion: Completion) -> str:
    """Every token's fate: reused from what, or computed again and why; and what was kept."""
    statistics = completion.statistics
    reuse, total = statistics.reuse, statistics.usage.prompt_tokens
    lines = [f"{counted(total, 'prompt token')}, {reuse.frontier} reused, {statistics.usage.prefill_tokens} computed"]
    width = len(str(total))
    if reuse.frontier:
        where = f"{reuse.source.value} @ {reuse.placement.value}, {reuse.operation.value}"
        lines.append(f"  {0:>{width}}..{reuse.frontier:<{width}}  reused: {where}")
    for miss in reuse.misses:
        lines.append(f"  {miss.start:>{width}}..{miss.end:<{width}}  {miss.reason.value}: {miss.detail}")
    for capture in statistics.captures:
        reason = f" ({capture.reason})" if capture.reason else ""
        lines.append(f"  kept {capture.kind.value} @ {capture.frontier}: {capture.outcome}{reason}")
    if statistics.transfer.bytes:
        lines.append(f"  copied {size_text(statistics.transfer.bytes)} in {statistics.transfer.ms:.1f} ms")
    planning = statistics.planning
    lines.append(f"  planned in {planning.ms:.1f} ms: {counted(planning.targets, 'target')}, {planning.stop}")
    return "\n".join(lines)


def verification_text(found: Verification) -> str:
    if not found.done:
        return found.detail
    words = {True: "equal", False: "DIFFERENT", None: "not compared"}
    parts = [f"state {words[found.state]}", f"keys and values {words[found.kv]}", f"tokens {words[found.tokens]}"]
    return "replayed cold: " + ", ".join(parts) + (f" ({found.detail})" if found.detail else "")


def verification_json(found: Verification) -> dict[str, Any]:
    return {"state": found.state, "kv": found.kv, "tokens": found.tokens, "detail": found.detail or None}
