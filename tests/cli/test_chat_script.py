"""`ninfer chat --script`: REPL lines without a terminal."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from tests.support.ninfer_process import Ninfer


def prompts(ninfer: Ninfer) -> list[list[str]]:
    return [entry["prepare"] for entry in ninfer.log if "submit" not in entry and "prepare" in entry]


def test_replies_are_separated_and_commands_go_to_standard_error(ninfer: Ninfer) -> None:
    script = 'Hello\n\n# a comment\n\\#hash\n/think on\none \\\ntwo\n"""\nfirst\n\nsecond\n"""\n/exit\nnever\n'
    done = ninfer.replies("A", "B", "C", "D")("chat", "-q", "--script", "-", stdin=script)
    assert (done.returncode, done.stdout) == (0, "A\n\nB\n\nC\n\nD\n")
    assert done.stderr == "thinking: on\n"
    assert [messages[-1] for messages in prompts(ninfer)] == [
        "user: Hello",
        "user: #hash",
        "user: one \ntwo",
        "user: first\n\nsecond",
    ]
    assert prompts(ninfer)[-1][:3] == ["user: Hello", "assistant: A", "user: #hash"]


def test_it_stops_at_the_first_error(ninfer: Ninfer, tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("one\n/set top-q 3\ntwo\n")
    done = ninfer("chat", "-q", "--script", "s.txt")
    assert (done.returncode, done.stdout) == (1, "You said: one\n")
    assert done.stderr == "ninfer: line 2: there is no setting top-q: did you mean top-p?\n"


def test_keep_going(ninfer: Ninfer) -> None:
    done = ninfer("chat", "-q", "--keep-going", "--script", "-", stdin="/nope\ntwo\n")
    assert (done.returncode, done.stdout) == (1, "You said: two\n")


def test_a_message_that_could_not_be_sent_leaves_no_blank_line(ninfer: Ninfer) -> None:
    script = f"one\n{'long ' * 1000}\ntwo\n"
    done = ninfer("chat", "-q", "--keep-going", "--script", "-", stdin=script)
    assert (done.returncode, done.stdout) == (1, "You said: one\n\nYou said: two\n")


def test_a_closed_standard_input_is_a_usage_error(ninfer: Ninfer) -> None:
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *ninfer.command("chat", "--script", "-")]
    done = subprocess.run(command, env=ninfer.environment, cwd=ninfer.home, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and done.stderr.startswith("ninfer: --script - reads standard input")


def test_files_of_the_command_line_come_before_the_first_message(ninfer: Ninfer) -> None:
    (ninfer.home / "doc.txt").write_text("DOC\n")
    done = ninfer("chat", "-q", "--file", "doc.txt", "--script", "-", stdin="sum it up\nand now\n")
    assert done.returncode == 0, done.stderr
    assert prompts(ninfer)[1] == ["user: DOC\n\nsum it up", "assistant: You said: DOC\n\nsum it up", "user: and now"]


def test_set_default_goes_back_to_the_start(ninfer: Ninfer) -> None:
    script = "/set stop END\n/set stop default\n/set temperature 1\n/set temperature default\nhi\n"
    done = ninfer("chat", "-q", "--greedy", "--stop", "ABC", "--script", "-", stdin=script)
    assert done.returncode == 0, done.stderr
    last = [entry for entry in ninfer.log if "submit" in entry][-1]
    assert (last["stop"], last["temperature"]) == (["ABC"], 0.0)


def test_json_lines(ninfer: Ninfer) -> None:
    script = "one\n/undo\nanother\n/set top-k 5\n/stats\n/undo 7\n"
    done = ninfer("chat", "--json", "-q", "--script", "-", stdin=script)
    values = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and len(values) == 6
    assert values[0]["branch"] == {"turn": 1, "sibling": 1, "siblings": 1, "name": None}
    assert values[1] == {"command": "/undo", "ok": True, "result": {"undone": 1, "turns": 0}}
    assert values[2]["branch"] == {"turn": 1, "sibling": 2, "siblings": 2, "name": None}
    assert values[3] == {"command": "/set top-k 5", "ok": True, "result": {"top-k": 5}}
    assert values[4]["result"]["text"] == "You said: another"
    assert values[5] == {"command": "/undo 7", "ok": False, "result": "/undo 7: give how many messages to go back, 1"}


def test_a_failed_reply_is_an_object_too(ninfer: Ninfer) -> None:
    ninfer.replies({"text": "so", "finish": "error", "error": "it fell"}, "fine")
    done = ninfer("chat", "--json", "-q", "--keep-going", "--script", "-", stdin="a\nb\n")
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["finish_reason"], first["error"], first["text"]) == ("error", "it fell", "so")
    assert second["branch"]["turn"] == 1 and prompts(ninfer)[1] == ["user: b"]


def test_settings_files_and_system(ninfer: Ninfer, tmp_path: Path) -> None:
    (tmp_path / "doc.txt").write_text("DOC\n")
    script = (
        "/file doc.txt\nsum it up\n/system Be brief.\n/set stop END\n/set max-new 3\n/set greedy on\ngo on\n/new\nhi\n"
    )
    done = ninfer("chat", "-s", "Old.", "--script", "-", stdin=script)
    assert done.returncode == 0, done.stderr
    assert "the next reply reads" in done.stderr
    said = [messages for messages in prompts(ninfer) if messages[-1].startswith("user")]
    assert said[0] == ["system: Old.", "user: DOC\n\nsum it up"]
    assert said[1][0] == "system: Be brief." and said[1][1] == "user: DOC\n\nsum it up" and said[1][-1] == "user: go on"
    assert said[2] == ["system: Be brief.", "user: hi"]
    last = [entry for entry in ninfer.log if "submit" in entry][-1]
    assert (last["submit"], last["stop"], last["temperature"]) == (3, ["END"], 0.0)


def test_bad_commands_change_nothing(ninfer: Ninfer) -> None:
    script = "/set temperature hot\n/set\n/think maybe\n/undo\n/file nowhere\n/stats\n/new now\n/help nope\n"
    done = ninfer("chat", "-q", "--keep-going", "--json", "--script", "-", stdin=script)
    values = [json.loads(line) for line in done.stdout.splitlines()]
    assert [value["ok"] for value in values] == [False, True, False, False, False, False, False, False]
    assert values[1]["result"]["temperature"] == 0.7
    assert done.stderr.count("\n") == 7 and "Traceback" not in done.stderr


def test_overflow_names_the_numbers_and_leaves_the_conversation(ninfer: Ninfer) -> None:
    script = "a\n" + "b " * 40 + "\n/stats\nc\n"
    done = ninfer("chat", "-q", "--max-context", "30", "--keep-going", "--script", "-", stdin=script)
    assert "/undo" in done.stderr and "--max-context" in done.stderr and "30" in done.stderr
    assert prompts(ninfer)[-1][-2:] == ["assistant: You said: a", "user: c"]


def test_without_terminal_it_names_run_and_script_before_loading(ninfer: Ninfer) -> None:
    done = ninfer("chat")
    assert (done.returncode, done.stdout, ninfer.log) == (2, "", [])
    assert "ninfer run" in done.stderr and "--script" in done.stderr and done.stderr.count("\n") == 1


def test_bad_script_files(ninfer: Ninfer) -> None:
    assert "nowhere" in ninfer("chat", "--script", "nowhere").stderr
    done = ninfer("chat", "--script", "-", stdin=b"ok\n\xff")
    assert done.returncode == 2 and "byte 3" in done.stderr and ninfer.log == []


def test_interrupt_ends_the_script(ninfer: Ninfer, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("one\ntwo\n")
    process = ninfer.replies({"text": "a b c d e f", "delay": 0.3}).start("chat", "-q", "--script", "s")
    assert process.stdout and process.stdout.read(2) == b"a "
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 130 and b"two" not in out and b"interrupted" in err


def test_undo_of_less_than_one_turn_says_so(ninfer: Ninfer) -> None:
    done = ninfer("chat", "--script", "-", stdin="one\n/undo -1\n")
    assert done.returncode == 1 and "/undo -1: give how many messages to go back, 1" in done.stderr
