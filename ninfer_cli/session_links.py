"""Conversations that a person keeps elsewhere (--session PATH): links to them among those that are kept by themselves.

So --continue and --resume find them. A link is made in one step, holds nothing but a path, and leads nowhere as soon as
the conversation is gone or out of reach; then it is passed over.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

FORGOTTEN = 30 * 24 * 3600
"""Seconds after its last use in which a link that leads nowhere may lead somewhere again, such as to a disk that is not
mounted now. Then it goes."""


def remember(path: Path, among: Path) -> None:
    """Let a session's directory be found among the others, unless it is one of them. A state directory that cannot be
    written costs that and nothing else.

    Args:
        among: the directory of sessions that are kept by themselves.
    """
    with suppress(OSError, RuntimeError):
        target = path.resolve()
        if target.parent == among.resolve():
            return
        among.mkdir(parents=True, exist_ok=True, mode=0o700)
        links = [link for link in among.iterdir() if link.is_symlink()]
        if not _renewed(links, target):
            _make(target, among)
        _forget(links)


def _renewed(links: list[Path], target: Path) -> bool:
    """Whether one of the links leads there, which was used now."""
    for link in links:
        with suppress(OSError):  # another chat has taken it away meanwhile
            if link.readlink() == target:
                os.utime(link, follow_symlinks=False)
                return True
    return False


def _make(target: Path, among: Path) -> None:
    for number in count(1):
        name = target.name if number == 1 else f"{target.name}-{number}"
        with suppress(FileExistsError):
            (among / name).symlink_to(target)
            return


def _forget(links: list[Path]) -> None:
    for link in links:
        with suppress(OSError):  # whether it leads anywhere cannot be seen
            if not link.exists() and link.lstat().st_mtime < time.time() - FORGOTTEN:
                link.unlink(missing_ok=True)
