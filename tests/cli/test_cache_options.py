"""The context cache's options: flag, environment, config.toml, and what -v and --calibrate say."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from ninfer_cli.kinds import Size
from ninfer_cli.options import ALL_OPTIONS, CACHE
from ninfer_cli.settings import Settings, resolve
from ninfer_core import ContextCacheOptions, UsageError
from tests.support.ninfer_process import Ninfer

GIVEN: dict[str, tuple[str, str, object]] = {
    "cache": ("off", "enabled", False),
    "device-state-slots": ("3", "device_state_slots", 3),
    "host-state-slots": ("4", "host_state_slots", 4),
    "host-kv-capacity": ("1.5MiB", "host_kv_capacity_bytes", 3 << 19),
    "max-private-continuations": ("5", "max_private_continuations", 5),
    "max-shared-prefixes": ("6", "max_shared_prefixes", 6),
    "max-long-anchors": ("7", "max_long_anchors_per_continuation", 7),
    "automatic-anchors": ("8", "automatic_private_anchors", 8),
    "endpoint-anchors": ("off", "endpoint_anchors", False),
    "automatic-shared-prefixes": ("off", "allow_engine_automatic_shared_prefixes", False),
    "prefix-grid": ("on", "allow_engine_prefix_grid", True),
    "recency-eviction": ("on", "recency_eviction", True),
    "kv-lease-growth": ("on", "kv_lease_growth", True),
    "planning-targets": ("9", "planning_targets", 9),
    "planning-ms": ("0.5", "planning_ms", 0.5),
}


@pytest.fixture(autouse=True)
def no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.req("OPT-1")
def test_every_field_of_context_cache_options_can_be_set() -> None:
    assert set(GIVEN) == {option.name for option in ALL_OPTIONS if option.panel == CACHE}
    assert {field for _, field, _ in GIVEN.values()} == set(ContextCacheOptions.__dataclass_fields__)
    assert resolve({}, {}).cache_options() == ContextCacheOptions(), "nothing said is everything automatic"
    for name, (text, field, value) in GIVEN.items():
        variable = "NINFER_" + name.upper().replace("-", "_")
        options = resolve({}, {variable: text}).cache_options()
        assert options == ContextCacheOptions(**{field: value}), name
        given = value if isinstance(value, bool) else text
        assert resolve({name: given}, {variable: "auto"}).cache_options() == options, "a flag wins"


def test_config_toml_takes_sizes_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "config" / "ninfer").mkdir(parents=True)
    text = 'cache = true\nhost-kv-capacity = "2GB"\nplanning-ms = 1\ndevice-state-slots = "auto"\nprefix-grid = true\n'
    (tmp_path / "config" / "ninfer" / "config.toml").write_text(text)
    found = resolve({}, {})
    assert found.cache_options() == ContextCacheOptions(
        host_kv_capacity_bytes=2 * 10**9, planning_ms=1.0, allow_engine_prefix_grid=True
    )
    assert found.origins["host_kv_capacity"] == "config.toml"


def test_settings_have_the_options_order() -> None:
    names = [name for name in Settings.__dataclass_fields__ if name != "origins"]
    assert names == [option.key for option in ALL_OPTIONS]


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("4096", 4096), ("1kB", 1000), ("1 KiB", 1024), ("512MiB", 1 << 29), ("2gb", 2 * 10**9),
     ("0.5TiB", 1 << 39), ("auto", None)],
)  # fmt: skip
def test_sizes(text: str, size: int | None) -> None:
    assert Size().from_text(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1XB", "MiB", "1e9", "nan", "٣", "9" * 5000, "1 2"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="--host-kv-capacity is"):
        resolve({"host-kv-capacity": text}, {})


@pytest.mark.req("OPT-2")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["chat", "--script", "-", "--max-private-continuations", "3"], "it must be at least 4"),
        (["run", "x", "--max-private-continuations", "0"], "it must be at least 1"),
        (["run", "x", "--device-state-slots", "-1"], "it must be at least 0"),
        (["run", "x", "--device-state-slots", "70000"], "it must be at most 65536"),
        (["run", "x", "--host-kv-capacity", "lots"], "it must be a size such as 512MiB"),
        (["run", "x", "--planning-ms", "soon"], "it must be a number or auto"),
    ],
)
def test_a_bad_value_is_one_line_before_anything_is_loaded(ninfer: Ninfer, arguments: list[str], says: str) -> None:
    done = ninfer(*arguments, stdin="hello\n")
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "") and says in lines[-1] and not ninfer.log
    assert len([line for line in lines if "using the bundled demo" not in line]) == 1


def test_verbose_says_what_was_resolved_and_who_said_so(ninfer: Ninfer) -> None:
    ninfer.scenario["info"] = {"device_state_slots": 12, "cache": True, "cost_model": "transfers generic"}
    done = ninfer("run", "-v", "--device-state-slots", "12", "x", environment={"NINFER_PREFIX_GRID": "on"})
    lines = done.stderr.splitlines()
    for line in (
        "ninfer: device-state-slots = 12 (flag)",
        "ninfer: prefix-grid = True (environment)",
        "ninfer: recency-eviction = False (default)",
        "ninfer: cache = True",
        "ninfer: cost-model = transfers generic",
    ):
        assert line in lines
    assert len(lines) == len(set(lines)), "nothing is said twice"


def test_a_notice_of_the_start_is_shown_without_v_once(ninfer: Ninfer) -> None:
    ninfer.scenario["info"] = {"notices": ["calibration.json is not used"]}
    done = ninfer("run", "-q", "x")
    assert (done.returncode, done.stderr) == (0, "ninfer: calibration.json is not used\n")


@pytest.mark.req("COST-4")
def test_calibrate_prints_a_table_and_keeps_what_a_busy_machine_did_not_spoil(ninfer: Ninfer) -> None:
    done = ninfer("bench", "--calibrate", "--random", "tiny", timeout=240)
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[2:]] == ["copy to host", "copy to device", "copy on device", "prefill"], done.stderr
    spoilt = [name for name in ("copies", "prefill") if f"the timings of {name} scatter" in done.stderr]
    assert done.returncode == (1 if spoilt else 0)
    residual = [float(row[4].removesuffix(" %")) for row in rows[2:]]
    assert ("copies" in spoilt) == (max(residual[:3]) > 60) or max(residual[:3]) == 60
    assert ("prefill" in spoilt) == (residual[3] > 25) or residual[3] == 25
    path = ninfer.home / "state" / "ninfer" / "calibration.json"
    if len(spoilt) < 2:
        stored = json.loads(path.read_text())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and str(path) in done.stderr
        assert (len(stored["transfers"]), len(stored["prefills"])) == ("copies" not in spoilt, "prefill" not in spoilt)


@pytest.mark.parametrize("more", [["pp8"], ["-o", "json"], ["--startup"], ["--compare", "transformers"]])
def test_calibrate_goes_with_no_test(ninfer: Ninfer, more: list[str]) -> None:
    done = ninfer("bench", "-q", "--calibrate", *more)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1) and "--calibrate" in done.stderr
