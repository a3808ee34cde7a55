"""The console entry point, and `python -m ninfer_cli`. Imports nothing of weight: Ctrl-C is to find the try at once."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Load the program and run it. Ctrl-C before the program minds it itself ends silently, too."""
    try:
        from ninfer_cli.app import main as program

        program()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        # Python ends by the signal, whatever the status, if Ctrl-C struck in a text that was executed last (dataclasses
        # are made so): now another one is the last.
        exec("")


if __name__ == "__main__":
    main()
