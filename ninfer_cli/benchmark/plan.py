"""Which rows to measure: pp512, tg128, pp512@d4096."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ninfer_core import UsageError

_TEST = re.compile(r"(?P<kind>pp|tg)(?P<tokens>[1-9]\d{0,6})(?:@d(?P<depth>\d{1,7}))?")


@dataclass(frozen=True, slots=True)
class BenchTest:
    """One row: prompt processing (pp) or token generation (tg) of tokens, behind depth tokens, for batch sequences."""

    kind: str
    tokens: int
    depth: int
    batch: int

    @property
    def name(self) -> str:
        return f"{self.kind}{self.tokens}" + (f"@d{self.depth}" if self.depth else "")

    @property
    def prompt_tokens(self) -> int:
        """Tokens of one prompt. Generation needs at least one to start from."""
        return self.depth + self.tokens if self.kind == "pp" else max(self.depth, 1)

    @property
    def new_tokens(self) -> int:
        """Tokens to generate: the first one belongs to the prompt's pass and is not counted by tg."""
        return 1 if self.kind == "pp" else self.tokens + 1

    @property
    def context(self) -> int:
        return self.prompt_tokens + self.new_tokens


def parse_tests(names: Sequence[str], batches: Sequence[int]) -> list[BenchTest]:
    """Every name with every batch size.

    Raises:
        UsageError: a name that is no test.
    """
    tests = []
    for name in names:
        match = _TEST.fullmatch(name)
        if match is None:
            raise UsageError(f"{name!r} is no test: use pp512, tg128, pp512@d4096 (behind 4,096 tokens), or reuse")
        tokens, depth = int(match["tokens"]), int(match["depth"] or 0)
        tests += [BenchTest(match["kind"], tokens, depth, batch) for batch in batches]
    return tests


def parse_batches(text: str) -> list[int]:
    """'1,2,4'.

    Raises:
        UsageError: not a list of 1 to 8.
    """
    sizes = text.split(",")
    if not all(size.strip().isdigit() and 1 <= int(size) <= 8 for size in sizes):
        raise UsageError(f"--batch is {text!r}: give sizes from 1 to 8, for instance 1,2,4")
    return [int(size) for size in sizes]
