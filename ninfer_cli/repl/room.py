"""Room: how large a conversation may become before a session cannot hold it any more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ninfer_cli.repl.tree_json import TreeWriter
from ninfer_core import UsageError
from ninfer_core.strict_json import MAX_BYTES, MAX_NODES

if TYPE_CHECKING:
    from ninfer_cli.repl.tree import Tree

NEARLY, FULL = 0.85, 0.95
"""Shares of what one session may hold. Behind FULL the longest reply that is under way still finds room."""
LIMIT = f"{MAX_BYTES >> 20} MiB and {MAX_NODES:,} values"


@dataclass(slots=True)
class Room:
    """Of one conversation. writer: puts it into the form that is measured."""

    writer: TreeWriter = field(default_factory=TreeWriter)
    _told: bool = False

    def nearly_full(self, tree: Tree) -> str:
        """A line that says so, the first time that it is; else nothing."""
        if self._told or (share := self.writer.share(tree)) < NEARLY:
            return ""
        self._told = True
        return (
            f"this conversation takes {share:.0%} of what a session can hold ({LIMIT}): save it, and begin another one "
            "with /new before it is full"
        )

    def check(self, tree: Tree, more: str, *, stays: bool) -> None:
        """
        Args:
            more: what is about to be said.
            stays: everything so far is kept.

        Raises:
            UsageError: what would come could not be kept. One line that says what to do.
        """
        share = self.writer.share(tree) + len(more.encode("utf-8", "surrogatepass")) / MAX_BYTES
        if share <= FULL:
            return
        what = "/new begins another one, and this one stays" if stays else "/export FILE.json writes this path"
        raise UsageError(
            f"the conversation would take {share:.0%} of what a session can hold ({LIMIT}) and could not be kept any "
            f"more: {what}; --no-autosave goes on without keeping"
        )
