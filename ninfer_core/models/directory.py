"""ModelDirectory: the one way in which a model's files are opened. Knows no torch."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_core.errors import ModelError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_JSON_BYTES = 16 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """A directory whose files may be read and nothing else: links that lead outside it are refused.

    The one exception is the Hugging Face cache, where `snapshots/REVISION/name` links to `blobs/DIGEST`.

    Attributes:
        path: as given, for messages.
        root: resolved.
    """

    path: Path
    root: Path

    @classmethod
    def open(cls, path: Path) -> ModelDirectory:
        """Raises ModelError when there is no such directory."""
        try:
            root = path.resolve(strict=True)
        except (OSError, RuntimeError):
            raise ModelError(f"{path}: there is no such model directory") from None
        if root.is_dir():
            return cls(path, root)
        if path.suffix.lower() == ".gguf":
            raise ModelError(f"{path}: GGUF files are not supported: give a directory with safetensors weights")
        raise ModelError(f"{path}: not a directory: give the directory that holds config.json and the weights")

    @property
    def name(self) -> str:
        """What people call the model: `owner/name` in the Hugging Face cache, else the directory's name."""
        repo = self.root.parent.parent.name
        if _COMMIT.fullmatch(self.root.name) and repo.startswith("models--"):
            return repo.removeprefix("models--").replace("--", "/", 1)
        return self.root.name

    def names(self) -> list[str]:
        """The names in the directory, sorted. Raises ModelError when it cannot be listed."""
        try:
            return sorted(entry.name for entry in self.root.iterdir())
        except OSError as error:
            raise ModelError(f"{self.path}: cannot be listed: {error.strerror}") from error

    def file(self, name: str) -> Path | None:
        """The resolved path of a regular file directly inside, or None when there is none.

        Raises:
            ModelError: the name leads elsewhere, or is no regular file.
        """
        if "/" in name or "\\" in name or name in ("", ".", ".."):
            raise ModelError(f"{self.path}: {name!r} is not a plain file name: the model's files are damaged")
        try:
            target = (self.root / name).resolve(strict=True)
            regular = stat.S_ISREG(target.stat().st_mode)
        except FileNotFoundError:
            if (self.root / name).is_symlink():
                raise ModelError(
                    f"{self.path / name}: the link leads nowhere: download or copy the model again"
                ) from None
            return None
        except (OSError, RuntimeError, ValueError) as error:
            raise ModelError(f"{self.path / name}: cannot be opened: {error}") from None
        if target.parent != self.root and not self._is_blob(target):
            raise ModelError(f"{self.path / name}: links to a file outside the model directory: copy the file into it")
        if not regular:
            raise ModelError(f"{self.path / name}: not a regular file")
        return target

    def read(self, name: str, most: int) -> bytes | None:
        """The bytes of a small file, or None when there is none.

        Raises:
            ModelError: not a regular file inside, larger than `most` bytes, or unreadable.
        """
        path = self.file(name)
        if path is None:
            return None
        shown = self.path / name
        try:
            with path.open("rb") as stream:
                data = stream.read(most + 1)
        except OSError as error:
            raise ModelError(f"{shown}: cannot be read: {error.strerror}") from error
        if len(data) > most:
            raise ModelError(f"{shown}: too large for such a file, the limit is {most:,} bytes")
        return data

    def json_object(self, name: str, most: int = MAX_JSON_BYTES) -> dict[str, Any] | None:
        """The object in a JSON file, or None when there is no such file.

        Raises:
            ModelError: as `read`, and when it is no JSON or no object.
        """
        data = self.read(name, most)
        if data is None:
            return None
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ModelError(f"{self.path / name}: not valid JSON ({reason}): download or copy it again") from None
        if not isinstance(value, dict):
            raise ModelError(f"{self.path / name}: must hold a JSON object: download or copy it again")
        return value

    def _is_blob(self, target: Path) -> bool:
        snapshots = self.root.parent
        return snapshots.name == "snapshots" and target.parent == snapshots.parent / "blobs"
