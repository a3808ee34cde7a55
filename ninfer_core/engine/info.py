"""EngineInfo: what start-up resolved, for people (-v, toolbar) and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ninfer_core.errors import context_options


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
        cache: whether anything is kept between requests.
        device_state_slots, host_state_slots: StateImages beside one per lane, on the device and in main memory.
        host_kv_capacity: bytes of the KV arena in main memory.
        max_private_continuations, max_shared_prefixes, max_long_anchors: places in the catalogs.
        cost_model: where the coefficients that order choices come from.
        notices: what start-up has to say, one line each.
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
    cache: bool = False
    device_state_slots: int = 0
    host_state_slots: int = 0
    host_kv_capacity: int = 0
    max_private_continuations: int = 0
    max_shared_prefixes: int = 0
    max_long_anchors: int = 0
    cost_model: str = ""
    notices: tuple[str, ...] = ()

    @property
    def context_options(self) -> str:
        """The options that make a context longer here."""
        return context_options(self.max_context, self.kv_capacity)
