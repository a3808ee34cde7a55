"""save-session, restore-session, run --session and --save: each command a fresh process, on a tiny random checkpoint.

The replies mean nothing; what is looked at is which tokens are read again, and what is refused.
"""

from __future__ import annotations

import io
import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from ninfer_cli.app import _parse_and_work
from ninfer_cli.boundary import guarded
from ninfer_cli.rescue import rescue
from ninfer_core import Engine, EngineOptions, SessionError, SessionInUse, write_random_checkpoint
from ninfer_core.engine.startup import Parts, start_up
from ninfer_core.errors import NoRoom
from ninfer_core.program.session_header import seal
from tests.program.test_session_file import resaved
from tests.support.ninfer_process import Ninfer

REPORT = "The meeting is on Monday. " * 12
SIZES = ("--max-context", "512", "--max-new", "4", "--greedy")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("models")
    one = write_random_checkpoint("tiny", place / "one")
    two = shutil.copytree(one, place / "two")
    weights = load_file(two / "model.safetensors")
    weights["model.language_model.embed_tokens.weight"][3] += 1
    save_file(weights, two / "model.safetensors")
    return one, two


@pytest.fixture
def document(ninfer: Ninfer, models: tuple[Path, Path]) -> Path:
    (ninfer.home / "report.txt").write_text(REPORT)
    done = real(ninfer, models[0], "save-session", "doc", "--file", "report.txt", "--json")
    assert done.returncode == 0, done.stderr
    return ninfer.home / "doc"


def real(
    ninfer: Ninfer, model: Path | None, command: str, *arguments: str, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """One command with a fresh Engine, in this process: starting another one would take most of the time."""
    chosen = () if model is None else ("-m", str(model), *SIZES)
    words = [command, *arguments, *chosen]
    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ninfer.environment, **environment}.items():
            patch.setenv(name, value)
        patch.chdir(ninfer.home)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        status = guarded(lambda: _parse_and_work(words), verbose=False)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(words, status, *texts)


