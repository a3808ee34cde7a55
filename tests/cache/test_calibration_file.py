"""The file of coefficients: what is written comes back; what is not ours costs one notice."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ninfer_core.cache.calibration import read_calibration, write_calibration
from ninfer_core.cache.cost import NOTHING_MEASURED, Coefficients, PrefillCost, TransferCost, TransferCosts
from ninfer_core.errors import CalibrationError

TRANSFERS = TransferCosts(TransferCost(1, 2, 0.5), TransferCost(3, 4, 0.25), TransferCost(5, 6, 0.125))
PREFILL = PrefillCost(7, 8, 0.75)


def test_a_round_trip_keeps_other_machines_and_models(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ninfer" / "calibration.json"
    write_calibration(path, Coefficients({"a": TRANSFERS}, {"a": {"m": PREFILL}}))
    write_calibration(path, Coefficients({"b": TRANSFERS}, {"a": {"n": PrefillCost(1, 1, 1)}}))
    newer = PrefillCost(2, 2, 2)
    write_calibration(path, Coefficients({}, {"a": {"m": newer}}))
    found = read_calibration(path)
    assert found.notices == ()
    assert found.coefficients == Coefficients(
        {"a": TRANSFERS, "b": TRANSFERS}, {"a": {"m": newer, "n": PrefillCost(1, 1, 1)}}
    )


def test_it_is_private_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "ninfer" / "calibration.json"
    write_calibration(path, Coefficients({"a": TRANSFERS}, {}))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def good() -> dict[str, object]:
    costs = {"to_host": [1, 2, 3], "to_device": [1, 2, 3], "on_device": [1, 2, 3]}
    return {
        "format": "ninfer-calibration",
        "version": 1,
        "transfers": {"a": costs},
        "prefills": {"a": {"m": [1, 2, 3]}},
    }


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({**good(), "version": 2}).encode(),
        json.dumps({**good(), "format": "else"}).encode(),
        json.dumps({**good(), "prefills": {"a": {"m": [1, 2]}}}).encode(),
        json.dumps({**good(), "prefills": {"a": {"m": [1, 2, -3]}}}).encode(),
        json.dumps({**good(), "prefills": {"a": {"m": [1, 2, True]}}}).encode(),
        json.dumps({**good(), "prefills": {"a": {"m": "123"}}}).encode(),
        json.dumps({**good(), "prefills": []}).encode(),
        json.dumps({**good(), "transfers": {"a": {}}}).encode(),
        json.dumps(good()).replace("[1, 2, 3]}", "[1, 2, NaN]}").encode(),
        json.dumps(good()).replace("[1, 2, 3]}", "[1, 2, 1e400]}").encode(),
        json.dumps(good()).replace("[1, 2, 3]}", f"[1, 2, {10**400}]}}").encode(),
        json.dumps(good()).encode() + b" " * (1 << 20),
    ],
)
def test_a_bad_or_foreign_file_is_one_notice(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(text)
    found = read_calibration(path)
    assert found.coefficients == NOTHING_MEASURED
    assert len(found.notices) == 1 and "\n" not in found.notices[0] and "ninfer bench --calibrate" in found.notices[0]
    assert path.read_bytes() == text, "reading changes nothing"


def test_the_control_of_the_cases_above_is_read(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(good()))
    assert read_calibration(path).coefficients.prefills == {"a": {"m": PrefillCost(1, 2, 3)}}


def test_what_is_no_file_neither_blocks_nor_fails(tmp_path: Path) -> None:
    assert read_calibration(None) == read_calibration(tmp_path / "absent")
    assert read_calibration(tmp_path / "absent").notices == ()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        assert len(read_calibration(path).notices) == 1
        with pytest.raises(CalibrationError, match="not a regular file"):
            write_calibration(path, NOTHING_MEASURED)


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CalibrationError, match="cannot be written") as raised:
        write_calibration(tmp_path / "file" / "calibration.json", NOTHING_MEASURED)
    assert "\n" not in str(raised.value)
