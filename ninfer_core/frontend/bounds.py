"""Bounds on what one operation of a chat template may make, so that a few lines cannot fill the memory.

A template that works for it can still waste time, and some memory; what is stopped are the cheap ways: repetition,
powers, widths, doubling, and lists that hold themselves many times over.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2.exceptions import SecurityError

MAX_OUTPUT = 16 * 1024 * 1024
"""Characters in a rendering or in any string on the way to it; elements in a list."""
MAX_NODES = 1_000_000
"""Values in a list or mapping that is written out, each as often as it occurs."""
MAX_BITS = 4096
"""Bits of an integer that a template may compute."""
MAX_WIDTH = 10_000
"""Largest width or precision in a format, and largest padding."""


def check_size(size: int) -> None:
    """Refuse a string or list of more than MAX_OUTPUT.

    Raises:
        SecurityError: here and in every check of this file.
    """
    if size > MAX_OUTPUT:
        raise SecurityError(f"a text of more than {MAX_OUTPUT // 2**20} MiB")


def check_width(width: Any) -> None:
    """Refuse an integer that would make a long padding."""
    if isinstance(width, int) and abs(width) > MAX_WIDTH:
        raise SecurityError(f"a width of more than {MAX_WIDTH}")


def check_format(pattern: str) -> None:
    """Refuse a format whose width is long or computed."""
    if re.search(r"[%{][^%{}]*(\d{5}|\*|\{)", pattern):
        raise SecurityError("a format with a width that is computed or has five digits or more")


def check_value(value: Any) -> Any:
    """The value, if writing it out stays within bounds: a list that refers to another twice writes it twice."""
    if isinstance(value, (list, tuple, Mapping)):
        characters = nodes = 0
        waiting: list[Any] = [value]
        while waiting:
            item = waiting.pop()
            nodes += 1
            if isinstance(item, str):
                characters += len(item)
                check_size(characters)
            elif isinstance(item, Mapping):
                waiting += [*item.keys(), *item.values()]
            elif isinstance(item, (list, tuple)):
                waiting += item
            if nodes + len(waiting) > MAX_NODES:
                raise SecurityError(f"a list of more than {MAX_NODES:,} values")
    return value


def check_values(values: Iterable[Any]) -> None:
    """check_value for each."""
    for value in values:
        check_value(value)


def check_join(glue: str, parts: list[Any]) -> None:
    """Refuse to join parts to a long string."""
    check_size(sum(len(p) if isinstance(p, str) else 1 for p in parts) + len(glue) * len(parts))


def check_method(owner: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse a call of a string's method that would make a long string."""
    if name in ("ljust", "rjust", "center", "zfill", "expandtabs"):
        for value in (*args, *kwargs.values()):
            check_width(value)
        if name == "expandtabs":
            widths = [value for value in (*args, *kwargs.values()) if isinstance(value, int)]
            check_size(len(owner) + owner.count("\t") * max(widths, default=8))
    elif name in ("format", "format_map"):
        check_format(owner)
        check_values((*args, *kwargs.values()))
    elif name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        check_size(len(owner) + owner.count(args[0]) * len(args[1]))
    elif name == "join" and args and isinstance(args[0], (list, tuple, str)):
        check_join(owner, list(args[0]))
    elif name == "translate":
        raise SecurityError("str.translate is not allowed")


def _times(left: Any, right: Any) -> Any:
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        _check_bits(_bits(left) + _bits(right))
        return left * right
    raise SecurityError("'*' works on numbers only")


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(_bits(left) * abs(right))
        return left**right
    raise SecurityError("'**' works on numbers only")


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
        check_size(len(left) + len(right))
    return left + right


def _percent(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        check_format(left)
        check_value(right)
    return operator.mod(left, right)


def _bits(value: float) -> int:
    return value.bit_length() if isinstance(value, int) else 64


def _check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise SecurityError("an integer that is too large")


BINARY_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"*": _times, "**": _power, "+": _plus, "%": _percent}
