"""config.toml: the user's defaults. Every key is an option's long name; anything else is a usage error."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path

from ninfer_cli.options import BY_NAME
from ninfer_core import UsageError

MOST_BYTES = 1 << 20


def directory(variable: str, fallback: str) -> Path:
    """ninfer's directory of one XDG kind ("config", "state", "cache"), whether it exists or not."""
    base = os.environ.get(variable, "")
    if base and Path(base).is_absolute():
        return Path(base) / "ninfer"
    import platformdirs

    return Path(getattr(platformdirs, f"user_{fallback}_dir")("ninfer", appauthor=False))


def config_file() -> Path:
    return directory("XDG_CONFIG_HOME", "config") / "config.toml"


def calibration_file() -> Path:
    """Where `ninfer bench --calibrate` keeps what it measured."""
    return directory("XDG_STATE_HOME", "state") / "calibration.json"


def read_config(path: Path | None = None) -> dict[str, object]:
    """{option name: value} of the file; empty when there is none.

    Raises:
        UsageError: not readable, not TOML, an unknown key or a value of the wrong type, with the file's name.
    """
    path = config_file() if path is None else path
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path} is larger than 1 MiB: it is no configuration file")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no valid TOML: {error}") from error
    return {name: _value(path, name, value) for name, value in table.items()}


def _value(path: Path, name: str, value: object) -> object:
    option = BY_NAME.get(name)
    if option is None:
        near = difflib.get_close_matches(name.replace("_", "-"), BY_NAME, n=1)
        hint = f": did you mean {near[0]}?" if near else ": keys are the long options without --"
        raise UsageError(f"{path} has the unknown key {name!r}{hint}")
    try:
        return option.kind.from_value(value)
    except ValueError as error:
        raise UsageError(f"{path}: {name} is {value!r}: {error}") from error
