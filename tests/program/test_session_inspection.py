"""Looking at a session: what of a damaged one can be read is shown, and one line says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from ninfer_core.errors import SessionError
from ninfer_core.program import session_inspection
from ninfer_core.program.session_header import digest, seal
from ninfer_core.program.session_inspection import inspect_session
from ninfer_core.program.session_key import SessionKey
from ninfer_core.program.session_reader import open_session
from ninfer_core.program.session_store import SessionStore
from tests.program.test_session_file import TALK, ledger_program, resaved, saved, small

HELD = ((("LongAnchor", 40), ("LongAnchor", 64), ("SessionEndpoint", 133)),)
KEY = SessionKey(bytes(32))
__all__ = ["saved"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    program = ledger_program()
    with SessionStore(tmp_path / "d", KEY) as store:
        store.autosave(program.snapshot([small(program)], store), TALK)
    return tmp_path / "d"


def test_a_whole_session_has_no_damage(saved: Path, directory: Path) -> None:
    for path, proven in ((saved, None), (directory, True)):
        found = inspect_session(path, KEY)
        assert found.header.value["conversation"] == TALK and found.header.proven is proven
        assert found.continuations == HELD and found.damage is None


@pytest.mark.req("SES-4")
def test_wherever_a_file_is_cut_its_header_is_shown_or_it_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    text = 8 + int.from_bytes(whole[:8], "little")
    for size in (0, 1, 7, 8, 9, text // 2, text - 1):
        saved.write_bytes(whole[:size])
        with pytest.raises(SessionError) as refused:
            inspect_session(saved)
        assert "\n" not in str(refused.value)
    for size in (text, text + 1, (text + len(whole)) // 2, len(whole) - 1):
        saved.write_bytes(whole[:size])
        found = inspect_session(saved)
        assert found.header.value["conversation"] == TALK and found.continuations == HELD
        missing = "1 byte" if size == len(whole) - 1 else f"{len(whole) - size:,} bytes"
        assert found.damage is not None and f"({missing} missing at its end)" in found.damage
        with pytest.raises(SessionError, match=r"missing at its end\): restore a copy$"):
            open_session(saved)
    saved.write_bytes(whole + b"more")
    found = inspect_session(saved)
    assert found.continuations == HELD and found.damage is not None
    assert "is damaged (4 bytes too many at its end): restore a copy" in found.damage
    saved.write_bytes(whole.replace(b"Gr", b"GR", 1))
    with pytest.raises(SessionError, match="checksum of the header"):
        inspect_session(saved)


def test_a_directory_without_its_segments(directory: Path) -> None:
    first, *_ = sorted(directory.glob("*.segment"))
    data = first.read_bytes()
    first.write_bytes(data[:-1])
    found = inspect_session(directory, KEY)
    assert found.continuations == HELD and found.header.proven is True
    assert found.damage == f"{directory} is damaged (length of {first.name}): restore a copy"
    first.unlink()
    assert f"{first.name} is missing" in str(inspect_session(directory, KEY).damage)
    manifest = directory / "manifest"
    manifest.write_bytes(manifest.read_bytes()[:-1])
    with pytest.raises(SessionError, match="checksum of the header"):
        inspect_session(directory, KEY)


def test_what_its_owner_replaces_meanwhile_is_no_damage(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = sorted(directory.glob("*.segment"))
    away = first.rename(directory.parent / "away")

    def opened(path: Path, key: SessionKey | None) -> Any:
        try:
            return open_session(path, key)
        finally:
            if away.exists():
                away.rename(first)

    monkeypatch.setattr(session_inspection, "open_session", opened)
    assert inspect_session(directory, KEY).damage is None


LIES: list[Callable[[list[Any]], object]] = [
    lambda c: c.append(7),
    lambda c: c.append({"checkpoints": 7}),
    lambda c: c.append({"checkpoints": [7]}),
    lambda c: c.append({"checkpoints": [{"kind": "Root", "frontier": "much"}]}),
    lambda c: c[0]["checkpoints"][0].update(kind=["Root"]),
    lambda c: c[0]["checkpoints"][0].update(kind="Nonsense"),
    lambda c: c[0].pop("checkpoints"),
]


@pytest.mark.parametrize("number", range(len(LIES)))
def test_a_directory_of_checkpoints_that_lies(saved: Path, directory: Path, number: int) -> None:
    """In either form, whole or cut short: a line, and no continuations."""
    value = json.loads(json.dumps(open_session(saved).header.value))
    LIES[number](value["continuations"])
    text, marks = seal(value, None)
    resaved(saved, saved, load_file(saved), header=text, header_checksum=marks["header_checksum"])
    manifest = directory / "manifest"
    first, text = manifest.read_text().split("\n", 1)
    value = json.loads(text)
    LIES[number](value["continuations"])
    text = json.dumps(value)
    manifest.write_text(json.dumps({**json.loads(first), "header_checksum": digest(text.encode())}) + "\n" + text)
    for path in (saved, directory):
        found = inspect_session(path)
        assert found.continuations is None and found.damage is not None
        assert ("inconsistent" in found.damage or "damaged (shape" in found.damage) and "\n" not in found.damage
    saved.write_bytes(saved.read_bytes()[:-1])
    found = inspect_session(saved)
    assert found.continuations is None and "(1 byte missing at its end)" in str(found.damage)
