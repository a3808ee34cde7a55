"""--verify-reuse, --verify and /verify where the replay cannot be: one line, and the reply is there (VER-1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ninfer_cli.settings import resolve
from ninfer_core import UsageError, write_random_checkpoint
from ninfer_core.program.identity import Unit
from ninfer_core.program.session_file import checksum_of, read_header
from ninfer_core.program.session_header import seal
from ninfer_core.program.traces import pack, unpack
from tests.cli.test_sessions import real
from tests.program.test_session_file import resaved
from tests.support.ninfer_process import Ninfer

NO_ROOM = "no room to verify: the replay needs "


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint("tiny", tmp_path_factory.mktemp("models") / "one")


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little memory is free that nothing can be replayed."""
    monkeypatch.setattr("ninfer_core.program.verification.available_memory", lambda: 1 << 10)


@pytest.mark.req("VER-1")
def test_run_says_in_one_line_that_there_is_no_room_and_keeps_the_reply(ninfer: Ninfer, scarce: None) -> None:
    demo = ("--max-context", "512", "--max-new", "8", "--greedy")
    plain = real(ninfer, None, "run", "Who are you?", *demo)
    done = real(ninfer, None, "run", "Who are you?", "--verify-reuse", "--save", "talk", *demo)
    assert done.returncode == 0 and done.stdout == plain.stdout and done.stdout.strip()
    (line,) = [line for line in done.stderr.splitlines() if "verify" in line]
    assert line.startswith(f"ninfer: verify: {NO_ROOM}") and line.endswith("close other programs")
    saved = real(ninfer, None, "restore-session", "talk", "--inspect")
    assert saved.returncode == 0 and "1 turn" in saved.stdout, "what was to be saved is"


@pytest.mark.req("VER-1", "OPT-3")
def test_what_is_not_kept_cannot_be_replayed(ninfer: Ninfer) -> None:
    done = ninfer("run", "Who are you?", "--verify-reuse", "--no-cache")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ninfer: --verify-reuse replays what --no-cache does not keep: leave out one of them\n"


@pytest.mark.req("VER-1", "OPT-3")
def test_of_a_proof_and_no_cache_the_nearer_origin_wins() -> None:
    assert not resolve({"cache": False}, {"NINFER_VERIFY_REUSE": "1"}).verify_reuse
    assert resolve({"verify-reuse": True}, {"NINFER_CACHE": "0"}).cache
    with pytest.raises(UsageError, match="leave out one of them"):
        resolve({}, {"NINFER_VERIFY_REUSE": "1", "NINFER_CACHE": "0"})


@pytest.mark.req("VER-1")
def test_in_json_nothing_is_claimed_to_be_equal(ninfer: Ninfer, model: Path, scarce: None) -> None:
    done = real(ninfer, model, "run", "Who?", "--verify-reuse", "--json")
    reply, verified = (json.loads(line) for line in done.stdout.splitlines())
    assert done.returncode == 0 and reply["finish_reason"] and reply["error"] is None
    result = verified["result"]
    assert result.pop("detail").startswith(NO_ROOM) and result == {"state": None, "kv": None, "tokens": None}


@pytest.mark.req("VER-1")
def test_a_session_is_resumable_all_the_same(ninfer: Ninfer, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ninfer.home / "report.txt").write_text("The meeting is on Monday. " * 12)
    assert real(ninfer, model, "save-session", "doc", "--file", "report.txt").returncode == 0
    monkeypatch.setattr("ninfer_core.program.verification.available_memory", lambda: 1 << 10)
    done = real(ninfer, model, "restore-session", "doc", "--verify")
    checkpoints = [line for line in done.stdout.splitlines() if "resumable from" in line]
    assert done.returncode == 0 and checkpoints
    assert all(f"; {NO_ROOM}" in line for line in checkpoints)


@pytest.mark.req("VER-1")
def test_the_chat_goes_on(chat, scarce: None) -> None:  # type: ignore[no-untyped-def]
    done = chat("I am Bela.", "/verify", "Who am I?", options=("--no-autosave",))
    assert done.status == 0 and len(done.replies) == 2
    result = done.results["/verify"]["result"]
    assert result.pop("detail").startswith(NO_ROOM) and not any(result.values())


@pytest.mark.req("VER-1", "SES-4")
def test_a_state_whose_trace_leads_nowhere_is_told_as_wrong(ninfer: Ninfer, model: Path) -> None:
    """A file that somebody else wrote may bring any trace. Its state proves nothing, and the reply is there."""
    (ninfer.home / "report.txt").write_text("The meeting is on Monday. " * 12)
    assert real(ninfer, model, "save-session", "doc", "--file", "report.txt").returncode == 0
    tensors = load_file(ninfer.home / "doc")
    first, *others = unpack(tensors["trace.0"].numpy(), len(tensors["tokens.0"]))
    late = Unit(first.start + 7, first.length - 7, first.cuts, (first.length - 7,), 0)
    tensors["trace.0"] = torch.from_numpy(pack((late, *others)))
    header = {**read_header(ninfer.home / "doc").value}
    header["checksums"] = {name: checksum_of(tensor.numpy()) for name, tensor in tensors.items()}
    text, marks = seal(header, None)
    resaved(ninfer.home / "doc", ninfer.home / "forged", tensors, header=text,
            header_checksum=marks["header_checksum"])  # fmt: skip
    looked = real(ninfer, model, "restore-session", "forged", "--verify")
    assert looked.returncode == 1 and "the trace does not lead from token" in looked.stdout, looked.stderr
    assert "do not trust the file" in looked.stderr
    asked = real(ninfer, model, "run", "Who?", "--session", "forged", "--verify-reuse", "--json")
    reply, verified = (json.loads(line) for line in asked.stdout.splitlines())
    assert asked.returncode == 1 and reply["usage"]["reused_tokens"] > 0 and verified["ok"] is False
    assert "verify: the trace does not lead from token" in asked.stderr, asked.stderr
