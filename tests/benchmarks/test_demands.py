"""Exit statuses of the benchmarks: a demand that is not met is not only printed."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import pytest

from tests.benchmarks import assess, planning, state_copy
from tests.benchmarks.demands import EPILOG, Demand, judged, percentile

NAMES = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if "return judged(" in path.read_text(encoding="utf-8") and path.name != Path(__file__).name
)


@pytest.mark.parametrize(
    ("figure", "least", "met"),
    [(5.0, False, True), (5.1, False, False), (5.0, True, True), (4.9, True, False), (math.nan, False, False)],
)
def test_a_demand_is_met_up_to_its_bound(
    capsys: pytest.CaptureFixture[str], figure: float, least: bool, met: bool
) -> None:
    demand = Demand("p99", figure, 5.0, " ms", least)
    assert demand.met is met
    assert judged([demand]) == (0 if met else 1)
    side = "at least" if least else "at most"
    assert capsys.readouterr().out == f"{'met' if met else 'NOT met'}: p99: {figure:.4g} ms, demanded: {side} 5 ms\n"


def test_one_that_is_not_met_decides_and_comes_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged([Demand("a", 2, 1), Demand("b", 1, 1)]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("NOT met: a")
    assert judged([]) == 1, "nothing was measured"


def test_percentiles_are_nearest_ranks() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1)] == [50, 99, 100]
    assert percentile([3.0], 0.99) == 3 and math.isnan(percentile([], 0.5))


@pytest.mark.parametrize("name", NAMES)
def test_help_tells_demands_and_exit_status(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"tests.benchmarks.{name}")
    for words, status in ((["--help"], 0), (["--no-such-option"], 2)):
        with pytest.raises(SystemExit) as ended:
            module.main(words)
        assert ended.value.code == status
    told = capsys.readouterr().out
    assert EPILOG in told and "Demanded" in told


def test_all_that_demand_something_judge_it() -> None:
    assert len(NAMES) >= 9
    for path in Path(__file__).parent.glob("*.py"):
        if "\nif __name__ == " in (text := path.read_text(encoding="utf-8")) and "Demanded" in text:
            assert path.stem in NAMES, f"{path.name} states a demand without an exit status"


def test_a_benchmark_ends_with_the_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The same short runs, with bounds that everything keeps and with some that nothing does."""
    for easy in (True, False):
        bound = math.inf if easy else 0.0
        monkeypatch.setattr(assess, "MEDIAN_US", bound)
        monkeypatch.setattr(assess, "P99_US", math.inf)
        monkeypatch.setattr(state_copy, "MOST", bound)
        monkeypatch.setattr(planning, "MOST_MS", {full: {0.5: bound} for full in (False, True)})
        assert assess.main(["--rounds", "50"]) == (not easy)
        assert state_copy.main(["--pairs", "1"]) == (not easy)
        assert planning.main(["--rounds", "3", "--pages", "512"]) == (not easy)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("NOT met: ") for line in lines) == 1 + 2 + 2
