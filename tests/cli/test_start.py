"""What must be cheap: --help, --version and usage errors load neither torch nor rich nor prompt-toolkit."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ninfer_cli.boundary import guarded
from tests.support.ninfer_process import ROOT, Ninfer

PROBE = """
import sys
from ninfer_cli.app import main
try:
    main(sys.argv[1:])
finally:
    names = ("torch", "numpy", "rich", "prompt_toolkit", "jinja2", "tokenizers")
    print("heavy:", [name for name in names if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 0),
        (["--help"], 0),
        (["run", "--help"], 0),
        (["chat", "-h"], 0),
        (["bench", "--help"], 0),
        (["--version"], 0),
        (["run", "--nope"], 2),
        (["chat"], 2),
        (["run", "--max-new", "0", "x"], 2),
        (["run", "--temperature", "-1", "x"], 2),
        (["run", "--file", "nowhere", "x"], 2),
        (["bench", "--random", "3b"], 2),
        (["bench", "pp"], 2),
    ],
)
def test_nothing_heavy_is_imported(ninfer: Ninfer, arguments: list[str], status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        env=ninfer.environment,
        cwd=ninfer.home,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == status, done.stderr
    assert done.stderr.splitlines()[-1] == "heavy: []"
    assert (done.stdout != "") == (status == 0)


def test_help_lists_the_commands_and_has_no_escape_codes(ninfer: Ninfer) -> None:
    done = ninfer("--help")
    assert all(f"\n  {name}" in done.stdout for name in ("run", "chat", "bench")) and "\x1b" not in done.stdout
    assert "..." not in done.stdout.partition("Commands:")[2], "a summary is cut off"


def test_version_is_the_projects(ninfer: Ninfer) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert ninfer("--version").stdout in (f"ninfer {version}\n", "ninfer (not installed: run from its sources)\n")


def test_python_dash_m(ninfer: Ninfer) -> None:
    command = [sys.executable, "-m", "ninfer_cli", "rnu"]
    done = subprocess.run(command, env=ninfer.environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and done.stderr.startswith("ninfer: ") and done.stderr.count("\n") == 1


def entry_points() -> dict[str, list[str]]:
    """How a console script, as installers write it, and python -m begin."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["ninfer"].partition(":")
    return {
        "console script": [sys.executable, "-c", f"import sys; from {module} import {name}; sys.exit({name}())"],
        "python -m": [sys.executable, "-m", "ninfer_cli"],
    }


INTERRUPT = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n"


@pytest.mark.parametrize("how", entry_points())
@pytest.mark.parametrize("loaded", [INTERRUPT, f"exec({INTERRUPT!r})"], ids=["in a module", "in executed text"])
def test_an_interrupt_while_the_program_loads_is_silent(ninfer: Ninfer, tmp_path: Path, how: str, loaded: str) -> None:
    (tmp_path / "typer.py").write_text(loaded)
    environment = {**ninfer.environment, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run([*entry_points()[how], "run", "hi"], env=environment, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_the_entry_point_loads_nothing_before_it_listens(ninfer: Ninfer) -> None:
    probe = """
import sys
before = set(sys.modules)
import ninfer_cli.__main__
loaded = sorted(set(sys.modules) - before - set(sys.stdlib_module_names))
print(loaded, set(sys.modules) & {"ninfer_cli.app", "typer", "ninfer_core"})
"""
    done = subprocess.run([sys.executable, "-c", probe], env=ninfer.environment, capture_output=True, timeout=30)
    assert done.stdout == b"['ninfer_cli', 'ninfer_cli.__main__'] set()\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_at_the_start_do_no_harm(ninfer: Ninfer, closed: str) -> None:
    command = shlex.join(ninfer.command("run", "-q", "hello"))
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"], env=ninfer.environment, cwd=ninfer.home, capture_output=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, b"")
    script = shlex.join(ninfer.command("chat", "--script", "-"))
    done = subprocess.run(["sh", "-c", f"{script} <&-"], env=ninfer.environment, capture_output=True, timeout=30)
    assert done.returncode == 2 and b"terminal or closed" in done.stderr


@pytest.mark.parametrize("source", [["--file", "/dev/zero"], ["--messages", "/dev/zero"]])
def test_a_source_without_end_is_refused(ninfer: Ninfer, source: list[str]) -> None:
    done = ninfer("run", *source)
    assert done.returncode == 2 and "larger than 64 MiB" in done.stderr


def test_no_room_for_a_library_is_not_called_a_broken_installation(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        try:
            raise ImportError("libtorch_cpu.so: failed to map segment from shared object")
        except ImportError as error:
            raise ImportError("PLEASE READ THIS") from error

    assert guarded(work, verbose=False) == 1
    assert capsys.readouterr().err.startswith("ninfer: out of memory while loading torch: ")
