"""JSON from files that are hostile until checked: size, depth and node count are bounded before anything is built."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ninfer_core.errors import NinferError, UsageError

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 100_000

# Strings are matched possessively and may stay open, so that scanning hostile text is linear.
_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)

ErrorType = Callable[[str], NinferError]


def load_json(text: str | bytes, what: str, error: ErrorType = UsageError) -> Any:
    """Parse text (at most 16 MiB, depth 64, 100,000 nodes, finite numbers only).

    Args:
        text: JSON; bytes must be UTF-8.
        what: how messages name the text, for instance "the messages".
        error: type of every error raised.

    Raises:
        error: one line; for broken JSON it names line, column and reason.
    """
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise error(f"{what}: {size:,} bytes of JSON are too many, the limit is {MAX_BYTES // 2**20} MiB")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as problem:
            raise error(f"{what}: not UTF-8 at byte {problem.start}: save the file as UTF-8") from None
    _check_structure(text, what, error)

    def refuse_constant(name: str) -> NoReturn:
        raise error(f"{what}: {name} is not a finite number")

    try:
        return json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise error(f"{what}: broken JSON at {where}: {problem.msg}") from None
    except (ValueError, RecursionError) as problem:
        raise error(f"{what}: unreadable JSON: {_first_line(problem)}") from None


def check_value(value: Any, what: str, error: ErrorType = UsageError) -> None:
    """Hold an already parsed value to the limits of load_json; a cycle exceeds the depth.

    Raises:
        error: too deep, too many nodes, not a JSON type, a non-finite number, or a key that is no string.
    """
    nodes = 0
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        nodes += len(level)
        if nodes > MAX_NODES:
            raise error(f"{what}: more than {MAX_NODES:,} values")
        level = [inner for outer in level for inner in _children(outer, what, error)]
        if not level:
            return
    raise error(f"{what}: nested deeper than {MAX_DEPTH} levels")


def _children(value: Any, what: str, error: ErrorType) -> list[Any]:
    if value is None or isinstance(value, (str, bool, int)):
        return []
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise error(f"{what}: {value} is not a finite number")
        return []
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) for key in value):
            raise error(f"{what}: a key is not a string")
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return list(value)
    raise error(f"{what}: a {type(value).__name__} is not JSON")


def _check_structure(text: str, what: str, error: ErrorType) -> None:
    depth = nodes = 0
    for match in _STRUCTURE.finditer(text):
        mark = match.group()[0]
        if mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise error(f"{what}: nested deeper than {MAX_DEPTH} levels")
        elif mark in "]}":
            depth -= 1
        if mark in "[{,":
            nodes += 1
            if nodes > MAX_NODES:
                raise error(f"{what}: more than {MAX_NODES:,} values")


def _first_line(problem: BaseException) -> str:
    return (str(problem) or type(problem).__name__).splitlines()[0]
