"""Cleaning, Markdown blocks, submissions: no process needed."""

from __future__ import annotations

import io
import itertools
import random

import pytest

from ninfer_cli.cleaning import Cleaner, clean
from ninfer_cli.markdown import Blocks, render
from ninfer_cli.output import Stream, Streams
from ninfer_cli.repl.submission import Command, Say, closed, is_open, read, script


def test_clean_spells_out_what_could_move_or_reorder() -> None:
    assert clean("a\x1b[2J\tb\r\nc\rd\x9b\u202e\u2067é漢🎉") == "a\\x1b[2J\tb\nc\\x0dd\\x9b\\u202e\\u2067é漢🎉"
    assert clean("\ud83d") == "\\ud83d"


def test_a_note_said_once_is_not_repeated_and_a_quiet_one_is_not_said() -> None:
    def said(*, quiet: bool) -> str:
        err = io.StringIO()
        streams = Streams(Stream(io.StringIO(), False, False), Stream(err, False, False), quiet)
        for text in ("one", "two", "one"):
            streams.note_once(text)
        return err.getvalue()

    assert said(quiet=False) == "ninfer: one\nninfer: two\n" and said(quiet=True) == ""


def test_cleaning_does_not_depend_on_the_cuts() -> None:
    text = "one\r\ntwo\rthree\x1b]8;;x\x07\u202e\r\r\n🎉\r"
    rng = random.Random(1)
    for _ in range(200):
        cuts = sorted(rng.sample(range(len(text)), 5))
        cleaner = Cleaner()
        pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
        assert "".join([*map(cleaner.feed, pieces), cleaner.finish()]) == clean(text)
    cleaner = Cleaner()
    assert cleaner.feed("\ud83c") + cleaner.feed("\udf89") + cleaner.finish() == "🎉"


MARKDOWN = (
    "# T\n\npara\nmore\n\n1. a\n\n2. b\n\n   deep\n\nend\n\n```py\nx\n\ny\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
)


def test_blocks_are_the_same_however_the_text_is_cut() -> None:
    expected = [
        "# T",
        "para\nmore",
        "1. a\n\n2. b\n\n   deep",
        "end",
        "```py\nx\n\ny\n```",
        "| a | b |\n|---|---|\n| 1 | 2 |",
    ]
    for size in (1, 2, 7, len(MARKDOWN)):
        blocks = Blocks()
        found = [b for i in range(0, len(MARKDOWN), size) for b in blocks.feed(MARKDOWN[i : i + size])]
        assert found + blocks.finish() == expected


def test_an_open_fence_ends_with_the_text() -> None:
    blocks = Blocks()
    assert blocks.feed("```\na\n\nb") == [] and blocks.growing == "```\na\n\nb"
    assert blocks.finish() == ["```\na\n\nb"]


def test_rendering_has_no_links_and_no_rich_markup() -> None:
    shown = render("[bold]x[/bold] [t](http://e.x) <http://e.y>", width=60)
    assert "[bold]x[/bold]" in shown and "\x1b]8" not in shown and "http://e.x" in shown
    assert all(line == line.rstrip(" ") for line in shown.split("\n"))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("hello", Say("hello")),
        ("//x", Say("/x")),
        ("/set top-k 3", Command("set", "top-k 3")),
        ("/exit", Command("exit", "")),
        ("/system two\nlines", Command("system", "two\nlines")),
        ("/system\ntext", Command("system", "text")),
    ],
)
def test_what_a_submission_means(text: str, meaning: Say | Command) -> None:
    assert read(text) == meaning


def test_multi_line_submissions() -> None:
    assert is_open("a\\") and is_open('"""a') and not is_open('"""a\nb"""') and not is_open('say """')
    assert closed("a\\\nb") == "a\nb" and closed('"""\na\n"""') == "a"
    assert closed('/system """a\nb"""') == "/system a\nb"


def test_script_lines_keep_their_numbers() -> None:
    found = [(line.number, line.text) for line in script(["", "#c", "a\\", "b", '"""', "#in", '"""', "\\#d", "last\\"])]
    assert found == [(3, "a\nb"), (5, "#in"), (8, "#d"), (9, "last")]
