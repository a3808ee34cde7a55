"""Eight callers at once for a few seconds; `python -m tests.engine.stress` does it for as long as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.stress import stress


@pytest.mark.req("PRO-2", "PRO-4", "INV-6", "INV-8", "INV-15")
@pytest.mark.parametrize(("lanes", "seconds"), [(1, 4), (8, 6)])
def test_eight_callers_get_what_a_cold_run_gives(tiny_directory: Path, lanes: int, seconds: int) -> None:
    figures = stress(tiny_directory, seconds, 1, lanes)
    assert figures.problems == []
    assert figures.counts["length"] >= 8 and figures.reused_tokens > 0, "nothing was proved"
    assert figures.growth < 48 << 20, "memory grows"
    assert max(figures.rows) == 1 if lanes == 1 else max(figures.rows) > 1