def reply(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return next(value for line in done.stdout.splitlines() if "usage" in (value := json.loads(line)))


@pytest.mark.req("SES-4", "VER-1")
def test_a_document_is_read_once_and_asked_many_times(
    ninfer: Ninfer, models: tuple[Path, Path], document: Path
) -> None:
    model, before = models[0], document.read_bytes()
    assert stat.S_IMODE(document.stat().st_mode) == 0o600
    plain = reply(real(ninfer, model, "run", "Who?", "--file", "report.txt", "--json-tokens"))
    asked = real(ninfer, model, "run", "Who?", "--session", "doc", "--json-tokens", "--verify-reuse", "--cache-stats")
    again = real(ninfer, model, "restore-session", "doc", "--prompt", "What else, if anything?", "--json-tokens")
    first, second = reply(asked), reply(again)
    assert first["prompt_token_ids"] == plain["prompt_token_ids"], "the session is the same prompt, read ahead"
    saved = json.loads(real(ninfer, None, "restore-session", "doc", "--inspect", "--json").stdout)["result"]
    (endpoint,) = [c["frontier"] for c in saved["continuations"][0] if c["kind"] == "SessionEndpoint"]
    shared = common(first["prompt_token_ids"], second["prompt_token_ids"])
    assert shared - 3 <= endpoint <= shared and endpoint > 200, "all but the edge of the question"
    for answer in (first, second):
        usage = answer["usage"]
        assert usage["reused_tokens"] == endpoint and answer["reuse"]["source"] in ("SessionEndpoint", "ResponseReplay")
        assert usage["prefill_tokens"] == usage["prompt_tokens"] - endpoint
    values = {value["command"]: value for line in asked.stdout.splitlines() if "command" in (value := json.loads(line))}
    assert values["verify-reuse"]["result"] == {"state": True, "kv": True, "tokens": True, "detail": None}
    assert values["cache-stats"]["result"]["owners"]
    assert document.read_bytes() == before and "unproven" not in asked.stderr + again.stderr


def common(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_a_conversation_goes_on_from_what_run_saved(ninfer: Ninfer, models: tuple[Path, Path]) -> None:
    first = reply(real(ninfer, models[0], "run", "I am Bela.", "--save", "talk", "--json-tokens", "-s", "Be brief."))
    spoken = [*first["prompt_token_ids"], *first["token_ids"]]
    done = real(ninfer, models[0], "run", "Who am I?", "--session", "talk", "--save", "talk", "--json-tokens")
    second = reply(done)
    reused = second["usage"]["reused_tokens"]
    assert 0 < reused <= common(second["prompt_token_ids"], spoken)
    assert second["branch"]["turn"] == 2
    third = reply(real(ninfer, models[0], "run", "And now?", "--session", "talk", "--json"))
    assert third["branch"]["turn"] == 3 and third["usage"]["reused_tokens"] >= reused
    inspected = real(ninfer, None, "restore-session", "talk", "--inspect")
    assert "2 turns" in inspected.stdout and inspected.returncode == 0


def test_inspect_needs_no_model_and_no_torch(ninfer: Ninfer, document: Path) -> None:
    program = (
        "import sys\n"
        "class Refused:\n"
        "    def find_spec(self, name, *rest):\n"
        "        assert name.split('.')[0] not in ('torch', 'transformers'), name\n"
        "sys.meta_path.insert(0, Refused())\n"
        "from ninfer_cli.app import main\n"
        "main(['restore-session', 'doc', '--inspect', '--json'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=ninfer.environment,
        cwd=ninfer.home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert result["proven"] is True and result["turns"] == 0 and result["waiting_characters"] == len(REPORT)


def test_another_model_opens_the_text_with_rebuild(ninfer: Ninfer, models: tuple[Path, Path], document: Path) -> None:
    refused = real(ninfer, models[1], "restore-session", "doc")
    assert refused.returncode == 1 and "another model" in refused.stderr and "--rebuild" in refused.stderr
    rebuilt = real(ninfer, models[1], "restore-session", "doc", "--rebuild", "--save", "mine", "--json")
    assert rebuilt.returncode == 0 and json.loads(rebuilt.stdout)["result"]["rebuilt_tokens"] > 200
    assert reply(real(ninfer, models[1], "run", "Who?", "--session", "mine", "--json"))["usage"]["reused_tokens"] > 200


def test_a_file_cut_short_behind_its_text_is_read_with_rebuild(
    ninfer: Ninfer, models: tuple[Path, Path], document: Path
) -> None:
    (ninfer.home / "cut").write_bytes(document.read_bytes()[:-1])
    rebuilt = real(ninfer, models[0], "restore-session", "cut", "--rebuild", "--save", "whole", "--json")
    assert rebuilt.returncode == 0 and json.loads(rebuilt.stdout)["result"]["rebuilt_tokens"] > 200, rebuilt.stderr
    assert real(ninfer, models[0], "restore-session", "whole").returncode == 0


@pytest.mark.req("SES-4")
def test_of_a_damaged_session_every_command_says_what_can_be_read(
    ninfer: Ninfer, models: tuple[Path, Path], document: Path
) -> None:
    whole = real(ninfer, None, "restore-session", "doc", "--inspect")
    sound = json.loads(real(ninfer, None, "restore-session", "doc", "--inspect", "--json").stdout)
    assert sound["ok"] and sound["result"]["damage"] is None
    (ninfer.home / "cut").write_bytes(document.read_bytes()[:-5])
    shown = real(ninfer, None, "restore-session", "cut", "--inspect")
    rescue = "ninfer restore-session cut --rebuild --save NEW reads its text alone"
    line = f"cut is damaged (5 bytes missing at its end): restore a copy; {rescue}"
    for command in (("run", "--session", "cut", "Hello"), ("restore-session", "cut")):
        assert real(ninfer, models[0], *command).stderr == f"ninfer: {line}\n"
    assert shown.returncode == 1 and shown.stdout == whole.stdout and shown.stderr == f"ninfer: {line}\n"
    as_json = json.loads(real(ninfer, None, "restore-session", "cut", "--inspect", "--json").stdout)
    damage = as_json["result"].pop("damage")
    assert not as_json["ok"] and line.startswith(damage)
    assert as_json["result"] == {name: value for name, value in sound["result"].items() if name != "damage"}
    (ninfer.home / "cut").write_bytes(document.read_bytes()[:500])
    refused = real(ninfer, None, "restore-session", "cut", "--inspect")
    assert refused.returncode == 1 and not refused.stdout and "cut short within its text" in refused.stderr


def test_inspect_shows_state_without_a_conversation_and_odd_ones(ninfer: Ninfer, document: Path) -> None:
    from ninfer_core.program.session_file import read_header

    for conversation, status, words in ((None, 0, ""), ({"tree": 7}, 1, "odd"), ("text", 0, "")):
        header = {**read_header(document).value, "conversation": conversation, "model": ["not", "facts"]}
        text, marks = seal(header, None)
        resaved(document, ninfer.home / "odd", load_file(document), header=text, **marks)
        done = real(ninfer, None, "restore-session", "odd", "--inspect")
        assert done.returncode == status and words in done.stderr and done.stderr.count("\n") == status, done.stderr
        assert "no conversation" in done.stdout and "SessionEndpoint" in done.stdout


def test_unproven_state_is_told_and_replayed(ninfer: Ninfer, models: tuple[Path, Path], document: Path) -> None:
    state = {"XDG_STATE_HOME": str(ninfer.home / "another user")}
    done = real(ninfer, models[0], "restore-session", "doc", "--verify", **state)
    assert done.returncode == 0 and "unproven" in done.stderr, done.stderr
    assert "signed by somebody else" in done.stdout and "state equal, keys and values equal" in done.stdout
    assert f"chat --model {models[0]} --session doc" in done.stderr


def test_a_forged_state_is_caught_by_verify(ninfer: Ninfer, models: tuple[Path, Path], document: Path) -> None:
    """Text A over state B, every checksum right: unproven, and a replay shows it."""
    from ninfer_core.program.session_file import checksum_of, read_header

    tensors = load_file(document)
    tensors["tokens.0"][5] += 1
    header = {**read_header(document).value}
    header["checksums"] = {name: checksum_of(tensor.numpy()) for name, tensor in tensors.items()}
    text, marks = seal(header, None)
    resaved(document, ninfer.home / "forged", tensors, header=text, header_checksum=marks["header_checksum"])
    done = real(ninfer, models[0], "restore-session", "forged", "--verify")
    assert (
        done.returncode == 1
        and "state DIFFERENT, keys and values DIFFERENT" in done.stdout
        and "unproven" in done.stderr
    )


@pytest.mark.req("VER-1")
def test_a_reply_from_a_forged_state_is_told_by_verify_reuse(
    ninfer: Ninfer, models: tuple[Path, Path], document: Path
) -> None:
    """The text is right and the states are not: the replay gives something else, and status 1 says so."""
    from ninfer_core.program.session_file import checksum_of, read_header

    tensors = load_file(document)
    tensors["images"][:, 2:4096:4] ^= 0x40  # of each mantissa a bit that counts: they stay finite numbers
    header = {**read_header(document).value}
    header["checksums"] = {name: checksum_of(tensor.numpy()) for name, tensor in tensors.items()}
    text, marks = seal(header, None)
    resaved(document, ninfer.home / "forged", tensors, header=text, header_checksum=marks["header_checksum"])
    done = real(ninfer, models[0], "run", "Who?", "--session", "forged", "--verify-reuse")
    assert done.returncode == 1 and "state DIFFERENT" in done.stderr, done.stderr


def test_what_cannot_be_is_one_line_and_nothing_changes(
    ninfer: Ninfer, models: tuple[Path, Path], document: Path
) -> None:
    before = document.read_bytes()
    (ninfer.home / "empty").mkdir()
    (ninfer.home / "cut").write_bytes(before[:-1])
    for arguments, words, status in (
        (("save-session", "doc", "-s", "x"), "exists", 1),
        (("run", "x", "--save", "doc"), "exists", 1),
        (("save-session", "empty", "-s", "x"), "not a regular file", 1),
        (("save-session", "new"), "nothing to read", 2),
        (("save-session", "new", "-s", "x", "--session-limit", "much"), "must be a size", 2),
        (("restore-session", "none"), "no such session", 1),
        (("restore-session", "empty"), "without a session", 1),
        (("restore-session", "cut"), "damaged", 1),
        (("run", "x", "--session", "report.txt"), "no session", 1),
        (("restore-session", "doc", "--inspect", "--verify"), "--inspect loads no model", 2),
        (("restore-session", "doc", "--prompt", " "), "--prompt is empty", 2),
        (("run", "x", "--session", "doc", "--messages", "report.txt"), "leave out --messages", 2),
    ):
        done = real(ninfer, None, *arguments)
        assert done.returncode == status and words in done.stderr, (arguments, done.stderr)
        assert done.stderr.count("\n") == 1 and not done.stdout, (arguments, done.stderr)
    assert document.read_bytes() == before
    forced = real(ninfer, models[0], "save-session", "doc", "-s", "Be brief.", "--force")
    assert forced.returncode == 0 and document.read_bytes() != before


def test_only_commands_that_use_sessions_pay_for_the_fingerprint(
    ninfer: Ninfer, models: tuple[Path, Path], document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def start(options: EngineOptions) -> Parts:
        seen.append(options.sessions)
        return start_up(options)

    monkeypatch.setattr("ninfer_core.engine.engine.start_up", start)
    (ninfer.home / "lines").write_text("/exit\n")
    chat = ("chat", "--script", "lines")
    for arguments, wanted in (
        (("run", "Who?"), False),
        (("run", "Who?", "--save", "one"), True),
        (("run", "Who?", "--session", "doc"), True),
        (("save-session", "two", "-s", "Be brief."), True),
        (("restore-session", "doc"), True),
        (("restore-session", "doc", "--rebuild"), False),
        (("restore-session", "doc", "--rebuild", "--save", "three"), True),
        ((*chat, "--autosave"), True),
        ((*chat, "--no-autosave"), False),
        ((*chat, "--no-autosave", "--session", "doc"), True),
    ):
        done = real(ninfer, models[0], *arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        assert seen.pop() is wanted and not seen, arguments


@pytest.mark.req("SES-4")
def test_a_session_of_another_dtype_names_the_one_to_give_and_no_option_that_is_not_there(
    ninfer: Ninfer, models: tuple[Path, Path], document: Path
) -> None:
    done = real(ninfer, models[0], "run", "--session", "doc", "--dtype", "float16", "Hello")
    assert done.returncode == 1 and not done.stdout
    saved = json.loads(real(ninfer, None, "restore-session", "doc", "--inspect", "--json").stdout)["result"]["dtype"]
    advice = (
        f"start the model with --dtype {saved}; ninfer restore-session doc --rebuild --save NEW reads its text alone"
    )
    assert done.stderr.endswith(f"another dtype ({saved}, not float16): {advice}\n")


@pytest.mark.req("STAT-1", "STAT-2")
def test_with_v_the_statistics_tell_the_fate_of_every_token(
    ninfer: Ninfer, models: tuple[Path, Path], document: Path
) -> None:
    done = real(ninfer, models[0], "run", "--session", "doc", "--stats", "-v", "What is on Monday?")
    first, *fates = [line for line in done.stderr.split("\n") if line and not line.startswith("ninfer: ")]
    assert done.returncode == 0 and first.startswith("reused ")
    reused, prompt = map(int, first.split()[1].split("/"))
    assert fates[0] == f"{prompt} prompt tokens, {reused} reused, {prompt - reused} computed"
    spans = [tuple(map(int, line.split()[0].split(".."))) for line in fates if ".." in line.split()[0]]
    assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])] and spans[-1][1] == prompt
    assert any(line.startswith("  kept ") for line in fates) and fates[-1].startswith("  planned in ")
    assert "kept " not in real(ninfer, models[0], "run", "--session", "doc", "--stats", "What is on Monday?").stderr
    chat = real(ninfer, models[0], "chat", "--script", "-", "--no-autosave", "--stats", "-v", stdin="Hello\n")
    assert chat.returncode == 0 and "\n  kept " in chat.stderr and "\n  planned in " in chat.stderr
    read = real(ninfer, models[0], "save-session", "again", "--file", "report.txt", "--stats", "-v")
    assert read.returncode == 0 and "\n  kept " in read.stderr and "\n  planned in " in read.stderr


@pytest.mark.req("SES-4")
def test_nobody_is_advised_to_read_a_text_that_is_not_there_or_not_at_fault(
    ninfer: Ninfer, models: tuple[Path, Path], document: Path
) -> None:
    with Engine(EngineOptions(model=models[0], max_context=512)) as engine:
        prompt = engine.prepare_tokens([5] * 70)
        engine.prefill(prompt)
        engine.save_session(ninfer.home / "notes", [prompt.token_ids], {"note": "mine"})
    foreign = "ninfer: notes holds state but no conversation: ninfer restore-session --inspect looks into it\n"
    chat = ("chat", "--script", "-", "--no-autosave", "--session")
    for command in (("run", "--session", "notes", "Hello"), (*chat, "notes"), ("restore-session", "notes")):
        refused = real(ninfer, models[0], *command)
        assert (refused.returncode, refused.stderr) == (1, foreign), command
    seen = real(ninfer, None, "restore-session", "notes", "--inspect")
    assert seen.returncode == 0 and "no conversation\n" in seen.stdout and not seen.stderr
    told = ("--session", "talk", "--autosave")
    assert real(ninfer, models[0], "chat", "--script", "-", *told, stdin="Hello\n").returncode == 0
    (ninfer.home / "talk" / "lock").unlink(missing_ok=True)
    (ninfer.home / "talk" / "lock").mkdir()
    held = real(ninfer, models[0], "chat", "--script", "-", *told)
    assert held.returncode == 1 and "talk cannot be locked (Is a directory)\n" in held.stderr, held.stderr


def test_a_directory_that_lost_its_manifest_is_said_to_hold_no_session(
    ninfer: Ninfer, models: tuple[Path, Path]
) -> None:
    (ninfer.home / "lost").mkdir()
    (ninfer.home / "lost" / "00000001.segment").write_bytes(b"state")
    chat = ("chat", "--script", "-", "--no-autosave")
    done = real(ninfer, models[0], *chat, stdin="/restore lost\n")
    assert done.returncode == 1 and "lost is a directory without a session in it (manifest)\n" in done.stderr
    done = real(ninfer, models[0], *chat, "--session", "lost")
    assert done.returncode == 2 and "lost: there is no session in it, and --no-autosave makes none" in done.stderr
    assert (ninfer.home / "lost" / "00000001.segment").read_bytes() == b"state"


def test_without_the_cache_nothing_is_called_resumable(
    ninfer: Ninfer, models: tuple[Path, Path], document: Path
) -> None:
    off = "ninfer: the context cache is off, so nothing of the state is reused: leave out --no-cache\n"
    checked = real(ninfer, models[0], "restore-session", "doc", "--no-cache")
    assert checked.returncode == 0 and off in checked.stderr and "resumable" not in checked.stdout
    asked = real(ninfer, models[0], "run", "--session", "doc", "--no-cache", "--json", "When?")
    assert reply(asked)["usage"]["reused_tokens"] == 0 and off in asked.stderr
    told = real(ninfer, models[0], "chat", "--script", "-", "--no-autosave", "--session", "doc", "--no-cache")
    assert off in told.stderr and "resumable" not in told.stderr
    kept = ("--autosave", "--session", "talk")
    assert real(ninfer, models[0], "chat", "--script", "-", *kept, stdin="Hello\nAgain\n/undo\nElse\n").returncode == 0
    few = real(ninfer, models[0], "run", "--session", "talk", "--no-cache", "When?")
    assert " found no room\n" in few.stderr and "raise --device" not in few.stderr
    on = real(ninfer, models[0], "restore-session", "doc")
    assert "resumable from device" in on.stdout and "cache is off" not in on.stderr


@pytest.mark.parametrize("kind", [NoRoom, SessionInUse, SessionError])
def test_only_what_is_refused_for_its_state_is_advised_on(document: Path, kind: type[SessionError]) -> None:
    with pytest.raises(kind) as told, rescue(document):
        raise kind("the reason")
    assert ("; ninfer restore-session" in str(told.value)) is (kind is SessionError)
