"""Kinds of option value: one wording of every mistake, whether it comes from a flag, the environment or a file."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol


class Kind(Protocol):
    """How a value is read. Both methods raise ValueError with the end of a sentence: 'it must be ...'."""

    @property
    def metavar(self) -> str: ...

    def from_text(self, text: str) -> object:
        """From a flag or an environment variable."""

    def from_value(self, value: object) -> object:
        """From a TOML value, which has a type of its own."""


@dataclass(frozen=True, slots=True)
class Text:
    metavar: str = "TEXT"

    def from_text(self, text: str) -> str:
        return text

    def from_value(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("it must be text in quotes")
        return value


@dataclass(frozen=True, slots=True)
class Texts:
    """A repeatable option. One string stands for a list of one."""

    metavar: str = "TEXT"

    def from_text(self, text: str) -> tuple[str, ...]:
        return (text,)

    def from_value(self, value: object) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
            raise ValueError("it must be text in quotes or a list of texts")
        return tuple(items)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number; `auto` reads the word auto as None where the option has an automatic choice."""

    metavar: str = "N"
    least: int = 0
    auto: bool = False

    def from_text(self, text: str) -> int | None:
        if self.auto and text == "auto":
            return None
        try:
            number = int(text.replace("_", ""))
        except ValueError:
            raise ValueError(self._rule()) from None
        return self._checked(number)

    def from_value(self, value: object) -> int | None:
        if isinstance(value, str) and self.auto and value == "auto":
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(self._rule())
        return self._checked(value)

    def _checked(self, number: int) -> int:
        if number < self.least:
            raise ValueError(f"it must be at least {self.least}")
        return number

    def _rule(self) -> str:
        return "it must be a whole number" + (" or auto" if self.auto else "")


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number; `auto` as in Whole."""

    metavar: str = "X"
    auto: bool = False

    def from_text(self, text: str) -> float | None:
        if self.auto and text == "auto":
            return None
        try:
            number = float(text)
        except ValueError:
            raise ValueError("it must be a number" + (" or auto" if self.auto else "")) from None
        if not math.isfinite(number):
            raise ValueError("it must be a finite number")
        return number

    def from_value(self, value: object) -> float | None:
        if self.auto and value == "auto":
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError("it must be a finite number" + (" or auto" if self.auto else ""))
        return float(value)


_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}ib": 1 << 10 * (power + 1) for power, letter in enumerate("kmgt")}
_UNITS |= {f"{letter}b": 1000 ** (power + 1) for power, letter in enumerate("kmgt")}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes: a number with a unit (KiB to TiB, or the decimal kB to TB), or without one; the word auto is None."""

    metavar: str = "SIZE|auto"

    def from_text(self, text: str) -> int | None:
        if text == "auto":
            return None
        match = _SIZE.fullmatch(text.strip().lower())
        if match is None or match["unit"] not in _UNITS:
            raise ValueError("it must be a size such as 512MiB or 2GB, or auto")
        try:
            size = Fraction(match["number"]) * _UNITS[match["unit"]]
        except ValueError:  # more digits than Python converts
            raise ValueError("it is too large") from None
        return math.floor(size)

    def from_value(self, value: object) -> int | None:
        if isinstance(value, str):
            return self.from_text(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError('it must be a number of bytes, or a size in quotes such as "512MiB"')
        return value


@dataclass(frozen=True, slots=True)
class Switch:
    metavar: str = ""

    def from_text(self, text: str) -> bool:
        word = text.strip().lower()
        if word in ("1", "true", "yes", "on"):
            return True
        if word in ("0", "false", "no", "off", ""):
            return False
        raise ValueError("it must be on or off")

    def from_value(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError("it must be true or false")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    words: tuple[str, ...]

    @property
    def metavar(self) -> str:
        return "|".join(self.words)

    def from_text(self, text: str) -> str:
        if text not in self.words:
            raise ValueError(f"it must be {', '.join(self.words[:-1])} or {self.words[-1]}")
        return text

    def from_value(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("it must be text in quotes")
        return self.from_text(value)
