"""EngineInfo: what start-up resolved, for people (-v, toolbar) and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """
    Attributes:
        model: the name that people know the checkpoint by: `owner/name` of the hub, or its directory's.
        model_directory: where it was loaded from.
        device, dtype: as torch prints them, without the prefix.
        threads: CPU threads that torch uses for one operation.
        max_context: tokens of the longest sequence.
        max_concurrency: lanes.
        kv_capacity: tokens of the Device KV pool.
        weight_bytes, kv_bytes, state_bytes: memory of weights and pools.
        vocab_size: rows of the head.
        has_thinking_switch: the template reacts to enable_thinking.
        load_report: one line: tensors loaded and skipped.
    """

    model: str
    model_directory: Path
    device: str
    dtype: str
    threads: int
    max_context: int
    max_concurrency: int
    kv_capacity: int
    weight_bytes: int
    kv_bytes: int
    state_bytes: int
    vocab_size: int
    has_thinking_switch: bool
    load_report: str
