"""`ninfer bench --calibrate`: measure, store, and show what was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ninfer_cli.config import calibration_file
from ninfer_cli.starting import engine_options, progress_bar

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.settings import Settings
    from ninfer_core import CalibrationReport


def run_calibration(settings: Settings, streams: Streams) -> int:
    """Print the table on standard output, what was kept on standard error.

    Returns:
        The exit status: 1 if the timings scattered so much that something was not kept.

    Raises:
        UsageError, ModelError, CapacityError, CalibrationError: as `calibrate`.
    """
    path = calibration_file()
    with progress_bar(streams) as progress:
        options = engine_options(settings, streams, progress)
        from ninfer_core import calibrate

        report = calibrate(replace(options, calibration=path))
    streams.out.write(table(report))
    kept = report.coefficients
    if kept.transfers or kept.prefills:
        streams.note(f"kept in {path} for {report.hardware}, the prices of prefill for models of this shape")
    failed = [name for name, found in (("copies", kept.transfers), ("prefill", kept.prefills)) if not found]
    for name in failed:
        streams.warn(f"the timings of {name} scatter too much to be kept: try again when the machine does nothing else")
    return 1 if failed else 0


def table(report: CalibrationReport) -> str:
    """Markdown: one row per kind of work, and how far the fitted prices are from the timings (root mean square)."""
    rows = [("work", "start µs", "each µs", "rate", "residual"), ("---",) * 5]
    for name, words in (("to_host", "copy to host"), ("to_device", "copy to device"), ("on_device", "copy on device")):
        fitted = getattr(report, name)
        cost = fitted.cost
        rate = f"{1 / cost.ns_per_byte:.1f} GB/s" if cost.ns_per_byte else "-"
        rows.append((words, _us(cost.batch_ns), f"{_us(cost.operation_ns)} per copy", rate, _percent(fitted.residual)))
    cost = report.prefill.cost
    pairs = f"{cost.pair_ns:.1f} ns per attention pair"
    each = f"{_us(cost.token_ns)} per token"
    rows.append(("prefill", _us(cost.batch_ns), each, pairs, _percent(report.prefill.residual)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _us(ns: float) -> str:
    return f"{ns / 1e3:,.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
