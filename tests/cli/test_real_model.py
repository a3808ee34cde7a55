"""The command line on the real Engine: a tiny checkpoint of random weights, so only the mechanics are looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ninfer_core import write_random_checkpoint
from tests.support.ninfer_process import Ninfer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint("tiny", tmp_path_factory.mktemp("models"))


def real(ninfer: Ninfer, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ninfer_cli", *arguments]
    environment = {**ninfer.environment, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, input=stdin, env=environment, cwd=ninfer.home, capture_output=True, text=True, timeout=280, check=False
    )


def test_a_script(ninfer: Ninfer, model: Path) -> None:
    script = "one\n/new\none\n/undo\ntwo\n/think on\nthree\n" + "word " * 200 + "\n/stats\n"
    sizes = ("--max-new", "4", "--max-context", "128")
    arguments = ("-m", str(model), "--json-tokens", "--seed", "5", *sizes, "--keep-going", "--script", "-")
    done = real(ninfer, "chat", *arguments, stdin=script)
    values = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1, done.stderr
    first, _, again, _, sibling, _, three, stats = values
    assert first["token_ids"] == again["token_ids"] and first["text"] == again["text"]
    assert first["seed"] == 5 and first["reuse"]["source"] == "Root" and first["model"] == model.name
    usage = first["usage"]
    assert usage["prompt_tokens"] == len(first["prompt_token_ids"]) == usage["prefill_tokens"]
    assert usage["completion_tokens"] == len(first["token_ids"]) <= 4
    assert sibling["branch"] == {"turn": 1, "sibling": 2, "siblings": 2, "name": None}
    assert three["branch"]["turn"] == 2 and stats["ok"]
    assert "the context holds 128" in done.stderr and "Traceback" not in done.stderr


def test_bench(ninfer: Ninfer, model: Path) -> None:
    rows = json.loads(real(ninfer, "bench", "-m", str(model), "-r", "1", "-o", "json", "pp8", "tg4").stdout)
    assert [row["prefill_tokens"] for row in rows] == [8, 1]
    assert all(row["tokens_per_s"]["mean"] > 0 for row in rows)
