"""Settings and fixtures of every test. The settings stand before anything imports torch: tiny models gain nothing from
a second thread, and idle OpenMP threads that spin slow everything else on a busy machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.ninfer_process import Ninfer

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture
def ninfer(tmp_path: Path) -> Ninfer:
    """The command line in a process of its own, with an empty home."""
    return Ninfer(tmp_path)
