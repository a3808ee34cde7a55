"""The one place where a device is turned into a backend."""

from __future__ import annotations

import torch

from ninfer_core.kernels.interface import Kernels
from ninfer_core.kernels.reference import Reference
from ninfer_core.kernels.torch_cpu.backend import TorchCpu


def select(device: torch.device | str) -> Kernels:
    """The fastest backend for a device: torch_cpu on the CPU, the plain reference anywhere else."""
    return TorchCpu() if torch.device(device).type == "cpu" else Reference()
