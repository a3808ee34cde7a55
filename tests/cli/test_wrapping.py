"""Lines in a window: every word is there, none is broken, wide glyphs count as two cells."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ninfer_cli.output import Stream
from ninfer_cli.wrapping import LEAST, wrapped

REUSE = "reused 43/78 tok · TurnClosure @ device · fork · prefill 35 tok · TTFT 41 ms · 135.2 tok/s · plan 0.9 ms"


def test_items_stay_whole() -> None:
    assert wrapped(REUSE, 80).split("\n") == [
        "reused 43/78 tok · TurnClosure @ device · fork · prefill 35 tok · TTFT 41 ms ·",
        "  135.2 tok/s · plan 0.9 ms",
    ]
    assert wrapped(REUSE, 200) == REUSE


@pytest.mark.parametrize(
    ("line", "below"),
    [
        ("| 13    turn 2: My name is Maria. -> Nice to meet you!  [home]  (device 70/79)", "turn"),
        ("   3  turn 2: My name is Maria. -> Nice to meet you!  [home]  (device 70/79)", "turn"),
        ("  23..35  no_checkpoint: nothing was kept within these tokens", "no_"),
        ("/undo [N]  go back to before the last N messages of the conversation", "go back"),
        ("ninfer: there is no such thing as that: try something else with it", "nfer"),
    ],
)
def test_what_goes_on_stands_below_where_it_began(line: str, below: str) -> None:
    first, *rest = wrapped(line, 40).split("\n")
    margin = first.index(below)
    assert rest and all(row[:margin].isspace() and not row[margin].isspace() for row in rest)


def test_wide_glyphs_are_broken_where_they_must() -> None:
    rows = wrapped("  1  turn 1: \u4f60\u597d\u4e16\u754c " + "\u4f60\u597d" * 20 + " end", 30).split("\n")
    assert all(cell_len(row) <= 29 for row in rows) and cell_len(rows[1]) >= 28
    assert "".join(rows).replace(" ", "") == "1turn1:\u4f60\u597d\u4e16\u754c" + "\u4f60\u597d" * 20 + "end"


def test_a_path_wider_than_the_window_can_be_copied() -> None:
    path = "/home/" + "x" * 60
    assert path in wrapped(f"ninfer: kept in {path}: and so on", 40).split("\n")[1]


@given(st.lists(st.text("ab\u4e16\u00e9·/[]*|-", min_size=1, max_size=12)), st.integers(0, 4), st.integers(5, 60))
def test_nothing_is_lost_and_nothing_is_too_wide(words: list[str], indent: int, columns: int) -> None:
    line = " " * indent + " ".join(words)
    rows = wrapped(line, columns).split("\n")
    assert re.sub(r"\s", "", "".join(rows)) == re.sub(r"\s", "", line)
    assert all(cell_len(row) <= max(columns - 1, LEAST) or len(row.split()) == 1 for row in rows)


def test_only_a_terminal_is_a_window() -> None:
    import io

    assert Stream(io.StringIO(), terminal=False, styled=False).fitted(REUSE) == REUSE


@pytest.mark.parametrize("mark", ["\u200b", "\u0301", "\ufe0f", "\t\u200d"])
def test_a_word_of_no_width_stays(mark: str) -> None:
    line = f"{mark} {'word ' * 10}{mark} end"
    assert "".join(wrapped(line, 20).split()) == "".join(line.split())


def test_spaces_at_an_end_are_no_work() -> None:
    """A million of them took the square of that in steps."""
    spaces = " " * 1_000_000
    assert wrapped(f"{'word ' * 10}{spaces}", 40).split() == ["word"] * 10
    assert wrapped(spaces, 40) == ""
