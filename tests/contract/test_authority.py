"""Who may know what: the layers' imports and the reach of what crosses between them (context-cache AUT)."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

import ninfer_core
from ninfer_core import CacheIntent, Engine, EngineOptions, SamplingParams
from ninfer_core.contract import ids, plans, results
from ninfer_core.program.planning.plan import ResourcePlan

CORE = Path(ninfer_core.__file__).parent


def modules(*names: str) -> Iterator[tuple[Path, ast.Module]]:
    for name in names:
        path = CORE / name
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            yield file, ast.parse(file.read_text(encoding="utf-8"))


def imports(*names: str) -> set[str]:
    found = set()
    for _, tree in modules(*names):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
    return {module for module in found if module.startswith("ninfer_core")}


def below(found: set[str], *packages: str) -> set[str]:
    return {module for module in found if any(module == p or module.startswith(p + ".") for p in packages)}


@pytest.mark.req("AUT-1")
def test_the_scheduler_reads_no_checkpoint_placement_victim_or_page() -> None:
    assert not below(imports("engine/scheduler.py"), "ninfer_core.program", "ninfer_core.cache")


@pytest.mark.req("AUT-3")
def test_the_logical_side_keeps_no_stores_allocators_or_slots() -> None:
    found = imports("cache")
    assert not below(found, "ninfer_core.program.storage", "ninfer_core.program.ledger.arena", "ninfer_core.models")
    assert not below(found, "ninfer_core.program.execution")
    for file, tree in modules("cache"):
        reached = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not reached & {"physical", "arena", "extents", "held", "device_slots", "host_slots"}, file.name


@pytest.mark.req("AUT-5", "AUT-6", "INV-2")
def test_program_knows_nothing_above_it() -> None:
    above = ("ninfer_core.cache", "ninfer_core.engine", "ninfer_core.frontend")
    assert not below(imports("program"), *above)
    # What crosses is frozen, and made of names and numbers: no object of a store can be reached through it.
    for module in (plans, results, ids):
        for value in vars(module).values():
            if dataclasses.is_dataclass(value) and isinstance(value, type) and value.__module__ == module.__name__:
                assert value.__dataclass_params__.frozen, value  # type: ignore[attr-defined]
    assert not below(imports("contract"), "ninfer_core.program", "ninfer_core.cache", "ninfer_core.engine")


@pytest.mark.req("PLAN-12", "TXN-1")
def test_a_sealed_plan_cannot_be_changed() -> None:
    assert ResourcePlan.__dataclass_params__.frozen  # type: ignore[attr-defined]
    verbs = {name for name, value in vars(ResourcePlan).items() if callable(value) and not name.startswith("_")}
    assert verbs == set(), "a plan has no verbs: only Program.start takes it"


@pytest.mark.req("STAT-3")
def test_the_cache_table_is_what_the_ledger_says() -> None:
    with Engine(EngineOptions(dtype="float32", max_context=512)) as engine:
        for text in ("I am Bela.", "I live in Zurich."):
            engine.generate(text, sampling=SamplingParams(temperature=0), cache=CacheIntent(session="one"))
        table, program = engine.cache_table(), engine._worker._program
        world = program.world
        assert {row.owner for row in table.owners} == world.owners.keys() and len(table.owners) == 2
        used, reserved, capacity = world.used(), world.reserved(), world.geometry.capacity
        by_name = {axis.name: axis for axis in table.axes}
        images = by_name["Device states"]
        assert (images.used, images.reserved, images.capacity) == (used.device_images, 0, capacity.device_images)
        pages = by_name["Device KV"]
        assert (pages.used, pages.reserved, pages.capacity) == (used.pages[0], reserved.pages[0], capacity.pages[0])
        whole = used.device_images * world.geometry.image_bytes + used.pages[0] * world.geometry.pools[0].page_bytes
        alone = sum(row.exclusive_bytes for row in table.owners)
        assert alone <= whole <= alone + sum(row.shared_bytes for row in table.owners)
        for row in table.owners:
            assert row.checkpoints == program.summaries(row.owner) and row.kind == "private"
        assert sorted(row.retention for row in table.owners) == ["live_session", "recent_private"]
