"""The calibration file: measured coefficients of the user's machines, kept between runs (context-cache COST-4).

JSON, 0600. It only ever orders feasible choices, so a file that is damaged, foreign or newer is left alone with one
notice, and generic coefficients stand in.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ninfer_core.cache.cost import NOTHING_MEASURED, Coefficients, PrefillCost, TransferCost, TransferCosts
from ninfer_core.errors import CalibrationError

FORMAT, VERSION = "ninfer-calibration", 1
MOST_BYTES = 1 << 20
_DIRECTIONS = ("to_host", "to_device", "on_device")


@dataclass(frozen=True, slots=True)
class StoredCalibration:
    """What a file holds, and what there is to say about it: one line, or none."""

    coefficients: Coefficients
    notices: tuple[str, ...] = ()


def read_calibration(path: Path | None) -> StoredCalibration:
    """The file's coefficients. None, or a file that is not there, is nothing measured. Never raises."""
    if path is None:
        return StoredCalibration(NOTHING_MEASURED)
    try:
        return StoredCalibration(_decode(json.loads(_bytes_of(path))))
    except FileNotFoundError:
        return StoredCalibration(NOTHING_MEASURED)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        reason = "it is no calibration of this version"
    return StoredCalibration(
        NOTHING_MEASURED, (f"{path} is not used ({reason}): write a new one with ninfer bench --calibrate",)
    )


def write_calibration(path: Path, measured: Coefficients) -> None:
    """Add measured coefficients to the file: the same machine's are replaced, other machines' and models' stay. At
    every moment the old file or the whole new one is there.

    Raises:
        CalibrationError: it cannot be written; what was there before is unchanged.
    """
    text = json.dumps(_encode(_merged(read_calibration(path).coefficients, measured)), indent=1, allow_nan=False)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists() and not path.is_file():
            raise CalibrationError(f"{path} is not a regular file: move it away")
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)  # 0600
        temporary = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        temporary = None
    except OSError as error:
        raise CalibrationError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _bytes_of(path: Path) -> bytes:
    # Not blocking: a pipe under this name must not hold the start up.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a regular file")
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError("too large")
    return data


def _merged(old: Coefficients, new: Coefficients) -> Coefficients:
    prefills = {hardware: dict(models) for hardware, models in old.prefills.items()}
    for hardware, models in new.prefills.items():
        prefills[hardware] = {**prefills.get(hardware, {}), **models}
    return Coefficients({**old.transfers, **new.transfers}, prefills)


def _encode(coefficients: Coefficients) -> dict[str, Any]:
    transfers = {
        hardware: {name: list(astuple(getattr(costs, name))) for name in _DIRECTIONS}
        for hardware, costs in coefficients.transfers.items()
    }
    prefills = {
        hardware: {signature: list(astuple(cost)) for signature, cost in models.items()}
        for hardware, models in coefficients.prefills.items()
    }
    return {"format": FORMAT, "version": VERSION, "transfers": transfers, "prefills": prefills}


def _decode(value: Any) -> Coefficients:
    """Raises ValueError, TypeError, KeyError or AttributeError when the value is anything else than `_encode` makes."""
    if value["format"] != FORMAT or value["version"] != VERSION:
        raise ValueError("another format")
    transfers = {
        hardware: TransferCosts(**{name: TransferCost(*_numbers(costs[name])) for name in _DIRECTIONS})
        for hardware, costs in value["transfers"].items()
    }
    prefills: Mapping[str, Mapping[str, PrefillCost]] = {
        hardware: {signature: PrefillCost(*_numbers(cost)) for signature, cost in models.items()}
        for hardware, models in value["prefills"].items()
    }
    return Coefficients(transfers, prefills)


def _numbers(value: Any) -> tuple[float, float, float]:
    first, second, third = value
    for number in (first, second, third):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError("not a number")
    return float(first), float(second), float(third)
