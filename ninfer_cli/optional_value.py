"""An option that may stand alone: `--resume` lets choose, `--resume NAME` names. Typer knows only the latter."""

from __future__ import annotations

from typing import Any

from ninfer_cli.help_page import GroupedCommand

ALONE = "--resume"


class ChatCommand(GroupedCommand):
    """An option that stands alone reaches the command as an empty text."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        whole = [
            f"{word}=" if word == ALONE and (args[i + 1 :] or ["-"])[0].startswith("-") else word
            for i, word in enumerate(args)
        ]
        return super().parse_args(ctx, whole)
