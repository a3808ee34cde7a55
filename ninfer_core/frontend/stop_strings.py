"""StopStrings: where in growing text the first stop string ends, and how much of the end to hold back until then."""

from __future__ import annotations

from typing import NamedTuple


class StopMatch(NamedTuple):
    """A stop string that occurs: text before `start` is kept."""

    start: int
    string: str


class StopStrings:
    """The strings of one request. The match is the one that is complete first, of several the longest.

    So the result does not depend on how the text was cut into tokens.
    """

    def __init__(self, strings: tuple[str, ...]) -> None:
        if any(not string for string in strings):
            raise ValueError("a stop string is empty")
        self._strings = tuple(dict.fromkeys(strings))

    def find(self, text: str, held: str = "") -> StopMatch | None:
        """The match in text, whose beginning `held` is known to hold none."""
        best: tuple[int, int, str] | None = None
        for string in self._strings:
            at = text.find(string, max(0, len(held) - len(string) + 1))
            if at >= 0 and (best is None or (at + len(string), at) < best[:2]):
                best = (at + len(string), at, string)
        return None if best is None else StopMatch(best[1], best[2])

    def held_back(self, text: str) -> int:
        """Length of the longest end of text that a stop string could begin with."""
        longest = 0
        for string in self._strings:
            for size in range(min(len(string) - 1, len(text)), longest, -1):
                if text.endswith(string[:size]):
                    longest = size
                    break
        return longest
