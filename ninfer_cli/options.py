"""The options that run, chat and bench share: declared once, here.

The table drives the flags, the `NINFER_<OPTION>` environment variables, the keys of config.toml, the help and (through
a test) the man pages. What a value becomes after all of them were looked at is in settings.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from ninfer_cli.kinds import Choice, Kind, Number, Size, Switch, Text, Texts, Whole

MODEL, CACHE, PROMPT, SAMPLING, THINKING, OUTPUT = (
    "Model",
    "Context cache",
    "Prompt",
    "Sampling",
    "Thinking",
    "Output",
)


PREFIX = "NINFER_"


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: the long flag without dashes; also the config key, and NINFER_<NAME> in the environment.
        kind: how its value is read.
        panel: the heading in --help that it stands under.
        short: a one-letter flag, or None.
        negatable: whether --no-<name> exists too.
    """

    name: str
    kind: Kind
    help: str
    panel: str
    short: str | None = None
    negatable: bool = False

    @property
    def key(self) -> str:
        """The Python name: parameter, Settings field."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        return PREFIX + self.key.upper()

    def parameter(self) -> inspect.Parameter:
        """A keyword-only parameter that Typer turns into the flag. None and [] mean: not given."""
        flags = [f"--{self.name}/--no-{self.name}" if self.negatable else f"--{self.name}"]
        if self.short:
            flags.append(f"-{self.short}")
        shown: dict[str, Any] = {"help": self.help, "rich_help_panel": self.panel, "show_default": False}
        if isinstance(self.kind, Switch):
            annotation: Any = Annotated[bool | None, typer.Option(*flags, **shown)]
        elif isinstance(self.kind, Texts):
            annotation = Annotated[list[str] | None, typer.Option(*flags, metavar=self.kind.metavar, **shown)]
        else:
            annotation = Annotated[str | None, typer.Option(*flags, metavar=self.kind.metavar, **shown)]
        return inspect.Parameter(self.key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


OPTIONS: tuple[Option, ...] = (
    Option("model", Text("PATH|NAME"), "A checkpoint directory, or owner/name[@revision] of the Hugging Face Hub. "
           "Default: the bundled demo model.", MODEL, short="m"),
    Option("offline", Switch(), "Never open a connection: use what is on this machine.", MODEL),
    Option("device", Text("auto|cpu|cuda[:N]"), "Where the model runs.", MODEL),
    Option("dtype", Choice(("auto", "float32", "bfloat16", "float16")), "Number format of weights and cache. "
           "Default: the checkpoint's where the device multiplies it natively.", MODEL),
    Option("max-context", Whole(least=2), "Tokens of the longest conversation, reply included. "
           "Default: the least of the model's, 32768 and what fits.", MODEL),
    Option("max-concurrency", Whole(least=1), "Requests that decode at the same time, 1 to 8. "
           "Default: 4 for chat, else 1.", MODEL),
    Option("kv-capacity", Whole("N|auto", least=2, auto=True), "Tokens that the key/value pool holds.", MODEL),
    Option("cache", Switch(), "Keep what was computed for later requests, or read every prompt anew. Default: --cache.",
           CACHE, negatable=True),
    Option("device-state-slots", Whole("N|auto", auto=True), "Model states kept on the device, beside one per request. "
           "Default: what memory allows, at most 64.", CACHE),
    Option("host-state-slots", Whole("N|auto", auto=True), "Model states kept in main memory. Default: none on a CPU, "
           "where it would be the same memory.", CACHE),
    Option("host-kv-capacity", Size(), "Main memory for keys and values, such as 512MiB. Default: none on a CPU.",
           CACHE),
    Option("max-private-continuations", Whole("N|auto", least=1, auto=True), "Conversations remembered, running ones "
           "included. Default: 64, and one per request that may run.", CACHE),
    Option("max-shared-prefixes", Whole("N|auto", auto=True), "Beginnings that several conversations may start from. "
           "Default: 7, or one per request that may run if that is more.", CACHE),
    Option("max-long-anchors", Whole("N|auto", auto=True), "Earlier points kept of each conversation. "
           "Default: 4 to 16, as memory allows.", CACHE),
    Option("automatic-anchors", Whole("N|auto", auto=True), "Points proposed at the last N message boundaries. "
           "Default: as many as may be kept.", CACHE),
    Option("endpoint-anchors", Switch(), "Keep a point where a long conversation's end was before it went on. "
           "Default: on.", CACHE, negatable=True),
    Option("automatic-shared-prefixes", Switch(), "Share tools, leading instructions and whole prompts. Default: on.",
           CACHE, negatable=True),
    Option("prefix-grid", Switch(), "Share prompts at every so many tokens too. Default: off.", CACHE, negatable=True),
    Option("recency-eviction", Switch(), "When memory is short, give up whole conversations only by their last use. "
           "Default: off.", CACHE, negatable=True),
    Option("kv-lease-growth", Switch(), "Promise a running request a window that grows, not its whole reply: more run "
           "at once, and one that cannot grow ends early. Default: off.", CACHE, negatable=True),
    Option("planning-targets", Whole("N|auto", auto=True), "Most alternatives that one choice may look at. "
           "Default: 256.", CACHE),
    Option("planning-ms", Number("X|auto", auto=True), "Most milliseconds that it may take for them. Default: 6.",
           CACHE),
    Option("system", Text("TEXT|@FILE"), "The system message, or a file that holds it.", PROMPT, short="s"),
    Option("temperature", Number(), "0 is greedy; higher is more varied. Sampling defaults come from the model's "
           "generation_config.json.", SAMPLING),
    Option("top-p", Number(), "Keep the likeliest tokens that together reach probability X.", SAMPLING),
    Option("top-k", Whole(), "Keep the N likeliest tokens; 0 keeps all.", SAMPLING),
    Option("min-p", Number(), "Drop tokens less likely than X times the likeliest.", SAMPLING),
    Option("presence-penalty", Number(), "Lower every token that the reply already holds.", SAMPLING),
    Option("frequency-penalty", Number(), "Lower a token for each time that the reply holds it.", SAMPLING),
    Option("repetition-penalty", Number(), "Divide the score of tokens seen in prompt or reply by X.", SAMPLING),
    Option("seed", Whole(), "The same seed and prompt give the same reply.", SAMPLING),
    Option("greedy", Switch(), "Always take the likeliest token: --temperature 0.", SAMPLING),
    Option("think", Switch(), "Ask for, or switch off, reasoning before the answer, where the model's template has "
           "a switch.", THINKING, negatable=True),
    Option("thinking-budget", Whole(), "Most tokens of reasoning; then it is closed and the answer begins.", THINKING),
    Option("reasoning", Choice(("show", "hide")), "Show reasoning on standard error, or hide it. Default: show.",
           THINKING),
    Option("max-new", Whole(least=1), "Most tokens of a reply. Default: 4096.", OUTPUT),
    Option("stop", Texts(), "End the reply before this text. Repeatable.", OUTPUT),
    Option("json", Switch(), "One JSON object per reply on standard output.", OUTPUT),
    Option("json-tokens", Switch(), "--json, with the token ids of prompt and reply.", OUTPUT),
    Option("stats", Switch(), "One line of statistics per reply on standard error; -v adds each token's fate.", OUTPUT),
    Option("raw", Switch(), "Show the reply's text as it is: no Markdown on a terminal.", OUTPUT),
    Option("quiet", Switch(), "Only the answer, warnings and errors.", OUTPUT, short="q"),
    Option("verbose", Switch(), "Print what was resolved; with an error its traceback, too.", OUTPUT, short="v"),
    Option("no-color", Switch(), "No colour on any stream; nothing is redrawn but the chat's input line.", OUTPUT),
)  # fmt: skip
REPORTS: tuple[Option, ...] = (
    Option("cache-stats", Switch(), "What the context cache holds, on standard error (with --json as an object).",
           OUTPUT),
    Option("verify-reuse", Switch(), "Replay the reply cold and compare state and tokens: status 1 if they differ.",
           OUTPUT),
)  # fmt: skip
CHAT_OPTIONS: tuple[Option, ...] = (
    Option("no-history", Switch(), "Neither read nor write the file of typed lines.", "Chat"),
    Option("autosave", Switch(), "Keep the conversation and its state on the disk after every turn. Default: on.",
           "Chat", negatable=True),
    Option("autosave-limit", Size(), "Most state that is kept so; text always stays. Default: 4GiB.", "Chat"),
    Option("session-limit", Size(), "Most state that /save writes, newest first. Default: all of it.", "Chat"),
    Option("force", Switch(), "Let /save and /export overwrite files without asking.", "Chat"),
)  # fmt: skip
ALL_OPTIONS = (*OPTIONS, *REPORTS, *CHAT_OPTIONS)
BY_NAME = {option.name: option for option in ALL_OPTIONS}

FILE = Option("file", Texts("PATH"), "Put the text of a UTF-8 file before the prompt, in chat before the first "
              "message. Repeatable.", PROMPT)  # fmt: skip
"""Not among ALL_OPTIONS: what is asked about is no setting, so neither environment nor config.toml has it."""
SESSIONS = "Sessions"


def own(*flags: str, text: str, panel: str, metavar: str | None = None, default: bool = False) -> Any:
    """A flag that is no setting: neither environment nor config.toml has it.

    Args:
        default: --help shows the default.
    """
    return typer.Option(*flags, metavar=metavar, help=text, rich_help_panel=panel, show_default=default)


MESSAGES = own(
    "--messages",
    metavar="FILE|-",
    text="A JSON list of messages, or an object with messages and tools.",
    panel=PROMPT,
)
"""The same for every command that reads a whole conversation."""
FORCE = own("--force", text="Let --save replace an existing file.", panel=SESSIONS)
"""The same for every command with --save."""

Job = Callable[[], int]
"""What a command function returns to main: the work itself, run outside of Typer; its result is the exit status."""


def takes(options: Iterable[Option]) -> Callable[[Callable[..., int]], Callable[..., Job]]:
    """Give a command function the flags of options.

    The function's first parameter receives {option name: text or list or bool} of what was given on the command line;
    its other parameters stay Typer parameters of its own. Typer sees one flat signature. What it calls only binds the
    arguments: the work runs after Typer has returned, so that every error meets one boundary and no other handler.
    """
    options = tuple(options)

    def decorate(function: Callable[..., int]) -> Callable[..., Job]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        def command(**values: Any) -> Job:
            given = {option.name: values.pop(option.key) for option in options}
            given = {name: value for name, value in given.items() if value is not None and value != []}
            return partial(function, given, **values)

        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        parameters += [option.parameter() for option in options]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__name__ = function.__name__
        command.__doc__ = function.__doc__
        return command

    return decorate
