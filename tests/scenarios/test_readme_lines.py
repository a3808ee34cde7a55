"""The reuse lines that README shows are what its own command prints: everything but the times."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.cli.test_real_model import real
from tests.support.ninfer_process import ROOT, Ninfer

BLOCK = re.compile(r"```\w*\n(.*?)\n```", re.DOTALL)
TIMES = re.compile(r" · TTFT \d+ ms · [\d.]+ tok/s · plan [\d.]+ ms$")
"""What tells of the machine: every line ends with it."""


def shown() -> tuple[list[str], list[str], list[str]]:
    """(what is said, the words behind `ninfer`, the lines)."""
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    at = next(number for number, block in enumerate(blocks) if block.startswith("reused "))
    words = shlex.split(blocks[at - 1].replace("\\\n", ""))
    assert words[:2] == ["printf", r"%s\n"]
    pipe = words.index("|")
    assert words[pipe + 1] == "ninfer"
    return words[2:pipe], words[pipe + 2 :], blocks[at].splitlines()


@pytest.mark.req("STAT-1")
def test_the_lines_of_the_readme_are_those_of_its_command(ninfer: Ninfer) -> None:
    said, arguments, lines = shown()
    done = real(ninfer, *arguments, stdin="".join(f"{line}\n" for line in said))
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stderr.splitlines() if line.startswith("reused ")]
    assert len(printed) == len(lines) >= 3
    assert all(TIMES.search(line) for line in (*printed, *lines))
    assert [TIMES.sub("", line) for line in printed] == [TIMES.sub("", line) for line in lines]
