"""hardware_key: which machine a coefficient was measured on (context-cache COST-4)."""

from __future__ import annotations

import platform
from pathlib import Path

import torch


def hardware_key(device: torch.device) -> str:
    """Device kind and the processor's name; on a CPU also the threads that one operation uses.

    Equal keys mean that coefficients measured on one hold on the other. Nothing in it names a host or a user.
    """
    if device.type == "cuda":
        return f"cuda/{torch.cuda.get_device_name(device)}"
    return f"{device.type}/{_processor()}/{torch.get_num_threads()} threads"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "Hardware")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
