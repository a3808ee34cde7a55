"""A home of one's own, and chats in this process: starting another one would take most of the time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ninfer_cli.app import main

BASE = ("--dtype", "float32", "--max-context", "1024", "--seed", "1")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [n for n in os.environ if n.startswith("NINFER_")]:
        monkeypatch.delenv(name)
    for kind in ("state", "config", "cache"):
        monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", str(tmp_path / kind))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


class Reply:
    """One object of --json per reply, the commands' results beside them."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.err = status, err
        objects = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        self.replies = [o for o in objects if "usage" in o]
        self.results = {o["command"].split()[0]: o for o in objects if "command" in o}


@pytest.fixture
def chat(home: Path, capfd: pytest.CaptureFixture[str]):
    def run(*lines: str, options: tuple[str, ...] = ()) -> Reply:
        script = home / "script.txt"
        script.write_text("\n".join(lines) + "\n")
        with pytest.raises(SystemExit) as end:
            main(["chat", "--script", str(script), "--json", *BASE, *options])
        out, err = capfd.readouterr()
        return Reply(int(end.value.code or 0), out, err)

    return run
