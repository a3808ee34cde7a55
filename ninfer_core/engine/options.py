"""EngineOptions: everything that is fixed when an Engine starts. Checked once, in words that name the option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ninfer_core.contract.progress import LoadProgress
from ninfer_core.engine.cache_options import ContextCacheOptions
from ninfer_core.errors import UsageError

MAX_CONCURRENCY = 8
"""PRO-1: the largest number of lanes."""

DEFAULT_MAX_CONTEXT = 32_768


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Start-up options of an Engine.

    Attributes:
        model: a checkpoint directory, or None for the bundled demo model.
        device: "auto", "cpu", "cuda" or "cuda:N".
        dtype: "auto", "float32", "bfloat16" or "float16". Auto is the checkpoint's where the device multiplies it
            natively, else float32 if it fits.
        max_context: tokens of the longest sequence, prompt and output together; None is the least of the model's,
            32,768 and what fits.
        max_concurrency: lanes, 1..8.
        kv_capacity: tokens that the Device KV pool holds; None gives every lane a whole context where that fits in
            memory, else what fits (never less than one context).
        prefill_chunk: most tokens that one prefill step computes before running rows decode again.
        queue_limit: requests that may wait; one more is refused with QueueFull.
        cache: the context cache's capacities.
        calibration: the file of measured cost coefficients (`calibrate` writes it), or None for the generic ones. A
            bad file costs a notice, never the start.
        progress: called from the loading thread with each LoadProgress, or None.
        sessions: states will be saved or restored: what every session needs of the weights (their fingerprint) is taken
            beside loading, else when it is first needed.

    Raises:
        UsageError: a value outside its range.
    """

    model: Path | str | None = None
    device: str = "auto"
    dtype: str = "auto"
    max_context: int | None = None
    max_concurrency: int = 1
    kv_capacity: int | None = None
    prefill_chunk: int = 512
    queue_limit: int = 64
    cache: ContextCacheOptions = field(default_factory=ContextCacheOptions)
    calibration: Path | None = None
    progress: Callable[[LoadProgress], None] | None = None
    sessions: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.max_concurrency <= MAX_CONCURRENCY:
            raise UsageError(f"max-concurrency is {self.max_concurrency}: it must be 1 to {MAX_CONCURRENCY}")
        if self.dtype not in ("auto", "float32", "bfloat16", "float16"):
            raise UsageError(f"dtype is {self.dtype!r}: use auto, float32, bfloat16 or float16")
        kind, _, index = self.device.partition(":")
        if kind not in ("auto", "cpu", "cuda") or (index and (kind != "cuda" or not index.isdigit())):
            raise UsageError(f"device is {self.device!r}: use auto, cpu, cuda or cuda:N")
        for name in ("max_context", "kv_capacity"):
            value = getattr(self, name)
            if value is not None and value < 2:
                raise UsageError(f"{name.replace('_', '-')} is {value}: it must be at least 2 tokens")
        if self.prefill_chunk < 1:
            raise UsageError(f"prefill-chunk is {self.prefill_chunk}: it must be at least 1")
        if self.queue_limit < 1:
            raise UsageError(f"queue-limit is {self.queue_limit}: it must be at least 1")
        self.cache.check_covers(self.max_concurrency)
