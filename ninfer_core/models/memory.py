"""How much memory this process may still take, and which errors say that there is none."""

from __future__ import annotations

import os
from pathlib import Path


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping: the system's estimate, less if a control group allows less.

    None where neither says.
    """
    found = [value for value in (_meminfo(), _control_group(), _physical()) if value is not None]
    return min(found) if found else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed. torch raises nothing more particular than RuntimeError for one on the CPU."""
    text = str(error).lower()
    told = any(words in text for words in ("allocate memory", "not enough memory", "out of memory"))
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and told)


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _control_group() -> int | None:
    """Version 2 groups, as containers have them. Reclaimable file pages do not count as used."""
    base = Path("/sys/fs/cgroup")
    try:
        limit = (base / "memory.max").read_text().strip()
        if limit == "max":
            return None
        stats = dict(line.split() for line in (base / "memory.stat").read_text().splitlines())
        used = int((base / "memory.current").read_text()) - int(stats.get("inactive_file", 0))
        return max(0, int(limit) - used)
    except (OSError, ValueError):
        return None


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None
