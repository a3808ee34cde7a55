"""`ninfer bench`: rows, forms, mistakes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from ninfer_cli.app import main
from ninfer_cli.benchmark.plan import BenchTest, parse_batches, parse_tests
from ninfer_cli.benchmark.report import formatted, row_object
from ninfer_cli.benchmark.reuse import SCENARIOS, ReuseTest, parse_reuse, run_reuse
from ninfer_cli.benchmark.sample import summary
from ninfer_core import Engine, EngineOptions
from tests.cli.test_real_model import real
from tests.support.ninfer_process import Ninfer


def test_json_rows_have_the_documented_form(ninfer: Ninfer) -> None:
    done = ninfer("bench", "-q", "-r", "2", "-o", "json", "-b", "1,2", "pp8", "tg4")
    rows = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == ""
    assert [(row["test"], row["settings"]["batch"]) for row in rows] == [("pp8", 1), ("pp8", 2), ("tg4", 1), ("tg4", 2)]
    for row in rows:
        assert list(row) == [
            "test",
            "tokens_per_s",
            "ttft_ms",
            "reused_tokens",
            "prefill_tokens",
            "settings",
            "machine",
        ]
        assert list(row["tokens_per_s"]) == list(row["ttft_ms"]) == ["mean", "std", "samples"]
        assert len(row["tokens_per_s"]["samples"]) == 2 and row["settings"]["peak_rss_bytes"] > 0
        assert row["machine"]["torch"] and row["settings"]["dtype"] == "float32"
    assert [row["prefill_tokens"] for row in rows] == [8, 16, 1, 2]
    assert rows[3]["tokens_per_s"]["mean"] == pytest.approx(2 * 31.24)


def test_other_forms(ninfer: Ninfer) -> None:
    assert ninfer("bench", "-q", "-r", "1", "tg4").stdout.startswith("| implementation | test ")
    lines = ninfer("bench", "-q", "-r", "1", "-o", "jsonl", "tg4", "pp4").stdout.splitlines()
    assert [json.loads(line)["test"] for line in lines] == ["tg4", "pp4"]
    table = list(csv.DictReader(io.StringIO(ninfer("bench", "-q", "-r", "1", "-o", "csv", "tg4").stdout)))
    assert table[0]["test"] == "tg4" and table[0]["model"] == "fake"


def test_reuse_rows_tell_the_first_token_in_decode_steps(ninfer: Ninfer) -> None:
    done = real(ninfer, "bench", "-q", "-r", "1", "-o", "json", "--max-context", "512", "regenerate@d64")
    rows = json.loads(done.stdout)
    assert [row["settings"]["implementation"] for row in rows] == ["ninfer", "cache off"]
    assert all(row["settings"]["ttft_steps"] > 0 for row in rows)
    assert "| in steps |" in formatted(rows, "md").splitlines()[0]
    assert "in steps" not in ninfer("bench", "-q", "-r", "1", "pp8").stdout, "nothing fills that column"


def test_ratio_is_ninfers_over_the_others() -> None:
    def row(name: str, rate: float) -> dict[str, object]:
        return row_object("pp8", summary([rate]), None, (0, 8), {"implementation": name, "batch": 1}, {})

    text = formatted([row("ninfer", 30.0), row("transformers", 20.0)], "md")
    assert "1.50" in text.splitlines()[2] and "1.50" not in text.splitlines()[3]


def test_plan() -> None:
    assert parse_tests(["pp512@d4096"], [2]) == [BenchTest("pp", 512, 4096, 2)]
    assert BenchTest("pp", 512, 4096, 1).prompt_tokens == 4608 and BenchTest("tg", 128, 0, 1).prompt_tokens == 1
    assert parse_batches("1,2,4") == [1, 2, 4]


def test_a_scenario_that_is_named_twice_stands_once() -> None:
    found, others = parse_reuse(["cold@d64", "pp8", "reuse@d64", "cold@d64", "cold@d80"])
    assert found == [
        ReuseTest("cold", 64),
        *(ReuseTest(n, 64) for n in SCENARIOS if n != "cold"),
        ReuseTest("cold", 80),
    ]
    assert others == ["pp8"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pp"], "'pp' is no test"),
        (["reus"], "or reuse"),
        (["reuse", "--compare", "transformers"], "--compare measures pp and tg tests only"),
        (["-b", "0"], "--batch"),
        (["-b", "9"], "--batch"),
        (["-r", "0"], "--repetitions"),
        (["-o", "xml"], "--output"),
        (["--compare", "vllm"], "--compare"),
        (["--random", "3b"], "there is no shape '3b'"),
        (["--random", "tiny", "-m", "x"], "exclude"),
    ],
)
def test_mistakes_are_one_line(ninfer: Ninfer, arguments: list[str], says: str) -> None:
    done = ninfer("bench", "-q", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("ninfer: ") and says in done.stderr


def test_reuse_scenarios_stand_side_by_side_with_the_cache_off() -> None:
    """On the demo model: the fake engine reuses nothing."""
    found = run_reuse(lambda: Engine(EngineOptions(dtype="float32", max_context=1024)), 96, 1)
    assert list(found) == list(SCENARIOS)
    for name, (pair,) in found.items():
        assert pair.off.reused_tokens == 0
        assert pair.on.reused_tokens + pair.on.prefill_tokens == pair.off.prefill_tokens, name
        assert (pair.on.reused_tokens == 0) == (name == "cold")
        for sample in (pair.on, pair.off):  # restore's time holds the reading of the session
            assert sample.ttft_ms and sample.step_ms and sample.ttft_steps == sample.ttft_ms / sample.step_ms
            assert sample.tokens_per_s * sample.ttft_ms / 1e3 == pytest.approx(pair.off.prefill_tokens)
    assert found["regenerate"][0].on.prefill_tokens < 16, "nothing but the generation opener is computed again"


@pytest.mark.parametrize("name", ["reuse@d10", "append@d0", "reused"])
def test_impossible_scenarios_are_one_line(ninfer: Ninfer, name: str) -> None:
    done = ninfer("bench", name)
    assert done.returncode == 2 and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("pp4", "pp999999"), 2, "pp999999 needs a context of 1000000 tokens and the model's longest is 8192: choose"),
        (("reuse@d999999",), 2, "reuse@d999999 needs a context of 2001022 tokens and the model's longest is 8192: ch"),
        (("edit@d999999",), 2, "edit@d999999 needs a context of 2001022 tokens and the model's longest is 8192: cho"),
        (("pp512", "--kv-capacity", "100"), 1, "pp512 needs a context of 513 tokens: kv-capacity holds 128 tokens, f"),
        (("pp4", "--max-context", "1000000"), 2, "max-context is 1000000 and the model's longest is 8192: lower it"),
    ],
)
def test_a_context_is_refused_in_the_name_of_who_chose_it(
    home: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, says: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "-q", "-r", "1", *arguments])
    out, err = capfd.readouterr()
    assert (end.value.code, out) == (status, "")
    assert err.startswith(f"ninfer: {says}") and err.count("\n") == 1
