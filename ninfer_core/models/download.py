"""Download: fetch a model's files into the Hugging Face cache, byte by byte where it stopped the last time.

huggingface_hub does the talking (redirects, retries, tokens, endpoints). The files are gathered here because its own
cache download starts each file anew after an interruption.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from ninfer_core.errors import ModelError
from ninfer_core.models.hub_cache import HubCache

_SMALL = (".json", ".jinja")
_WEIGHTS = ".safetensors"
_SPARE = 64 << 20
"""Bytes of disk left free."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Attributes:
    bytes_done, bytes_total: of all files, those already there included.
    file: the one being fetched, "" before the first and after the last.
    place: the directory that receives them.
    """

    bytes_done: int
    bytes_total: int
    file: str
    place: Path


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file to fetch."""

    name: str
    size: int


class Download:
    """One model at one commit."""

    def __init__(
        self, repo: str, revision: str, cache: HubCache, progress: Callable[[DownloadProgress], None] | None
    ) -> None:
        self._repo = repo
        self._revision = revision
        self._cache = cache
        self._progress = progress
        self._done = 0
        self._total = 0

    def run(self) -> Path:
        """Fetch what is missing and return the snapshot's directory.

        Raises:
            ModelError: the model has no safetensors weights, the disk is too small, a file is damaged.
            Exception: whatever huggingface_hub raises when the server is not there or refuses.
        """
        from huggingface_hub import HfApi, constants

        info = HfApi(endpoint=constants.ENDPOINT).model_info(self._repo, revision=self._revision, files_metadata=True)
        commit = info.sha
        if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise ModelError(f"{self._repo}: the server names no commit")
        files = _chosen(self._repo, ((entry.rfilename, entry.size or 0) for entry in info.siblings or ()))
        self._total = sum(file.size for file in files)
        missing = [file for file in files if not self._cache.pointer(commit, file.name).exists()]
        self._done = self._total - sum(file.size for file in missing)
        self._check_space(sum(file.size for file in missing))
        self._tell("")
        with _quiet():
            for file in missing:
                self._fetch(commit, file)
        self._cache.remember(self._revision, commit)
        self._tell("")
        return self._cache.root / "snapshots" / commit

    def _fetch(self, commit: str, file: RemoteFile) -> None:
        from huggingface_hub import constants, get_token, hf_hub_url
        from huggingface_hub.file_download import get_hf_file_metadata, http_get

        token = get_token()
        url = hf_hub_url(self._repo, file.name, revision=commit, endpoint=constants.ENDPOINT)
        meta = get_hf_file_metadata(url, token=token)
        etag = meta.etag
        if etag is None or not re.fullmatch(r"[\w.-]+", etag):
            raise ModelError(f"{self._repo}: the server names no version of {file.name}")
        blob, partial = self._cache.blob(etag), self._cache.partial(etag)
        blob.parent.mkdir(parents=True, exist_ok=True)
        if not blob.exists():
            with partial.open("ab+") as stream:
                self._lock(stream, file)
                start = _resumable(stream, meta.size)
                self._done += start
                self._tell(file.name)
                http_get(
                    url,
                    cast(Any, _Counted(stream, lambda count: self._advance(count, file.name))),
                    resume_size=start,
                    headers={"authorization": f"Bearer {token}"} if token else {},
                    expected_size=meta.size,
                    tqdm_class=cast(Any, _Silent),
                )
                stream.flush()
            self._check_digest(partial, etag, file)
            partial.replace(blob)
        else:
            self._done += file.size
        self._cache.link(commit, file.name, etag)

    def _lock(self, stream: IO[bytes], file: RemoteFile) -> None:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ModelError(f"{self._repo}: another process is downloading {file.name}: wait for it to end") from None
        except OSError:
            pass  # a file system without locks

    def _check_digest(self, path: Path, etag: str, file: RemoteFile) -> None:
        """Large files carry their SHA-256 as etag; a mismatch after an interrupted download must not stay."""
        if not _SHA256.fullmatch(etag):
            return
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != etag:
            path.unlink()
            raise ModelError(f"{self._repo}: {file.name} arrived damaged and was removed: run the command again")

    def _check_space(self, wanted: int) -> None:
        place = self._cache.root
        while not place.exists():
            place = place.parent
        held = sum(path.stat().st_size for path in self._cache.root.glob("blobs/*.ninfer.incomplete"))
        free = shutil.disk_usage(place).free
        if wanted - held + _SPARE > free:
            raise ModelError(
                f"{self._repo} needs {(wanted - held) / 2**30:.1f} GiB in {self._cache.root.parent} and "
                f"{free / 2**30:.1f} GiB are free: make room, or set HF_HOME to another disk"
            )

    def _advance(self, count: int, name: str) -> None:
        self._done += count
        self._tell(name)

    def _tell(self, name: str) -> None:
        if self._progress is not None:
            self._progress(DownloadProgress(self._done, self._total, name, self._cache.root))


@contextmanager
def _quiet() -> Iterator[None]:
    """The hub logs every retry in several lines; what counts is said once, by our own error."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _resumable(stream: IO[bytes], size: int | None) -> int:
    """How many bytes are there already. More than the file has are rubbish and thrown away."""
    start = stream.seek(0, 2)
    return stream.truncate(0) if size is not None and start > size else start


def _chosen(repo: str, listed: Iterable[tuple[str, int]]) -> list[RemoteFile]:
    """What a model directory needs, small files first: no code, no pickles, nothing of subdirectories."""
    plain = [RemoteFile(name, size) for name, size in listed if "/" not in name and not name.startswith(".")]
    small = [file for file in plain if file.name.endswith(_SMALL)]
    weights = [file for file in plain if file.name.endswith(_WEIGHTS)]
    if weights:
        return small + weights
    for suffix, what in ((".gguf", "GGUF files"), (".bin", "pickled weights"), (".pt", "pickled weights")):
        if any(file.name.endswith(suffix) for file in plain):
            raise ModelError(f"{repo} has only {what}: choose a model with safetensors weights")
    raise ModelError(f"{repo} has no safetensors weights: choose another model")


class _Counted:
    """A file that reports what is written to it. Going back (a server that cannot resume) counts backwards."""

    def __init__(self, stream: IO[bytes], count: Callable[[int], None]) -> None:
        self._stream = stream
        self._count = count

    def write(self, data: bytes) -> int:
        written = self._stream.write(data)
        self._count(written)
        return written

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def truncate(self, size: int | None = None) -> int:
        target = self._stream.tell() if size is None else size
        before = self._stream.seek(0, 2)
        after = self._stream.truncate(target)
        self._count(after - before)
        return after


class _Silent:
    """Takes the place of a progress bar: ours are drawn by the caller."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, count: float = 1) -> None:
        pass

    def close(self) -> None:
        pass
