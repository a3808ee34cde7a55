"""Fields: checked look-ups in a decoded config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_core.errors import ModelError


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object whose members are asked for by type. Every look-up raises ModelError naming the field."""

    values: Mapping[str, Any]

    def section(self, name: str) -> Fields:
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise ModelError(f"config.json: {name} must be an object")
        return Fields(value)

    def size(self, name: str, *, default: int | None = None, most: int = 1 << 24) -> int:
        """A positive integer of at most `most`: bounds keep a hostile file from asking for absurd work."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            raise ModelError(f"config.json: {name} is {_short(value)}: it must be an integer from 1 to {most}")
        return value

    def number(self, name: str, *, default: float | None = None, below: float) -> float:
        """A number in (0, below]."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= below:
            raise ModelError(f"config.json: {name} is {_short(value)}: it must be a number above 0, at most {below:g}")
        return float(value)

    def text(self, name: str, *, default: str | None = None) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            raise ModelError(f"config.json: {name} is {_short(value)}: it must be a string")
        return value

    def _get(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            if default is None:
                raise ModelError(f"config.json: {name} is missing")
            return default
        return value


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."
