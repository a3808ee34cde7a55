"""What a session may not do: prove itself with another's key, allocate before it is checked, lie in its directory."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ninfer_core.errors import SessionError
from ninfer_core.program.session_content import SessionContent
from ninfer_core.program.session_directory import expanded, ranges
from ninfer_core.program.session_file import SessionFile, read, read_header, write
from ninfer_core.program.session_header import digest, seal
from ninfer_core.program.session_key import SessionKey
from ninfer_core.program.session_reader import open_session
from ninfer_core.program.session_store import SessionStore
from tests.program.test_session_file import TALK, ledger_program, resaved, small

MINE, THEIRS = SessionKey(bytes(32)), SessionKey(bytes(31) + b"x")


@pytest.fixture(params=["file", "directory"])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    program = ledger_program()
    owner = small(program)
    path = tmp_path / "talk"
    if request.param == "file":
        write(path, program.save_continuations([owner], TALK), replace=False, key=MINE)
    else:
        with SessionStore(path, MINE) as store:
            store.autosave(program.snapshot([owner], store), TALK)
    return path


# --- who wrote it -------------------------------------------------------------------------------------------------
def test_the_tag_tells_whose_it_is(saved: Path) -> None:
    assert open_session(saved, MINE).header.proven is True
    assert open_session(saved, THEIRS).header.proven is False
    assert open_session(saved).header.proven is None


def test_a_session_without_a_tag_is_unproven_not_refused(tmp_path: Path) -> None:
    program = ledger_program()
    write(tmp_path / "s", program.save_continuations([small(program)], TALK), replace=False)
    assert read_header(tmp_path / "s", MINE).proven is None
    assert program.restore_continuations(read(tmp_path / "s", MINE)).owners


def test_another_text_over_the_same_state_is_not_proven(tmp_path: Path) -> None:
    """A well-formed forgery, every checksum right: only the key tells."""
    program = ledger_program()
    path, forged = tmp_path / "s", tmp_path / "forged"
    write(path, program.save_continuations([small(program)], TALK), replace=False, key=MINE)
    value = {**read_header(path).value, "conversation": "another text"}
    text, marks = seal(value, None)
    resaved(path, forged, header=text, header_checksum=marks["header_checksum"])
    assert read_header(forged, MINE).value["conversation"] == "another text"
    assert read_header(forged, MINE).proven is False


def test_the_key_is_made_once_and_kept_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "session-key"
    first = SessionKey.at(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_size == 32
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert SessionKey.at(path).proves("abc", first.sign("abc")), "read back, not made again"
    assert not SessionKey.at(tmp_path / "other").proves("abc", first.sign("abc"))
    assert [p.name for p in path.parent.iterdir()] == ["session-key"], "no litter"


def test_a_key_that_others_could_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    SessionKey.at(path)
    path.chmod(0o640)
    with pytest.raises(SessionError, match="open to others"):
        SessionKey.at(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(SessionError, match="damaged"):
        SessionKey.at(path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SessionError, match="cannot be used"):
        SessionKey.at(path)


# --- limits before anything is built --------------------------------------------------------------------------------
def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


BEYOND = {
    "depth": nested(65),
    "values": list(range(100_001)),
    "size": "x" * (16 << 20),
    "infinite": float("inf"),
    "not a number": float("nan"),
}


@pytest.mark.parametrize("what", BEYOND)
def test_text_beyond_a_limit_is_not_written(tmp_path: Path, what: str) -> None:
    program = ledger_program()
    content = program.save_continuations([small(program)], BEYOND[what])
    with pytest.raises(SessionError, match="too large to be read back"):
        write(tmp_path / "s", content, replace=False)
    with SessionStore(tmp_path / "d") as store, pytest.raises(SessionError, match="too large to be read back"):
        store.autosave(None, BEYOND[what])
    assert not (tmp_path / "s").exists() and not (tmp_path / "d" / "manifest").exists()


@pytest.mark.parametrize(
    ("what", "words"),
    [("depth", "nested deeper"), ("values", "more than 100,000"), ("size", "16 MiB"), ("infinite", "finite")],
)
def test_text_beyond_a_limit_is_not_read(tmp_path: Path, what: str, words: str) -> None:
    program = ledger_program()
    write(tmp_path / "s", program.save_continuations([small(program)], TALK), replace=False)
    value = {**read_header(tmp_path / "s").value, "conversation": BEYOND[what]}
    text = json.dumps(value)
    resaved(tmp_path / "s", tmp_path / "x", header=text, header_checksum=digest(text.encode()))
    with pytest.raises(SessionError, match=words):
        read_header(tmp_path / "x")
    (tmp_path / "d").mkdir()
    marks = {"format": "ninfer-session", "version": "1", "header_checksum": digest(text.encode())}
    (tmp_path / "d" / "manifest").write_text(json.dumps(marks) + "\n" + text)
    with pytest.raises(SessionError, match=f"{words}|size of its manifest"):
        open_session(tmp_path / "d")


def test_a_header_longer_than_the_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
    with pytest.raises(SessionError, match="is no session, or damaged"):
        read_header(tmp_path / "x")


def test_no_more_is_read_than_the_engine_could_hold(tmp_path: Path) -> None:
    program = ledger_program(pages=40)
    write(tmp_path / "s", program.save_continuations([small(program, 130), small(program, 1000)]), replace=False)
    source = SessionFile(tmp_path / "s")
    little = ledger_program(pages=4)
    fit = little.selection(source.header.value, source.sizes(), cells=8)
    content = source.load(fit.directory)
    assert len(content.tensors["pages.0"]) == 4 and [c.tokens for c in fit.left_out] == [1003]
    assert little.restore_continuations(content).owners


@pytest.mark.parametrize("name", ["images", "pages.0", "tokens.0", "trace.0"])
@pytest.mark.parametrize("change", [lambda t: t.float(), lambda t: t.reshape(1, *t.shape), lambda t: t[:0]])
def test_tensors_of_another_shape(tmp_path: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    program = ledger_program()
    content = program.save_continuations([small(program)])
    tensors = {**content.tensors, name: change(content.tensors[name]).contiguous()}
    write(tmp_path / "s", SessionContent(content.header, tensors), replace=False)
    world = program.world
    with pytest.raises(SessionError, match=r"shape|inconsistent|form|range"):
        source = SessionFile(tmp_path / "s")
        program.restore_continuations(source.load(program.selection(source.header.value, source.sizes(), 9).directory))
    assert program.world is world


def test_keys_and_values_that_are_not_finite(tmp_path: Path) -> None:
    program = ledger_program()
    content = program.save_continuations([small(program)])
    content.tensors["pages.0"][0, :4] = torch.tensor([float("nan")]).view(torch.uint8)
    world = program.world
    with pytest.raises(SessionError, match="keys and values are not finite"):
        program.restore_continuations(content)
    assert program.world is world


def test_page_lists() -> None:
    assert ranges([0, 1, 2, 7, 9, 10]) == "0-2,7,9-10" and expanded("0-2,7,9-10", 6) == (0, 1, 2, 7, 9, 10)
    assert ranges([]) == "" and expanded("", 0) == ()
    for text in ("0-999999999", "5-3", "-1", "1,,2", "٣", "0-2-4", " 1", 7, None, ["0"]):
        with pytest.raises(ValueError, match="page list"):
            expanded(text, 4)


MANIFEST_LIES: list[Callable[[dict[str, Any]], Any]] = [
    lambda m: m.update(image_bytes=1 << 40),
    lambda m: m.update(planes=[[2, 1 << 40]]),
    lambda m: m.update(planes=[]),
    lambda m: m.update(following=1),
    lambda m: m.update(following=-1),
    lambda m: m["images"].pop(),
    lambda m: m["images"].__setitem__(0, m["images"][0].replace(":0:", ":99999999:", 1)),
    lambda m: m["images"].__setitem__(0, "../../etc/passwd"),
    lambda m: m["ledgers"].pop(),
    lambda m: m["pages"][0].__setitem__(0, m["pages"][0][0].replace("0-", "1-", 1)),
    lambda m: m.update(pages=[[page.replace("-64@", "-63@") for page in m["pages"][0]]]),
    lambda m: m["continuations"][0]["checkpoints"][0].update(image=1),
    lambda m: m["continuations"][0]["checkpoints"][0].update(kind="Root"),
    lambda m: m["continuations"][0]["checkpoints"][0].update(image=99),
    lambda m: m["continuations"][0]["checkpoints"][0].update(pages=["0-99"]),
    lambda m: m["continuations"][0]["checkpoints"][0].update(frontier=10**12),
    lambda m: m.update(continuations={}),
]


@pytest.mark.parametrize("number", range(len(MANIFEST_LIES)))
def test_a_manifest_that_lies(tmp_path: Path, number: int) -> None:
    program = ledger_program()
    with SessionStore(tmp_path / "d") as store:
        store.autosave(program.snapshot([small(program)], store), TALK)
    path = tmp_path / "d" / "manifest"
    marks, text = path.read_text().split("\n", 1)
    value = json.loads(text)
    MANIFEST_LIES[number](value)
    text = json.dumps(value)
    path.write_text(json.dumps({**json.loads(marks), "header_checksum": digest(text.encode())}) + "\n" + text)
    before = sorted((tmp_path / "d").iterdir())
    with pytest.raises(SessionError, match=r"inconsistent|damaged|length"):
        open_session(tmp_path / "d")
    with pytest.raises(SessionError):
        SessionStore(tmp_path / "d")
    assert sorted((tmp_path / "d").iterdir()) == before


def test_odd_files_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SessionError, match="not a regular file"):
        open_session(tmp_path / "pipe")
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "d" / "manifest")
    with pytest.raises(SessionError, match="kind or size"):
        open_session(tmp_path / "d")
