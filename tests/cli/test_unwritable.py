"""A standard stream that takes nothing: the answer's is an error in one line, the other one costs nothing."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ninfer_cli.boundary import guarded
from tests.support.ninfer_process import Ninfer

FULL = "/dev/full"

pytestmark = pytest.mark.skipif(not Path(FULL).exists(), reason="this system has no /dev/full")


def shell(ninfer: Ninfer, command: list[str], redirected: str, stdin: bytes = b"") -> Any:
    return subprocess.run(
        ["sh", "-c", f"{shlex.join(command)} {redirected}"],
        input=stdin,
        env=ninfer.environment,
        cwd=ninfer.home,
        capture_output=True,
        timeout=60,
    )


@pytest.mark.parametrize("redirected", [f"2>{FULL}", "2</dev/null"])
def test_what_standard_error_does_not_take_costs_nothing(ninfer: Ninfer, redirected: str) -> None:
    ninfer.replies({"text": "Four.", "reasoning": "Two and two."})
    done = shell(ninfer, ninfer.command("run", "--stats", "2+2?"), redirected)
    assert (done.returncode, done.stdout) == (0, b"Four.\n")
    done = shell(ninfer, ninfer.command("chat", "--script", "-"), redirected, b"2+2?\n/stats\n")
    assert (done.returncode, done.stdout) == (0, b"Four.\n")
    assert shell(ninfer, ninfer.command("run", "--nope"), redirected).returncode == 2


@pytest.mark.parametrize(
    "arguments", [("run", "-q", "hi"), ("run", "-q", "--json", "hi"), ("--help",), ("run", "--help"), ("--version",)]
)
def test_standard_output_that_takes_nothing_is_named(ninfer: Ninfer, arguments: tuple[str, ...]) -> None:
    done = shell(ninfer, ninfer.command(*arguments), f">{FULL}")
    line = b"ninfer: standard output cannot be written: no space left on the device\n"
    assert (done.returncode, done.stderr) == (1, line)


def test_a_full_disk_is_blamed_on_the_file_that_the_error_names(capsys: pytest.CaptureFixture[str]) -> None:
    def full(name: str | None) -> str:
        def work() -> int:
            raise OSError(errno.ENOSPC, "No space left on device", name)

        assert guarded(work, verbose=False) == 1
        return capsys.readouterr().err

    assert full("a.txt") == "ninfer: a.txt cannot be written: no space left on the device\n"
    assert full(None) == "ninfer: no space left on the device\n", "which one is not known"


def test_the_last_flush_belongs_to_standard_output(ninfer: Ninfer) -> None:
    code = "from ninfer_cli.boundary import guarded; raise SystemExit(guarded(lambda: print(1) or 0, verbose=False))"
    done = shell(ninfer, ["env", "-u", "PYTHONUNBUFFERED", sys.executable, "-c", code], f">{FULL}")
    assert (done.returncode, done.stderr.count(b"standard output")) == (1, 1), done.stderr


def test_the_answer_outlives_the_reader_of_standard_error(ninfer: Ninfer) -> None:
    ninfer.replies({"text": "Four.", "reasoning": ["x" * 1000] * 200})
    done = shell(ninfer, ninfer.command("run", "-v", "--stats", "2+2?"), "2>&1 >answer | head -c 1")
    assert (ninfer.home / "answer").read_text() == "Four.\n" and len(done.stdout) == 1


def test_a_disk_that_fails_is_no_terminal_that_hung_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failed() -> int:
        raise OSError(errno.EIO, "Input/output error")

    with (tmp_path / "answer").open("w") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        assert guarded(failed, verbose=False) == 1
    assert capsys.readouterr().err.startswith("ninfer: ")
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        assert guarded(failed, verbose=False) == 0
    os.close(ours)
