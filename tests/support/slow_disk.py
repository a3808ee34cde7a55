"""`python -m tests.support.slow_disk DIRECTORY ARGUMENT...`: the real program, on a disk that takes as long as told.

Every fsync makes DIRECTORY/saving and waits for DIRECTORY/go, unless DIRECTORY/fast is there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ninfer_cli.app import main


def slow_down(directory: Path) -> None:
    real = os.fsync

    def fsync(handle: int) -> None:
        if not (directory / "fast").exists():
            (directory / "saving").touch()
            while not (directory / "go").exists():
                time.sleep(0.01)
        real(handle)

    os.fsync = fsync


if __name__ == "__main__":
    slow_down(Path(sys.argv[1]))
    main(sys.argv[2:])
