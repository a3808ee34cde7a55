"""`ninfer run` as a process: what goes where, and with which status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.ninfer_process import Ninfer


def test_answer_on_standard_output_and_nothing_else(ninfer: Ninfer) -> None:
    done = ninfer.replies("Hello there, *friend*.")("run", "Hi")
    assert (done.returncode, done.stdout) == (0, "Hello there, *friend*.\n")
    assert done.stderr.count("\n") == 1 and "--model" in done.stderr and "demo" in done.stderr
    assert ninfer.log[0]["prepare"] == ["user: Hi"]
    assert ninfer.log[-1] == {"closed": True}


def test_quiet_and_a_named_model_drop_the_demo_line(ninfer: Ninfer) -> None:
    assert ninfer("run", "-q", "Hi").stderr == ""
    assert ninfer("run", "-m", "some/where", "Hi").stderr == ""


def test_standard_input_comes_before_the_argument(ninfer: Ninfer) -> None:
    ninfer("run", "Summarise it", stdin="a text\n\n")
    assert ninfer.log[0]["prepare"] == ["user: a text\n\nSummarise it"]


def test_system_and_files(ninfer: Ninfer, tmp_path: Path) -> None:
    (tmp_path / "rules.txt").write_text("Be brief.\n")
    (tmp_path / "a.txt").write_text("AAA\n")
    (tmp_path / "b.txt").write_text("\ufeffBBB")
    done = ninfer("run", "-s", "@rules.txt", "--file", "a.txt", "--file", "b.txt", "Compare", stdin="piped")
    assert done.returncode == 0
    assert ninfer.log[0]["prepare"] == ["system: Be brief.", "user: AAA\n\nBBB\n\npiped\n\nCompare"]


def test_messages_from_file_and_standard_input(ninfer: Ninfer, tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    value = {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}], "tools": [tool]}
    (tmp_path / "m.json").write_text(json.dumps(value))
    assert ninfer("run", "--messages", "m.json").returncode == 0
    assert ninfer("run", "--messages", "-", stdin=json.dumps(value)).returncode == 0
    prepared = [entry for entry in ninfer.log if "prepare" in entry]
    assert [entry["prepare"] for entry in prepared] == [["system: S", "user: U"]] * 2
    assert [entry["tools"] for entry in prepared] == [[tool]] * 2


def test_a_prompt_without_quotes_is_told_what_to_do(ninfer: Ninfer) -> None:
    done = ninfer("run", "hi", "there", "-q", "you")
    hint = (
        "Got unexpected extra argument(s) (there you): put a prompt of several words in quotes (see ninfer run --help)"
    )
    assert (done.returncode, done.stderr) == (2, f"ninfer: {hint}\n")
    assert "quotes" not in ninfer("restore-session", "a", "b").stderr


def test_a_variable_that_no_option_has_is_told_of(ninfer: Ninfer) -> None:
    variables = {"NINFER_MAXNEW": "3", "NINFER_QQQQ": "1", "NINFER_SEED": "1", "NINFER_EMPTY": ""}
    done = ninfer.replies("Four.")("run", "-q", "2+2?", environment=variables)
    assert (done.returncode, done.stdout) == (0, "Four.\n")
    assert done.stderr.splitlines() == [
        "ninfer: NINFER_MAXNEW is no option of ninfer's, it has no effect: did you mean NINFER_MAX_NEW?",
        "ninfer: NINFER_QQQQ is no option of ninfer's, it has no effect: unset it, ninfer run --help shows what there "
        "is",
    ]


def test_reasoning_goes_to_standard_error(ninfer: Ninfer) -> None:
    ninfer.replies({"text": "Four.", "reasoning": "Two and two."})
    done = ninfer("run", "-m", "x", "2+2?")
    assert (done.stdout, done.stderr) == ("Four.\n", "Two and two.\n")
    hidden = ninfer("run", "-m", "x", "--reasoning", "hide", "2+2?")
    assert (hidden.stdout, hidden.stderr) == ("Four.\n", "")


def test_json_has_every_key_of_the_schema(ninfer: Ninfer) -> None:
    done = ninfer.replies({"text": "Four.", "reasoning": "Add."})("run", "--json", "--seed", "3", "2+2?")
    value = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert value == {
        "version": 1, "model": "fake", "text": "Four.", "reasoning": "Add.", "tool_calls": None,
        "finish_reason": "stop", "error": None, "seed": 3, "prompt_token_ids": None, "token_ids": None,
        "usage": {"prompt_tokens": 2, "reused_tokens": 0, "prefill_tokens": 2, "completion_tokens": 2},
        "reuse": {"source": "Root", "frontier": 0, "placement": "none", "operation": "none",
                  "misses": [{"from": 0, "to": 2, "reason": "disabled", "detail": "reuse is off"}]},
        "transfer": {"bytes": 0, "ms": 0.0},
        "planning": {"ms": 0.0, "stop": "no_pressure", "targets": 1},
        "captures": [],
        "timings": {"ttft_ms": 48.2, "prefill_ms": 5.0, "decode_tokens_per_s": 31.24},
        "branch": {"turn": 1, "sibling": 1, "siblings": 1, "name": None},
    }  # fmt: skip


def test_json_tokens_implies_json_and_lists_them(ninfer: Ninfer) -> None:
    value = json.loads(ninfer.replies("a b")("run", "--json-tokens", "Hi").stdout)
    assert (value["prompt_token_ids"], value["token_ids"]) == ([0, 1], [0, 1])


def test_json_survives_lone_surrogates_and_missing_timings(ninfer: Ninfer) -> None:
    ninfer.replies({"text": ["\ud83d", "x", "é"]})
    assert json.loads(ninfer("run", "--json", "Hi").stdout)["text"] == "\ud83dxé"
    ninfer.replies({"text": "", "tool_calls": [["f", {"a": 1}]], "finish": "tool_calls"})
    value = json.loads(ninfer("run", "--json", "Hi").stdout)
    assert value["tool_calls"] == [{"name": "f", "arguments": {"a": 1}}]
    assert value["timings"] == {"ttft_ms": None, "prefill_ms": 5.0, "decode_tokens_per_s": None}


def test_tool_calls_are_named_on_standard_error(ninfer: Ninfer) -> None:
    ninfer.replies({"text": "", "tool_calls": [["f", {"a": "ä"}]], "finish": "tool_calls"})
    done = ninfer("run", "-q", "Hi")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", 'ninfer: tool call: f {"a": "ä"}\n')


def test_control_characters_pass_through_a_pipe(ninfer: Ninfer) -> None:
    done = ninfer.replies({"text": ["\x1b[31m", "red\r\n", "\u202e"]})("run", "Hi")
    assert done.stdout == "\x1b[31mred\r\n\u202e\n"


def test_statistics_line(ninfer: Ninfer) -> None:
    done = ninfer.replies("a b")("run", "-m", "x", "--stats", "one two")
    assert done.stderr == "reused 0/3 tok · Root · prefill 3 tok · TTFT 48 ms · 31.2 tok/s · plan 0.0 ms\n"


def test_length_is_said_once(ninfer: Ninfer) -> None:
    done = ninfer.replies("a b c d")("run", "-q", "--max-new", "2", "Hi")
    assert (done.returncode, done.stdout) == (0, "a b \n")
    assert done.stderr == "ninfer: the reply was cut at 2 tokens: raise --max-new\n"


def test_a_failed_reply_keeps_its_partial_text(ninfer: Ninfer) -> None:
    done = ninfer.replies({"text": "so far", "finish": "error", "error": "the worker\nfell over"})("run", "-q", "Hi")
    assert (done.returncode, done.stdout, done.stderr) == (1, "so far\n", "ninfer: the worker fell over\n")


def test_settings_reach_the_engine(ninfer: Ninfer) -> None:
    ninfer(
        "run",
        "--stop",
        "END",
        "--stop",
        "\n\n",
        "--max-new",
        "9",
        "--greedy",
        "--thinking-budget",
        "5",
        "--think",
        "Hi",
    )
    entry = next(entry for entry in ninfer.log if "submit" in entry)
    assert entry == {"submit": 9, "stop": ["END", "\n\n"], "temperature": 0.0, "seed": None, "budget": 5}
    assert ninfer.log[0]["thinking"] is True


def test_verbose_says_what_was_resolved_and_by_whom(ninfer: Ninfer) -> None:
    done = ninfer("run", "-v", "--max-new", "9", "Hi", environment={"NINFER_TOP_K": "5"})
    assert "ninfer: max-new = 9 (flag)\n" in done.stderr
    assert "ninfer: top-k = 5 (environment)\n" in done.stderr
    assert "ninfer: temperature = 0.7 (model)\n" in done.stderr
    assert "ninfer: dtype = float32\n" in done.stderr


BAD = [
    (["run"], b"", 2, "chat"),
    (["run", "  "], b"", 2, "empty"),
    (["run"], b"\n \n", 2, "prompt"),
    (["run"], b"abc\xff", 2, "byte 3"),
    (["run", b"caf\xe9"], b"", 2, "byte 3"),
    (["run", "--file", "nowhere.txt", "Hi"], b"", 2, "nowhere.txt"),
    (["run", "--file", "folder", "Hi"], b"", 2, "directory"),
    (["run", "-s", "@nowhere.txt", "Hi"], b"", 2, "nowhere.txt"),
    (["run", "--messages", "nowhere.json"], b"", 2, "nowhere.json"),
    (["run", "--messages", "folder"], b"", 2, "directory"),
    (["run", "--messages", "-"], b"[{]", 2, "line 1"),
    (["run", "--messages", "-"], b'[{"role": "king", "content": "x"}]', 2, "king"),
    (["run", "--messages", "-", "Hi"], b"[]", 2, "--messages"),
    (["run", "--max-new", "0", "Hi"], b"", 2, "--max-new is '0': it must be at least 1"),
    (["run", "--max-new", "many", "Hi"], b"", 2, "--max-new is 'many': it must be a whole number"),
    (["run", "--temperature", "nan", "Hi"], b"", 2, "temperature"),
    (["run", "--top-p", "1.5", "Hi"], b"", 2, "top-p"),
    (["run", "--greedy", "--temperature", "1", "Hi"], b"", 2, "exclude"),
    (["run", "--device", "gpu", "Hi"], b"", 2, "device"),
    (["run", "--dtype", "int8", "Hi"], b"", 2, "--dtype is 'int8'"),
    (["run", "--max-concurrency", "9", "Hi"], b"", 2, "max-concurrency"),
    (["run", "--stop", "", "Hi"], b"", 2, "--stop"),
    (["run", "--max-nwe", "3", "Hi"], b"", 2, "--max-nwe"),
    (["run", "--max-new"], b"", 2, "--max-new"),
    (["run", "a", "b"], b"", 2, "b"),
    (["rum"], b"", 2, "rum"),
    (["run", "--max-context", "4", "one two three four"], b"", 2, "the context holds 4"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "stdin", "status", "says"), BAD)
def test_bad_input_is_one_line(
    ninfer: Ninfer, tmp_path: Path, arguments: list[str | bytes], stdin: bytes, status: int, says: str
) -> None:
    (tmp_path / "folder").mkdir()
    words = [os.fsdecode(word) if isinstance(word, bytes) else word for word in arguments]
    done = ninfer(*words, stdin=stdin)
    lines = [line for line in done.stderr.splitlines() if "demo model" not in line]
    assert (done.returncode, done.stdout, len(lines)) == (status, "", 1), done.stderr
    assert lines[0].startswith("ninfer: ") and says in lines[0]


LOAD_ERRORS = [
    ("ModelError", "there is no directory x", "there is no directory x", 1),
    ("MemoryError", "", "--max-context", 1),
    ("RuntimeError", "DefaultCPUAllocator: can't allocate memory: 99 bytes", "--kv-capacity", 1),
    ("ImportError", "libtorch_cpu.so: cannot open shared object file", "installation is broken", 1),
    ("RuntimeError", "two\nlines", "unexpected RuntimeError: two lines: -v shows", 1),
]


@pytest.mark.parametrize(("kind", "message", "says", "status"), LOAD_ERRORS)
def test_errors_at_start_up_are_one_line(ninfer: Ninfer, kind: str, message: str, says: str, status: int) -> None:
    ninfer.scenario["load_error"] = [kind, message]
    done = ninfer("run", "-q", "Hi")
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)
    assert done.stderr.startswith("ninfer: ") and says in done.stderr
    assert "Traceback" in ninfer("run", "-v", "Hi").stderr


def test_thinking_without_a_switch_is_refused(ninfer: Ninfer) -> None:
    ninfer.scenario["thinking_switch"] = False
    done = ninfer("run", "-q", "--think", "Hi")
    assert (done.returncode, done.stdout) == (2, "") and "no thinking switch" in done.stderr


def test_unknown_names_in_the_configuration(ninfer: Ninfer, tmp_path: Path) -> None:
    (tmp_path / "config" / "ninfer").mkdir(parents=True)
    file = tmp_path / "config" / "ninfer" / "config.toml"
    for text, says in [
        ("max_new = 3", "did you mean max-new?"),
        ("max-new = 'x'", "max-new is 'x': it must be a whole number"),
        ("greedy = 1", "greedy is 1: it must be true or false"),
        ("file = 'x'", "unknown key 'file'"),
        ("= 3", "no valid TOML"),
    ]:
        file.write_text(text)
        done = ninfer("run", "-q", "Hi")
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr


def test_precedence_flag_environment_configuration_model(ninfer: Ninfer, tmp_path: Path) -> None:
    (tmp_path / "config" / "ninfer").mkdir(parents=True)
    (tmp_path / "config" / "ninfer" / "config.toml").write_text("max-new = 3\ntemperature = 0.3\nstop = ['A', 'B']\n")
    environment = {"NINFER_MAX_NEW": "5"}
    ninfer("run", "Hi")
    ninfer("run", "Hi", environment=environment)
    ninfer("run", "--max-new", "7", "--greedy", "Hi", environment=environment)
    submitted = [(e["submit"], e["temperature"], e["stop"]) for e in ninfer.log if "submit" in e]
    assert submitted == [(3, 0.3, ["A", "B"]), (5, 0.3, ["A", "B"]), (7, 0.0, ["A", "B"])]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_reply_and_keeps_its_text(ninfer: Ninfer, number: int, status: int) -> None:
    process = ninfer.replies({"text": "one two three four five", "delay": 0.3}).start("run", "-q", "Hi")
    assert process.stdout and process.stderr
    assert process.stdout.read(4) == b"one "
    process.send_signal(number)
    out, err = process.communicate(timeout=10)
    assert process.returncode == status and err == b""
    assert b"five" not in out and out.endswith(b"\n")
    assert ninfer.log[-1] == {"closed": True}


def test_a_second_interrupt_ends_at_once(ninfer: Ninfer) -> None:
    process = ninfer.replies({"text": "one two", "delay": 5, "ignore_cancel": True}).start("run", "-q", "Hi")
    while not any("submit" in entry for entry in ninfer.log):
        time.sleep(0.05)
    time.sleep(0.2)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 130 and time.monotonic() - started < 3
    process.communicate()


def test_a_closed_pipe_ends_quietly(ninfer: Ninfer) -> None:
    process = ninfer.replies({"text": ["x" * 1000] * 200, "delay": 0.01}).start("run", "-q", "Hi")
    assert process.stdout and process.stderr
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(timeout=10) == 0


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("--version",)])
def test_help_whose_reader_has_gone_ends_quietly(ninfer: Ninfer, words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        done = subprocess.run(
            ninfer.command(*words), env=ninfer.environment, stdout=gone, stderr=subprocess.PIPE, timeout=60
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_lease_that_cannot_grow_is_not_called_a_full_context(ninfer: Ninfer) -> None:
    ninfer.replies(*({"text": "one two", "finish": "length"},) * 2)
    done = ninfer("run", "-q", "--kv-lease-growth", "Hi")
    assert done.stderr.endswith("the reply was cut: raise --kv-capacity, or leave out --kv-lease-growth\n")
    assert "the context is full" in ninfer("run", "-q", "Hi").stderr
