"""Loading: every published layout, nothing twice in memory, and one clear line for everything that can be wrong."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ninfer_core import errors
from ninfer_core.contract.progress import LoadProgress
from ninfer_core.errors import CapacityError, ModelError, NinferError
from ninfer_core.kernels.batch import Row
from ninfer_core.models import loader
from ninfer_core.models.checkpoint import Checkpoint
from ninfer_core.models.directory import ModelDirectory
from ninfer_core.models.loader import checkpoint_dtype, load_model
from ninfer_core.models.report import LoadReport
from tests.support.checkpoints import Tiny
from tests.support.pools import Pools

TOKENS = list(range(40))


def logits(directory: Path, dtype: torch.dtype | None = None) -> torch.Tensor:
    return Pools(load_model(directory, "cpu", dtype)).run(Row(TOKENS, 0, None, 0, [1]))


@pytest.mark.parametrize("moe", [False, True])
def test_layouts_hold_the_same_model(tmp_path: Path, moe: bool) -> None:
    plain = Tiny(moe=moe)
    expected = logits(plain.write(tmp_path / "plain"))
    layouts = [replace(plain, composite=True), replace(plain, shards=3), replace(plain, composite=True, shards=2)]
    if moe:
        layouts += [replace(layout, fused_experts=True) for layout in (plain, *layouts)]
    for i, layout in enumerate(layouts):
        assert torch.equal(logits(layout.write(tmp_path / str(i))), expected)


@pytest.mark.parametrize("stored", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("wanted", [None, torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(tmp_path: Path, stored: str, wanted: torch.dtype | None) -> None:
    directory = Tiny(dtype=stored).write(tmp_path / "model")
    model = load_model(directory, "cpu", wanted)
    assert model.layout.dtype == (wanted or getattr(torch, stored))
    source = load_file(directory / "model.safetensors")
    assert torch.equal(model._weights.embedding, source["model.embed_tokens.weight"].to(model.layout.dtype))
    first = model._weights.layers[0]
    assert torch.equal(first.input_norm, 1 + source["model.layers.0.input_layernorm.weight"].float())
    down = source["model.layers.0.mlp.down_proj.weight"].to(model.layout.dtype)
    assert torch.equal(first.mlp.down, down)  # type: ignore[union-attr]
    assert torch.isfinite(Pools(model).run(Row(TOKENS, 0, None, 0, [0]))).all()


def test_report_progress_and_layout(tmp_path: Path) -> None:
    tiny = Tiny(tied=True, composite=True, dtype="bfloat16", shards=2)
    seen: list[LoadProgress] = []
    model = load_model(tiny.write(tmp_path / "model"), progress=seen.append)
    count = len(tiny.shapes())
    assert model.report == LoadReport(count, model.weight_bytes, visual_skipped=1, mtp_skipped=1)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert seen[-1].done == seen[-1].total > 0
    assert {p.detail for p in seen} == {*tiny.shapes(), ""}
    assert model._weights.head is model._weights.embedding
    layout = model.layout
    assert (layout.gdn_layers, layout.attention_layers) == (3, 1)
    assert (layout.recurrent_shape, layout.conv_shape, layout.kv_shape) == ((4, 16, 32), (192, 3), (2, 32))
    assert (layout.hidden_size, layout.vocab_size, layout.max_positions) == (64, 256, 4096)


def test_a_tied_checkpoint_may_store_its_head(tmp_path: Path) -> None:
    directory = Tiny(tied=True).write(tmp_path / "model")
    expected = logits(directory)
    edit(directory, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    assert torch.equal(logits(directory), expected)


def test_one_file_of_another_name(tmp_path: Path) -> None:
    directory = Tiny().write(tmp_path / "model")
    (directory / "model.safetensors").rename(directory / "weights.safetensors")
    assert logits(directory).shape == (1, 256)


def test_the_checkpoints_own_dtype_is_told(tmp_path: Path) -> None:
    for i, name in enumerate(("float32", "bfloat16")):
        checkpoint = Checkpoint.open(Tiny(dtype=name, composite=True).write(tmp_path / str(i)))
        assert checkpoint_dtype(checkpoint) == getattr(torch, name)


MEASURE = """
import resource, sys, torch
from pathlib import Path
from ninfer_core.models.loader import load_model
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before = peak()
model = load_model(Path(sys.argv[1]), "cpu", getattr(torch, sys.argv[2]))
print((peak() - before) / model.weight_bytes)
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_weights_are_in_memory_once(tmp_path: Path, dtype: str) -> None:
    """Peak memory grows by the weights and little more, converted or not: no copy, no mapped file beside them."""
    changes = {"vocab_size": 60_000, "hidden_size": 1024}
    directory = Tiny(moe=True, dtype="bfloat16", changes=changes).write(tmp_path / "model")
    command = [sys.executable, "-c", MEASURE, str(directory), dtype]
    environment = {**os.environ, "PYTHONPATH": str(Path(errors.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert float(done.stdout) < 1.15 + 40 / 240  # some pages of torch itself are touched for the first time


def edit(directory: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as stream:
        stream.truncate(size)


def header(path: Path, text: bytes) -> None:
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def refuse(directory: Path, *words: str, error: type[NinferError] = ModelError) -> None:
    """Loading fails with one line that holds every word."""
    with pytest.raises(error) as caught:
        load_model(directory)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, (word, text)


def test_places_that_are_no_model(tmp_path: Path) -> None:
    refuse(tmp_path / "nowhere", "nowhere", "no such model directory")
    (tmp_path / "file.txt").write_text("x")
    refuse(tmp_path / "file.txt", "not a directory")
    (tmp_path / "model.gguf").write_text("x")
    refuse(tmp_path / "model.gguf", "GGUF")
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", "no config.json")
    (tmp_path / "loop").symlink_to("loop")
    refuse(tmp_path / "loop", "no such model directory")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", ["not valid JSON"]),
        (b"[" * 100_000, ["not valid JSON"]),
        (b"\xff\xfe\x00", ["not valid JSON"]),
        (b"[]", ["object"]),
        (b" " * ((16 << 20) + 1), ["the limit is 16,777,216"]),
        (b'{"architectures": ["LlamaForCausalLM"]}', ["LlamaForCausalLM", "not supported"]),
    ],
)
def test_bad_config(tmp_path: Path, text: bytes, words: list[str]) -> None:
    directory = Tiny().write(tmp_path / "model")
    (directory / "config.json").write_bytes(text)
    refuse(directory, *words)


def test_missing_extra_and_misshaped_tensors_are_named(tmp_path: Path) -> None:
    directory = Tiny().write(tmp_path / "model")
    original = load_file(directory / "model.safetensors")
    edit(directory, lambda t: t.pop("model.norm.weight"))
    refuse(directory, "1 tensor (norm.weight) missing")
    save_file({k: v for k, v in original.items() if ".mlp." not in k}, directory / "model.safetensors")
    refuse(directory, "12 tensors", "layers.0.mlp.down_proj.weight", "...")
    save_file(original | {"model.layers.9.x": torch.zeros(1), "other": torch.zeros(1)}, directory / "model.safetensors")
    refuse(directory, "2 tensors (model.layers.9.x, other) not known")
    save_file(original | {"lm_head.weight": torch.zeros(256, 65)}, directory / "model.safetensors")
    refuse(directory, "lm_head.weight is [256, 65], not [256, 64]")


def test_experts_both_ways_at_once_are_refused(tmp_path: Path) -> None:
    directory = Tiny(moe=True).write(tmp_path / "model")
    fused = {f"model.layers.{i}.mlp.experts.gate_up_proj": torch.zeros(6, 64, 64) for i in range(4)}
    edit(directory, lambda t: t.update(fused))
    refuse(directory, "tensors", "experts.0.gate_proj.weight", "not known")


def test_dtypes_that_are_not_read_are_named(tmp_path: Path) -> None:
    directory = Tiny().write(tmp_path / "model")
    name = "model.layers.1.mlp.up_proj.weight"
    edit(directory, lambda t: t.update({name: t[name].to(torch.float8_e4m3fn)}))
    refuse(directory, name, "F8_E4M3")
    edit(directory, lambda t: t.update({name: t[name].to(torch.float64)}))
    refuse(directory, name, "F64")


def test_damaged_weight_files(tmp_path: Path) -> None:
    directory = Tiny().write(tmp_path / "model")
    weights = directory / "model.safetensors"
    whole = weights.read_bytes()
    for size in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        cut(weights, size) if size <= weights.stat().st_size else weights.write_bytes(whole[:size])
        refuse(directory, "model.safetensors", "damaged or cut short")
        weights.write_bytes(whole)
    weights.write_bytes(whole + b"x")
    refuse(directory, "damaged or cut short")
    for text in (b"{}}", b'{"a": 1}', b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}', b"[" * 50_000):
        header(weights, text)
        refuse(directory, "model.safetensors")
    weights.write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    refuse(directory, "damaged or cut short")


def test_a_file_cut_while_it_is_read(tmp_path: Path) -> None:
    """The header was whole, the bytes then are not: an error that names the file, never a crash."""
    directory = Tiny().write(tmp_path / "model")

    def shorten(progress: LoadProgress) -> None:
        cut(directory / "model.safetensors", 20_000)

    with pytest.raises(ModelError, match=r"model\.safetensors: the file ends early"):
        load_model(directory, progress=shorten)


def test_weights_of_other_formats(tmp_path: Path) -> None:
    directory = Tiny().write(tmp_path / "model")
    (directory / "model.safetensors").unlink()
    refuse(directory, "no safetensors weights")
    (directory / "pytorch_model.bin").write_bytes(b"x")
    refuse(directory, "pytorch_model.bin", "convert")
    (directory / "model-Q4.gguf").write_bytes(b"x")
    refuse(directory, "model-Q4.gguf", "GGUF")


def test_shards(tmp_path: Path) -> None:
    directory = Tiny(shards=3).write(tmp_path / "model")
    index = directory / "model.safetensors.index.json"
    text = index.read_text()
    for name, words in {
        "../model-00001-of-00003.safetensors": ["plain file name"],
        "/etc/passwd": ["plain file name"],
        "model-00001-of-00003.bin": ["not a safetensors file"],
    }.items():
        index.write_text(text.replace("model-00001-of-00003.safetensors", name))
        refuse(directory, *words)
    index.write_text('{"weight_map": {"a": 1}}')
    refuse(directory, "weight_map")
    index.write_text("[]")
    refuse(directory, "index.json", "must hold a JSON object")
    index.write_text(text)
    (directory / "model-00002-of-00003.safetensors").rename(tmp_path / "away")
    refuse(directory, "1 weight file (model-00002-of-00003.safetensors) missing")
    index.unlink()
    refuse(directory, "2 weight files but no model.safetensors.index.json")


def test_a_tensor_that_the_index_promises_and_the_file_lacks(tmp_path: Path) -> None:
    directory = Tiny(shards=2).write(tmp_path / "model")
    index = directory / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.norm.weight"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(content))
    refuse(directory, "model-00001-of-00002.safetensors", "1 tensor (model.norm.weight)")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_links_that_lead_outside(tmp_path: Path, name: str) -> None:
    directory = Tiny().write(tmp_path / "model")
    (directory / name).rename(tmp_path / name)
    (directory / name).symlink_to(tmp_path / name)
    refuse(directory, name, "outside the model directory")
    (tmp_path / name).unlink()
    refuse(directory, name, "leads nowhere")


def test_links_that_stay_inside_and_linked_directories(tmp_path: Path) -> None:
    directory = Tiny().write(tmp_path / "model")
    (directory / "config.json").rename(directory / "real.json")
    (directory / "config.json").symlink_to("real.json")
    (tmp_path / "alias").symlink_to(directory)
    assert logits(tmp_path / "alias").shape == (1, 256)


def test_the_hugging_face_cache_layout(tmp_path: Path) -> None:
    written = Tiny(shards=2).write(tmp_path / "written")
    root = tmp_path / "models--o--n"
    snapshot = root / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    for i, path in enumerate(written.iterdir()):
        path.rename(root / "blobs" / str(i))
        (snapshot / path.name).symlink_to(f"../../blobs/{i}")
    assert logits(snapshot).shape == (1, 256)
    (snapshot / "config.json").unlink()
    (root / "elsewhere").write_text("{}")
    (snapshot / "config.json").symlink_to("../../elsewhere")
    refuse(snapshot, "outside the model directory")


def test_what_people_call_a_model(tmp_path: Path) -> None:
    cached = tmp_path / "models--Qwen--Qwen3.5--x" / "snapshots" / ("0" * 40)
    cached.mkdir(parents=True)
    (tmp_path / "mine").symlink_to(cached)
    assert ModelDirectory.open(cached).name == ModelDirectory.open(tmp_path / "mine").name == "Qwen/Qwen3.5--x"
    assert ModelDirectory.open(cached.parent).name == "snapshots"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    directory = Tiny().write(tmp_path / "model")
    (directory / "config.json").unlink()
    os.mkfifo(directory / "config.json")
    refuse(directory, "not a regular file")


def test_too_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Tiny().write(tmp_path / "model")
    monkeypatch.setattr(loader, "available_memory", lambda: 1 << 20)
    refuse(directory, "GiB", "--dtype bfloat16", error=CapacityError)


def test_a_refused_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Tiny(dtype="bfloat16").write(tmp_path / "model")
    real = torch.empty

    def empty(*args: Any, **kwargs: Any) -> torch.Tensor:
        if str(kwargs.get("device")) == "cpu":
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return real(*args, **kwargs)

    monkeypatch.setattr(torch, "empty", empty)
    refuse(directory, "smaller model", error=CapacityError)


def test_no_pickle_anywhere() -> None:
    """Only safetensors are read: nothing in the package can run code from a file."""
    for path in Path(errors.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"torch\.load\(|import pickle|from pickle|\beval\(|\bexec\(", text), path
