"""SessionContent: continuations on their way between a Program and one of a session's two forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ninfer_core.program.session_directory import Directory, Sizes
from ninfer_core.program.session_header import Header

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of a loaded content lie in the session that they were loaded from."""

    continuations: tuple[int, ...]
    images: tuple[int, ...]
    pages: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class SessionContent:
    """
    Attributes:
        header: JSON-like; keys `model`, `continuations`, `conversation`.
        tensors: `images` [n, bytes] and `pages.POOL` [n, bytes] uint8; `tokens.K` and `trace.K` [n] int32.
        proven: see `Header`.
        places: None where it was not loaded.
    """

    header: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    proven: bool | None = None
    places: Places | None = None


class SessionSource(Protocol):
    """A session that lies on a disk, in either form. Making one reads the header alone."""

    @property
    def header(self) -> Header: ...

    def sizes(self) -> Sizes:
        """Of what is stored. Raises SessionError when the description contradicts itself."""

    def load(self, directory: Directory) -> SessionContent:
        """Read what a part of its directory needs, every checksum verified.

        Raises:
            SessionError: one line that names the check that failed.
        """
