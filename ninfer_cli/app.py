"""The `ninfer` program. Nothing heavy is imported here: --help, --version and usage errors never load torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ninfer_cli.boundary import guarded
from ninfer_cli.commands.bench import bench
from ninfer_cli.commands.chat import chat
from ninfer_cli.commands.restore_session import restore_session
from ninfer_cli.commands.run import run
from ninfer_cli.commands.save_session import save_session
from ninfer_cli.help_page import GroupedCommand
from ninfer_cli.interrupts import install_termination
from ninfer_cli.optional_value import ChatCommand
from ninfer_cli.output import STANDARD_OUTPUT, hold_standard_streams, named

app = typer.Typer(
    name="ninfer",
    help="Run Qwen3.5-family models on your own machine, in this process.",
    epilog="Try: ninfer run 'What is your name?'   or: ninfer chat",
    rich_markup_mode=None,  # plain help: the same text piped and shown, and no rich to load
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=GroupedCommand)(run)
app.command(cls=ChatCommand)(chat)
app.command(cls=GroupedCommand)(bench)
app.command("save-session", cls=GroupedCommand, short_help="Read documents once, to start from later.")(save_session)
app.command("restore-session", cls=GroupedCommand, short_help="Check a session, show it, or ask it.")(restore_session)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"ninfer {version('ninfer')}")
        except PackageNotFoundError:
            typer.echo("ninfer (not installed: run from its sources)")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def ninfer(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, then work, then exit with product.md's status. The console enters through __main__."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    install_termination()
    hold_standard_streams()
    sys.exit(guarded(lambda: _parse_and_work(words), verbose=_asks_for_tracebacks(words)))


def _parse_and_work(words: list[str]) -> int:
    # What is written here is the help or the version; only --install-completion writes other files.
    with named(None if "--install-completion" in words else STANDARD_OUTPUT):
        job: Any = app(args=words, prog_name="ninfer", standalone_mode=False)
    if callable(job):  # a command was parsed; what it returned is its work (options.takes)
        _warn_of_variables()
        return int(job())
    return int(job or 0)  # --help, --version


def _warn_of_variables() -> None:
    from ninfer_cli.output import open_streams
    from ninfer_cli.settings import unknown_variables

    streams = open_streams()
    for line in unknown_variables():
        streams.warn(line)


def _asks_for_tracebacks(words: Sequence[str]) -> bool:
    """Known before parsing, because parsing may fail: --verbose, or v among letters that take no value."""
    return any(w == "--verbose" or (w[:1] == "-" and "v" in w and set(w[1:]) <= set("qv")) for w in words)


if __name__ == "__main__":
    main()
