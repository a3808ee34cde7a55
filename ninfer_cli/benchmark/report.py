"""Rows as Markdown, JSON, JSON lines or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

FORMATS = ("md", "json", "jsonl", "csv")


def row_object(
    test: str,
    rates: dict[str, Any] | None,
    ttft: dict[str, Any] | None,
    tokens: tuple[int | None, int | None],
    settings: dict[str, Any],
    machine: dict[str, Any],
) -> dict[str, Any]:
    """One row of the documented form. tokens: reused and prefilled ones of one repetition."""
    return {
        "test": test,
        "tokens_per_s": rates,
        "ttft_ms": ttft,
        "reused_tokens": tokens[0],
        "prefill_tokens": tokens[1],
        "settings": settings,
        "machine": machine,
    }


def formatted(rows: Sequence[dict[str, Any]], form: str) -> str:
    if form == "json":
        return json.dumps(rows, indent=2, allow_nan=False) + "\n"
    if form == "jsonl":
        return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    if form == "csv":
        return _csv(rows)
    return _markdown(rows)


COLUMNS = (
    "implementation",
    "test",
    "batch",
    "tok/s",
    "± tok/s",
    "TTFT ms",
    "in steps",
    "reused",
    "prefill",
    "peak RSS MiB",
    "ratio",
)


def _cells(row: dict[str, Any], ratio: float | None) -> list[str]:
    rates, ttft = row["tokens_per_s"] or {}, row["ttft_ms"] or {}
    peak = row["settings"].get("peak_rss_bytes")
    return [
        str(row["settings"].get("implementation", "ninfer")),
        row["test"],
        _number(row["settings"].get("batch")),
        _number(rates.get("mean")),
        _number(rates.get("std")),
        _number(ttft.get("mean")),
        _number(row["settings"].get("ttft_steps")),
        _number(row["reused_tokens"]),
        _number(row["prefill_tokens"]),
        _number(None if peak is None else peak >> 20),
        "" if ratio is None else f"{ratio:.2f}",
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _ratios(rows: Sequence[dict[str, Any]]) -> list[float | None]:
    """ninfer's rate over the other implementation's, on ninfer's row."""
    others = {
        (row["test"], row["settings"].get("batch")): (row["tokens_per_s"] or {}).get("mean")
        for row in rows
        if row["settings"].get("implementation", "ninfer") != "ninfer"
    }
    found: list[float | None] = []
    for row in rows:
        other = others.get((row["test"], row["settings"].get("batch")))
        own = (row["tokens_per_s"] or {}).get("mean")
        is_own = row["settings"].get("implementation", "ninfer") == "ninfer"
        found.append(own / other if is_own and own and other else None)
    return found


def _table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    return [_cells(row, ratio) for row, ratio in zip(rows, _ratios(rows), strict=True)]


def _markdown(rows: Sequence[dict[str, Any]]) -> str:
    """A table without the columns that no row fills, and a line about model and machine."""
    table = _table(rows)
    used = [i for i, _ in enumerate(COLUMNS) if any(line[i] for line in table)]
    lines = [[COLUMNS[i] for i in used], ["---"] * len(used), *([line[i] for i in used] for line in table)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(used))]
    text = "".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |\n"
        for line in lines
    )
    if not rows:
        return text
    settings, facts = rows[0]["settings"], rows[0]["machine"]
    about = [settings.get("model"), settings.get("dtype"), settings.get("device"), facts.get("cpu")]
    threads = settings.get("threads")
    about += [f"{threads} threads" if threads else f"{facts.get('cores')} cores", f"torch {facts.get('torch')}"]
    return text + "\n" + ", ".join(str(item) for item in about if item) + "\n"


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, "model", "dtype", "device"])
    for row, cells in zip(rows, _table(rows), strict=True):
        writer.writerow([*cells, *(row["settings"].get(key) or "" for key in ("model", "dtype", "device"))])
    return text.getvalue()
