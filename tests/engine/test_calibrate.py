"""Calibration without a clock: a stopwatch that runs the work and says what a planted cost model would take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ninfer_core import CalibrationError, Engine, EngineOptions, calibrate
from ninfer_core.cache.cost import GENERIC_PREFILL, CostModel, PrefillCost, TransferCost
from ninfer_core.cache.hardware import hardware_key
from ninfer_core.engine.copy_bench import CopyBench
from ninfer_core.engine.prefill_bench import ROUND_NS, ROUNDS, STAIRS, PrefillBench
from ninfer_core.engine.startup import start_up
from ninfer_core.models.prefill_signature import prefill_signature
from ninfer_core.models.qwen3_5.config import Qwen3_5Config
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.work import Copies, Prefill
from ninfer_core.program.program import Program
from tests.support.checkpoints import Tiny
from tests.support.ledger_model import LedgerModel
from tests.support.tokenizers import write_bytes

TRANSFER = TransferCost(900.0, 100.0, 0.01)
PREFILL = PrefillCost(5_000.0, 300.0, 2.0)


class Planted:
    """A Stopwatch. `works` is everything that it timed."""

    def __init__(self, transfer: TransferCost = TRANSFER, prefill: PrefillCost = PREFILL) -> None:
        self.model = CostModel(transfer, transfer, transfer, prefill)
        self.works: list[Copies | Prefill] = []

    def ns(self, work: Copies | Prefill, run: Callable[[], None]) -> float:
        run()
        self.works.append(work)
        return self.model.prefill(work) if isinstance(work, Prefill) else self.model.transfer(self.model.to_host, work)


@pytest.mark.req("COST-4")
def test_what_was_measured_is_stored_and_the_next_start_uses_it(tiny_directory: Path, tmp_path: Path) -> None:
    options = EngineOptions(model=tiny_directory, calibration=tmp_path / "calibration.json")
    before = start_up(options)
    assert before.cost == CostModel() and before.info.cost_model == "transfers generic, prefill generic"
    report = calibrate(options, Planted())
    for fitted in (report.to_host, report.to_device, report.on_device, report.prefill):
        assert fitted.residual < 1e-6
    assert report.prefill.cost.token_ns == pytest.approx(300) and report.prefill.cost.pair_ns == pytest.approx(2)
    assert report.to_device.cost.operation_ns == pytest.approx(100)
    after = start_up(options)
    assert after.info.cost_model == "transfers measured, prefill measured" and after.info.notices == ()
    assert after.cost.prefill_cost == report.prefill.cost and after.cost.to_device == report.to_device.cost
    assert after.cost.on_device == report.on_device.cost
    other = start_up(EngineOptions(model=None, calibration=options.calibration))
    assert other.info.cost_model == "transfers measured, prefill generic", "another shape, the same machine"
    assert other.cost.prefill_cost == GENERIC_PREFILL


@pytest.mark.req("COST-4")
def test_a_foreign_file_is_a_notice_and_the_engine_starts(tiny_directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({"format": "something else"}))
    with Engine(EngineOptions(model=tiny_directory, max_context=64, calibration=path)) as engine:
        assert len(engine.info.notices) == 1 and str(path) in engine.info.notices[0]
        assert engine.info.cost_model == "transfers generic, prefill generic"


def test_copies_are_of_several_sizes_and_numbers_in_every_direction() -> None:
    layout = LedgerModel().layout
    stopwatch = Planted()
    samples = CopyBench(layout, torch.device("cpu")).measure(stopwatch)
    for found in (samples.to_host, samples.to_device, samples.on_device):
        assert len({s.work.operations for s in found}) >= 3 and len({s.work.bytes for s in found}) >= 4
        assert [s.ns for s in found] == [TRANSFER.price(s.work) for s in found]
    page = 2 * 64 * 4
    assert Copies(2, 16 * page) in [s.work for s in samples.to_host], "a run in two planes: two operations (DEF-9)"
    assert Copies(2 * 16, 16 * page) in [s.work for s in samples.to_device], "scattered: one each"


def test_the_stairs_leave_the_program_idle_and_count_what_stood_before() -> None:
    program = Program(LedgerModel(), Vector(1, 0, (128,), 0))
    stopwatch = Planted()
    samples = PrefillBench(program, 8192).measure(stopwatch)
    assert [s.work for s in samples[:3]] == [Prefill(0, 16), Prefill(16, 64), Prefill(80, 512)]
    assert [s.work.suffix for s in samples] == list(STAIRS)
    assert len(stopwatch.works) == 2 + ROUNDS * len(samples)
    assert not program.world.used()
    program.audit()


def test_a_slow_model_climbs_lower_stairs() -> None:
    slow = PrefillCost(0.0, 0.05e9, 0.0)  # twenty tokens a second
    stopwatch = Planted(prefill=slow)
    samples = PrefillBench(Program(LedgerModel(), Vector(1, 0, (64,), 0)), 4096).measure(stopwatch)
    assert 0.7 * ROUND_NS < sum(s.ns for s in samples) <= ROUND_NS
    assert len({s.work.suffix for s in samples}) > 3


class Noisy(Planted):
    """Every second piece of prefill takes three times as long: something else ran."""

    def ns(self, work: Copies | Prefill, run: Callable[[], None]) -> float:
        time = super().ns(work, run)
        return time * 3 if isinstance(work, Prefill) and len(self.works) % 2 else time


@pytest.mark.req("COST-4")
def test_what_a_busy_machine_measured_is_not_kept(tiny_directory: Path, tmp_path: Path) -> None:
    options = EngineOptions(model=tiny_directory, calibration=tmp_path / "calibration.json")
    report = calibrate(options, Noisy())
    assert report.prefill.residual > 0.25 and not report.coefficients.prefills and report.coefficients.transfers
    assert start_up(options).info.cost_model == "transfers measured, prefill generic"


def test_a_context_that_is_too_short_is_one_line(tiny_directory: Path) -> None:
    with pytest.raises(CalibrationError, match="give a longer --max-context"):
        calibrate(EngineOptions(model=tiny_directory, max_context=32), Planted())


def config(**changes: Any) -> Qwen3_5Config:
    return Qwen3_5Config.parse(Tiny(changes=changes).config())


@pytest.mark.req("COST-4")
def test_the_signature_names_shape_binding_and_dtype_but_no_checkpoint(tmp_path: Path) -> None:
    plain = prefill_signature(config(), torch.float32)
    assert plain == prefill_signature(config(), torch.float32)
    others = {
        prefill_signature(config(), torch.bfloat16),
        prefill_signature(config(vocab_size=300), torch.float32),
        prefill_signature(config(tie_word_embeddings=not config().tied), torch.float32),
    }
    assert len(others | {plain}) == 4
    directories = [
        write_bytes(Tiny(seed=seed, changes={"vocab_size": 272, "eos_token_id": 258}).write(tmp_path / f"name{seed}"))
        for seed in (1, 2)
    ]
    first, second = (start_up(EngineOptions(model=directory)) for directory in directories)
    assert first.program.model.fingerprint() != second.program.model.fingerprint(), "other values"
    assert first.signature == second.signature


def test_the_hardware_key_names_no_host() -> None:
    import platform

    key = hardware_key(torch.device("cpu"))
    assert key.startswith("cpu/") and f"/{torch.get_num_threads()} threads" in key
    assert platform.node() not in key
