"""Settings and fixtures of every test. The settings stand before anything imports torch: tiny models gain nothing from
a second thread, and idle OpenMP threads that spin slow everything else on a busy machine. Signals are what a terminal
would leave them at: a suite that runs in a shell's background, or under nohup, hands ignored ones to what it starts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.ninfer_process import Ninfer

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def ninfer(tmp_path: Path) -> Ninfer:
    """The command line in a process of its own, with an empty home."""
    return Ninfer(tmp_path)
