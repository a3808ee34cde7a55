"""A command as it is typed: --help in plain text with the options under their headings, and words that are too many."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from ninfer_cli.cleaning import one_line


class GroupedCommand(TyperCommand):
    """Typer's plain help lists all options in one block; forty of them want headings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True  # they are refused here, with more than Typer has to say
        extra = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            takes_prompt = any(p.param_type_name == "argument" and p.metavar == "PROMPT" for p in self.params)
            hint = ": put a prompt of several words in quotes" if takes_prompt else ""
            ctx.fail(f"Got unexpected extra argument(s) ({one_line(' '.join(extra))}){hint}")
        return extra

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            is_argument = parameter.param_type_name == "argument"
            heading = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or "Options"
            sections.setdefault(str(heading), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)
