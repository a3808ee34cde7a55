"""The manual pages say what --help says, and nothing that it does not."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType
from typing import Any

import pytest
import typer

from ninfer_cli.app import app
from ninfer_cli.repl.commands import COMMANDS
from tests.support.ninfer_process import ROOT

GROUP: Any = typer.main.get_command(app)
PAGES = {"ninfer": GROUP, **{f"ninfer-{name}": command for name, command in GROUP.commands.items()}}


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pages", ROOT / "man" / "make_pages.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_what_the_program_makes_of_its_tables() -> None:
    on_disk = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "man").glob("*.1")}
    assert on_disk == maker().pages(), "run: python man/make_pages.py"


@pytest.mark.parametrize("name", PAGES)
def test_every_option_is_in_the_page_and_the_reverse(name: str) -> None:
    command = PAGES[name]
    settings: Any = app.info.context_settings
    context = typer.Context(command, info_name=name, **settings)
    help_text = command.get_help(context)
    text = (ROOT / "man" / f"{name}.1").read_text(encoding="utf-8").replace("\\-", "-")
    in_help = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", help_text))
    options = text.partition(".SH OPTIONS")[2].partition("\n.SH ")[0]
    in_page = {
        flag for line in options.splitlines() if line.startswith("\\fB-") for flag in re.findall(r"--[a-z-]+", line)
    }
    assert in_page == {flag for flag in in_help if f"\\fB{flag}\\fR" in options} and in_help - in_page <= _mentioned(
        command
    )
    declared = {flag for p in command.get_params(context) for flag in (*p.opts, *p.secondary_opts)}
    assert in_page == {flag for flag in declared if flag.startswith("--")}
    assert "-h" in declared and all(f"\\fB{flag}\\fR" in options for flag in declared if flag.startswith("-"))


def _mentioned(command: Any) -> set[str]:
    """Options that a help text names without declaring them."""
    texts = " ".join(str(getattr(p, "help", "")) for p in command.params)
    return set(re.findall(r"--[a-z][a-z-]+", texts))


def test_chat_commands_are_in_the_page() -> None:
    text = (ROOT / "man" / "ninfer-chat.1").read_text(encoding="utf-8").replace("\\-", "-")
    assert all(row.usage in text and row.summary in text for row in COMMANDS)


def test_sections() -> None:
    for name in PAGES:
        text = (ROOT / "man" / f"{name}.1").read_text(encoding="utf-8")
        for section in ("NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "FILES", "ENVIRONMENT", "EXIT STATUS"):
            assert f"\n.SH {section}\n" in text, (name, section)
