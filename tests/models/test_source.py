"""A model by name: cache first, then a download that can be interrupted; no torch, no network unless needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants, file_download

from ninfer_core import errors
from ninfer_core.errors import ModelError
from ninfer_core.models import download as download_module
from ninfer_core.models.download import DownloadProgress
from ninfer_core.models.source import resolve_model
from tests.support.hub import COMMIT, Hub

FILES = {
    "config.json": b"{}",
    "chat_template.jinja": b"hello",
    "tokenizer.json": b"{ }",
    "model.safetensors": os.urandom(300_000),
    "modeling_evil.py": b"import os",
    "pytorch_model.bin": b"pickle",
    "README.md": b"text",
    "onnx/model.safetensors": b"not this one",
    ".hidden.json": b"nor this",
}
WANTED = {"config.json", "chat_template.jinja", "tokenizer.json", "model.safetensors"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A local server that speaks the hub's protocol, and a cache of our own."""
    with Hub({"own/model": dict(FILES)}) as server:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"  # made of the endpoint at import
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)
        monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)  # between its retries
        yield server


def refuse(name: str, *words: str, offline: bool = False) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model(name, offline=offline)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, (word, text)


def test_an_existing_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_model("own/model", offline=True) == Path("own/model")
    assert resolve_model(str(tmp_path), offline=True) == tmp_path


NEITHER = ["", "model", "a/b/c", "./missing/x", "/no/such", "a/../b", "own/model@", "a b/c", "x" * 9000]


@pytest.mark.parametrize("name", NEITHER)
def test_names_that_are_neither(name: str) -> None:
    refuse(name, "no such directory", offline=True)


def test_download_takes_only_what_a_model_needs(hub: Hub) -> None:
    seen: list[DownloadProgress] = []
    path = resolve_model("own/model", progress=seen.append)
    assert {entry.name for entry in path.iterdir()} == WANTED
    assert all((path / name).read_bytes() == FILES[name] for name in WANTED)
    total = sum(len(FILES[name]) for name in WANTED)
    assert (seen[0].bytes_done, seen[0].bytes_total, seen[0].file) == (0, total, "")
    assert str(seen[0].place).endswith("models--own--model")
    assert seen[-1].bytes_done == seen[-1].bytes_total == total
    assert [p.bytes_done for p in seen] == sorted(p.bytes_done for p in seen)


def test_a_cached_snapshot_needs_no_network(hub: Hub) -> None:
    path = resolve_model("own/model")
    asked = len(hub.requests)
    assert resolve_model("own/model") == path
    assert resolve_model("own/model", offline=True) == path
    assert resolve_model(f"own/model@{COMMIT}", offline=True) == path
    assert len(hub.requests) == asked


def test_the_cache_is_huggingface_hubs_own(hub: Hub) -> None:
    """What we fetched its own functions find, and what they fetched we find."""
    from huggingface_hub import snapshot_download, try_to_load_from_cache

    path = resolve_model("own/model")
    cache = constants.HF_HUB_CACHE
    assert try_to_load_from_cache("own/model", "config.json", cache_dir=cache) == str(path / "config.json")
    shutil.rmtree(cache)
    theirs = snapshot_download("own/model", cache_dir=cache, endpoint=hub.url)
    assert resolve_model("own/model", offline=True) == Path(theirs)


def test_revisions(hub: Hub) -> None:
    path = resolve_model("own/model@v1.0")
    assert path.name == COMMIT
    refuse("own/model@v9", "revision")
    refuse("own/model", "not in", offline=True)


