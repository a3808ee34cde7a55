"""calibrate: measure the cost model's coefficients on this machine with this model (context-cache COST-4)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ninfer_core.cache.calibration import write_calibration
from ninfer_core.cache.cost import Coefficients, PrefillCost, TransferCost, TransferCosts
from ninfer_core.cache.fitting import Fitted, fit_prefill, fit_transfer
from ninfer_core.engine.cache_options import ContextCacheOptions
from ninfer_core.engine.copy_bench import CopyBench
from ninfer_core.engine.options import EngineOptions
from ninfer_core.engine.prefill_bench import PrefillBench
from ninfer_core.engine.startup import start_up
from ninfer_core.engine.stopwatch import Stopwatch, WallClock

MOST_TRANSFER_RESIDUAL, MOST_PREFILL_RESIDUAL = 0.6, 0.25
"""Worse fits are not kept: the generic coefficients order choices better than those of a machine that was busy with
something else. Copies are allowed more: a run of pages counts as one operation however many pages it has."""


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """What was measured, with the root mean square of the relative errors of each fit.

    Attributes:
        hardware, signature: the keys that the coefficients hold for.
    """

    hardware: str
    signature: str
    to_host: Fitted[TransferCost]
    to_device: Fitted[TransferCost]
    on_device: Fitted[TransferCost]
    prefill: Fitted[PrefillCost]

    @property
    def coefficients(self) -> Coefficients:
        """What is worth keeping."""
        transfers = TransferCosts(self.to_host.cost, self.to_device.cost, self.on_device.cost)
        prefills = {self.hardware: {self.signature: self.prefill.cost}}
        return Coefficients(
            {self.hardware: transfers} if self.transfer_residual <= MOST_TRANSFER_RESIDUAL else {},
            prefills if self.prefill.residual <= MOST_PREFILL_RESIDUAL else {},
        )

    @property
    def transfer_residual(self) -> float:
        """The worst direction's."""
        return max(self.to_host.residual, self.to_device.residual, self.on_device.residual)


def calibrate(options: EngineOptions, stopwatch: Stopwatch | None = None) -> CalibrationReport:
    """Load the model, time copies and prefill, fit the coefficients and store those that are worth it in
    options.calibration if that is set; the next Engine with that option uses them. Takes seconds with a small model
    and about a minute with a large one, on a machine that does nothing else.

    Args:
        stopwatch: what times the work; None is the wall clock.

    Raises:
        UsageError, ModelError, CapacityError: as `Engine`.
        CalibrationError: too few timings (a very short context), or the file cannot be written.
    """
    alone = replace(options, max_concurrency=1, cache=ContextCacheOptions(enabled=False))
    parts = start_up(alone)
    layout, device = parts.program.model.layout, parts.program.model.device
    clock = stopwatch or WallClock(device)
    copies = CopyBench(layout, device).measure(clock)
    report = CalibrationReport(
        hardware=parts.hardware,
        signature=parts.signature,
        to_host=fit_transfer(copies.to_host),
        to_device=fit_transfer(copies.to_device),
        # Without attention there are no pages, and nothing is ever copied on the device: any price will do.
        on_device=fit_transfer(copies.on_device or copies.to_host),
        prefill=fit_prefill(PrefillBench(parts.program, parts.info.max_context).measure(clock)),
    )
    if options.calibration is not None:
        write_calibration(options.calibration, report.coefficients)
    return report
