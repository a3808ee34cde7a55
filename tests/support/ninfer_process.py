"""Run the real program in a process of its own, on the fake Engine, with a private home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Ninfer:
    """One private home, one queue of replies."""

    home: Path
    scenario: dict[str, Any] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NINFER_", "XDG_")) and k != "NO_COLOR"}
        return {
            **kept,
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "PYTHONPATH": str(ROOT),
            "NINFER_AUTOSAVE": "off",  # the fake Engine has no state to keep, and the real one's is slow to import
            "TERM": "xterm-256color",
        }

    @property
    def log(self) -> list[dict[str, Any]]:
        """What the fake Engine was asked."""
        path = self.home / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def replies(self, *replies: Any) -> Ninfer:
        """Queue replies: text, or a dictionary of Scripted's fields."""
        self.scenario["replies"] = [r if isinstance(r, dict) else {"text": r} for r in replies]
        return self

    def command(self, *arguments: str) -> list[str]:
        path = self.home / "scenario.json"
        path.write_text(json.dumps({**self.scenario, "log": str(self.home / "log")}), encoding="utf-8")
        return [sys.executable, "-m", "tests.support.fake_ninfer", str(path), *arguments]

    def __call__(
        self, *arguments: str, stdin: str | bytes = b"", environment: dict[str, str] | None = None, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env={**self.environment, **(environment or {})},
            cwd=self.home,
            timeout=timeout,
            check=False,
        )
        out, err = done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode("utf-8", "replace")
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            cwd=self.home,
            stdout=pipe,
            stderr=pipe,
            stdin=subprocess.DEVNULL,
            **more,
        )
