"""The garbage collector of a process that serves: it shall not hold up a reply."""

from __future__ import annotations

import gc

YOUNG = 20_000
"""Objects that may come to stay before the collector looks at them. An admission makes some thousands that go by
themselves when it ends: with the default of 700 it would be interrupted several times, at worst for milliseconds."""


def settle() -> None:
    """Call it when everything that stays for the life of the process is there: it is not looked at any more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)