def test_an_interrupted_download_goes_on(hub: Hub) -> None:
    hub.cut["model.safetensors"] = 100_000
    refuse("own/model", "download stopped", "run again")
    refuse("own/model", "is not in", "--offline", offline=True)  # half a model is none
    hub.cut.clear()
    hub.requests.clear()
    seen: list[DownloadProgress] = []
    path = resolve_model("own/model", progress=seen.append)
    assert (path / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    ranges = [r.range for r in hub.requests if r.method == "GET" and r.path.endswith("model.safetensors")]
    assert ranges == ["bytes=100000-"]
    assert seen[-1].bytes_done == seen[-1].bytes_total
    assert not list(Path(constants.HF_HUB_CACHE).rglob("*.incomplete"))


def test_damaged_bytes_do_not_stay(hub: Hub) -> None:
    hub.cut["model.safetensors"] = 100_000
    refuse("own/model", "download stopped")
    hub.cut.clear()
    digest = hashlib.sha256(FILES["model.safetensors"]).hexdigest()
    (partial,) = Path(constants.HF_HUB_CACHE).rglob(f"{digest}*")
    partial.write_bytes(b"x" * 100_000)
    refuse("own/model", "damaged", "run the command again")
    assert (resolve_model("own/model") / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    shutil.rmtree(constants.HF_HUB_CACHE)


def test_a_partial_that_is_too_long_is_dropped(hub: Hub) -> None:
    digest = hashlib.sha256(FILES["model.safetensors"]).hexdigest()
    blobs = Path(constants.HF_HUB_CACHE) / "models--own--model" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{digest}.ninfer.incomplete").write_bytes(b"x" * 999_999)
    assert (resolve_model("own/model") / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_a_server_that_cannot_resume(hub: Hub) -> None:
    hub.cut["model.safetensors"] = 100_000
    refuse("own/model", "download stopped")
    hub.cut.clear()
    hub.ranges = False
    seen: list[DownloadProgress] = []
    path = resolve_model("own/model", progress=seen.append)
    assert (path / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert seen[-1].bytes_done == seen[-1].bytes_total


def test_two_processes(hub: Hub) -> None:
    fcntl = pytest.importorskip("fcntl")
    digest = hashlib.sha256(FILES["model.safetensors"]).hexdigest()
    blobs = Path(constants.HF_HUB_CACHE) / "models--own--model" / "blobs"
    blobs.mkdir(parents=True)
    with (blobs / f"{digest}.ninfer.incomplete").open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        refuse("own/model", "another process is downloading model.safetensors")


def test_unknown_gated_and_broken(hub: Hub) -> None:
    refuse("own/nothing", "own/nothing", "no such model", "HF_TOKEN")
    hub.status["own/gated"] = 403
    refuse("own/gated", "access must be granted", "HF_TOKEN")
    hub.status["own/broken"] = 500
    refuse("own/broken", "answered 500")


def test_models_without_safetensors(hub: Hub) -> None:
    hub.models["own/gguf"] = {"config.json": b"{}", "model.gguf": b"x"}
    refuse("own/gguf", "GGUF")
    hub.models["own/bin"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    refuse("own/bin", "pickled")
    hub.models["own/none"] = {"config.json": b"{}"}
    refuse("own/none", "no safetensors")


def test_no_server(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    refuse("own/model", "download stopped")


def test_no_room(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(download_module.shutil, "disk_usage", lambda place: usage(100, 90, 10))
    refuse("own/model", "needs", "GiB are free", "HF_HOME")
    assert not [r for r in hub.requests if r.method == "GET" and "/resolve/" in r.path]


def test_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse("own/model", "--offline", offline=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refuse("own/model", "HF_HUB_OFFLINE")
    assert not hub.requests


def test_the_token_is_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    resolve_model("own/model")
    assert {r.authorization for r in hub.requests} == {"Bearer hf_secret"}


def test_environment_and_imports(hub: Hub, tmp_path: Path) -> None:
    """HF_HOME and HF_ENDPOINT are honoured by a fresh process, which imports no torch for it."""
    script = (
        "import sys; from ninfer_core.models.source import resolve_model; "
        "print(resolve_model('own/model')); print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(errors.__file__).parents[1]),
        "HF_HOME": str(tmp_path / "home"),
        "HF_ENDPOINT": hub.url,
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    path, imported = done.stdout.splitlines()
    assert Path(path) == tmp_path / "home" / "hub" / "models--own--model" / "snapshots" / COMMIT
    assert imported == "False False"
    assert done.stderr == ""
