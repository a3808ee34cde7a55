"""HubCache: the Hugging Face cache's layout for one model, so that a cached snapshot needs no network.

    models--OWNER--NAME/refs/REVISION            the commit that a branch or tag meant when it was last asked for
    models--OWNER--NAME/snapshots/COMMIT/file -> ../../blobs/ETAG
    models--OWNER--NAME/blobs/ETAG[.ninfer.incomplete]

(Described in huggingface_hub's guide "Understand caching".)
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ninfer_core.errors import ModelError
from ninfer_core.models.directory import INDEX, SINGLE, ModelDirectory

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubCache:
    """Attributes: root: the model's own directory in the cache. It need not exist."""

    root: Path

    @classmethod
    def of(cls, repo: str) -> HubCache:
        """The place of `owner/name`, as HF_HOME and HF_HUB_CACHE say."""
        from huggingface_hub import constants

        return cls(Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}")

    def snapshot(self, revision: str) -> Path | None:
        """The directory of a complete snapshot, or None. Changes nothing."""
        commit = self.commit(revision)
        if commit is None:
            return None
        path = self.root / "snapshots" / commit
        return path if _complete(path) else None

    def commit(self, revision: str) -> str | None:
        """The commit that a revision meant when it was last asked for, or None."""
        if _COMMIT.fullmatch(revision):
            return revision
        try:
            commit = (self.root / "refs" / revision).read_text().strip()
        except OSError:
            return None
        return commit if _COMMIT.fullmatch(commit) else None

    def pointer(self, commit: str, name: str) -> Path:
        return self.root / "snapshots" / commit / name

    def blob(self, etag: str) -> Path:
        return self.root / "blobs" / etag

    def partial(self, etag: str) -> Path:
        """Where a download gathers its bytes; what is there is continued by the next one."""
        return self.root / "blobs" / f"{etag}.ninfer.incomplete"

    def link(self, commit: str, name: str, etag: str) -> None:
        """Make a blob appear in a snapshot."""
        pointer = self.pointer(commit, name)
        pointer.parent.mkdir(parents=True, exist_ok=True)
        fresh = pointer.with_name(f".{pointer.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(os.path.relpath(self.blob(etag), pointer.parent))
        fresh.replace(pointer)

    def remember(self, revision: str, commit: str) -> None:
        """Note what a branch or tag means."""
        if revision != commit:
            ref = self.root / "refs" / revision
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(commit)


def _complete(path: Path) -> bool:
    """Whether a snapshot has its config and all of its weights. Downloads take the small files first, so that
    complete weights mean a complete snapshot."""
    if not (path / "config.json").is_file():
        return False
    if (path / SINGLE).is_file():
        return True
    try:
        index = ModelDirectory.open(path).json_object(INDEX)
    except ModelError:
        return False
    if index is None:
        return any(entry.is_file() for entry in path.glob("*.safetensors"))
    files = index.get("weight_map")
    if not isinstance(files, dict) or not files:
        return False
    return all(isinstance(file, str) and (path / file).is_file() for file in files.values())
