"""Write the manual pages from the program's own tables: `python man/make_pages.py`.

Options come from Typer's commands, chat commands from the REPL's table; only prose lives here. A test runs this and
compares, so a page cannot fall behind.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from ninfer_cli.app import app  # noqa: E402
from ninfer_cli.options import ALL_OPTIONS  # noqa: E402
from ninfer_cli.repl.commands import COMMANDS, KEYS  # noqa: E402

EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "ninfer": [
        ("One answer from the bundled demo model:", "ninfer run 'My name is Bela. What is my name?'"),
        ("A conversation with a model of your own:", "ninfer chat --model ~/models/Qwen3.5-0.8B"),
    ],
    "run": [
        ("A question about a text:", "ninfer run 'Summarise this in one sentence.' < report.txt"),
        ("A whole conversation as JSON, the answer as JSON:", "ninfer run --messages talk.json --json"),
        ("The same answer every time:", "ninfer run --greedy --max-new 100 'Count to ten.'"),
    ],
    "chat": [
        ("With a system message from a file:", "ninfer chat --system @persona.txt"),
        ("Without a terminal:", "printf 'I am Bela.\\\\nWho am I?\\\\n' | ninfer chat --script - --json"),
    ],
    "save-session": [
        ("A long document, read once:", "ninfer save-session report.ninfer --file report.txt"),
        ("Then asked as often as you like:", "ninfer run --session report.ninfer 'What changed in May?'"),
    ],
    "restore-session": [
        ("What a file holds, without a model:", "ninfer restore-session report.ninfer --inspect"),
        ("Is every bit of its state right?", "ninfer restore-session report.ninfer --verify"),
        ("One question from it:", "ninfer restore-session report.ninfer --prompt 'Who wrote it?'"),
        ("A session of another model:", "ninfer restore-session talk.ninfer -m OTHER --rebuild --save mine.ninfer"),
    ],
    "bench": [
        ("Prompt processing and generation, one and four sequences:", "ninfer bench pp512 tg128 -b 1,4"),
        (
            "Random weights of a published shape, beside transformers:",
            "ninfer bench --random 0.8b --compare transformers",
        ),
        ("Measure this machine once, for better choices of what to keep:", "ninfer bench --calibrate -m MODEL"),
    ],
}
CONFIG, HISTORY, CALIBRATION, CACHE, KEY, SESSIONS = (
    "$XDG_CONFIG_HOME/ninfer/config.toml",
    "$XDG_STATE_HOME/ninfer/history",
    "$XDG_STATE_HOME/ninfer/calibration.json",
    "$XDG_CACHE_HOME/ninfer",
    "$XDG_STATE_HOME/ninfer/session-key",
    "$XDG_STATE_HOME/ninfer/sessions",
)
FILES = {
    CONFIG: "Defaults: keys are long options without dashes in front, for instance "
    "max-new = 500. An unknown key is an error.",
    HISTORY: "Lines typed in chat, readable by their owner only. A line that begins with a "
    "space stays out; --no-history switches the file off.",
    CALIBRATION: "What copies and prefill cost on this machine (ninfer bench --calibrate); it decides which of several "
    "ways to an answer is the cheapest, never what fits.",
    CACHE: "Random benchmark weights (ninfer bench --random).",
    SESSIONS: "Conversations that chat keeps by itself, one directory each, with their state, and links to those that "
    "it keeps where --session says; --no-autosave keeps none.",
    KEY: "The secret that sessions are signed with, readable by its owner only. A session without its tag is used all "
    "the same, and called unproven.",
}
FILES_OF = {
    "ninfer": (CONFIG, HISTORY, SESSIONS, CALIBRATION, CACHE, KEY),
    "run": (CONFIG, CALIBRATION, KEY),
    "chat": (CONFIG, HISTORY, SESSIONS, CALIBRATION, KEY),
    "bench": (CONFIG, CALIBRATION, CACHE),
    "save-session": (CONFIG, CALIBRATION, KEY),
    "restore-session": (CONFIG, CALIBRATION, KEY),
}
STATUS = {
    "0": "Success. Also when the reader of a pipe has closed it.",
    "1": "Something failed at run time: a model or a session is missing or damaged, memory or disk are too small.",
    "2": "Wrong usage: an option, an attached file or a message that cannot be.",
    "130": "Interrupted with Ctrl-C; in run what was generated stays on standard output.",
    "129, 143": "SIGHUP or SIGTERM; the reply was ended at a token boundary first.",
}
PROSE = {
    "ninfer": "ninfer runs Qwen3.5-family models in its own process, on a plain CPU by default. Without --model it "
    "uses the small demo model that comes with it. Standard output carries the answer only; progress, reasoning, "
    "statistics and warnings go to standard error.",
    "run": "Prints one answer. The prompt is the argument, standard input, or both, separated by a blank line with "
    "standard input first; texts of --file come before them. --messages hands in a whole conversation instead. On a "
    "terminal the answer is shown as Markdown unless --raw; elsewhere its bytes are unchanged.",
    "chat": "A conversation at the terminal, or with --script from a file. Lines that begin with a slash are commands. "
    "The conversation and its state are kept after every turn: --continue goes on with the newest, --resume with one "
    "of a name or of a list, --session with a file or directory.",
    "save-session": "Reads documents and messages once and writes the model's state beside their text. Texts of "
    "--file, "
    "of standard input, and what --messages leaves unanswered become the beginning of the next message. Later commands "
    "start from the file and read nothing of it again. OUT must be new, unless --force.",
    "restore-session": "Checks a session, file or directory, against the model, makes its state resident and says "
    "checkpoint by checkpoint what a conversation can go on from. The state of another model, tokenizer or template is "
    "refused; --rebuild opens its text all the same. A file that this user's key did not sign is called unproven: its "
    "text might not be what its state has read; --verify replays it.",
    "bench": "Measures throughput. pp512 is the processing of a prompt of 512 tokens, tg128 the generation of 128 "
    "tokens, @d4096 puts 4096 tokens before. Every row is repeated after a warm-up; the table shows mean and "
    "standard deviation. TTFT is the time to the first token. reuse plays a conversation of 2,048 tokens "
    "(reuse@d512: of 512) with the context cache and without: cold, append, regenerate, edit, branch, rewrite, "
    "shared-system, restore; its tok/s are prompt tokens over the time to the first token, 'in steps' is that time in "
    "decode steps of the same reply. --calibrate measures no tests but the cost of "
    "copies and of prefill with the chosen model.",
}


def escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def option_lines(parameter: Any) -> list[str]:
    flags = [*parameter.opts, *parameter.secondary_opts]
    flags.sort(key=len)
    shown = ", ".join(f"\\fB{escaped(flag)}\\fR" for flag in flags)
    if not parameter.is_flag:
        shown += f" \\fI{escaped(str(parameter.metavar or 'VALUE'))}\\fR"
    return [".TP", shown, escaped(parameter.help or "")]


def options(command: Any) -> list[str]:
    panels: dict[str, list[str]] = {}
    context = typer.Context(command, **app.info.context_settings)  # which knows -h
    for parameter in command.get_params(context):
        if parameter.param_type_name == "option":
            panel = getattr(parameter, "rich_help_panel", None) or "Other"
            panels.setdefault(panel, []).extend(option_lines(parameter))
    return [".SH OPTIONS", *(line for panel, lines in panels.items() for line in (f".SS {panel}", *lines))]


def chat_commands() -> list[str]:
    lines = [".SH COMMANDS"]
    for row in COMMANDS:
        also = f" (also {', '.join('/' + alias for alias in row.aliases)})" if row.aliases else ""
        lines += [".TP", f"\\fB{escaped(row.usage)}\\fR", escaped(row.summary + also)]
    lines += [".PP", "An unknown command is an error. //text says /text to the model.", ".SH KEYS"]
    lines += [escaped(key) for key in KEYS if key]
    lines += [
        ".SH SCRIPTS",
        "A line is one submission. A line's end after a backslash, or within a pair of three double quotes, does not "
        "end it. Blank lines and lines that begin with # are skipped; \\e# sends one. Replies go to standard output, "
        "separated by blank lines, what commands say to standard error. The first error ends the script with status "
        "1 unless \\-\\-keep\\-going.",
    ]
    return lines


def synopsis(command: Any) -> str:
    """What stands behind a command's name. Brackets: may be left out."""
    words = ["[\\fIoptions\\fR]"]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            word = f"\\fI{escaped(str(parameter.metavar))}\\fR"
            words.append((word if parameter.required else f"[{word}]") + ("..." if parameter.nargs != 1 else ""))
    return " ".join(words)


def page(name: str, command: Any) -> str:
    title = "ninfer" if name == "ninfer" else f"ninfer-{name}"
    summary = (command.help or "").strip().split("\n")[0].split(". ")[0].rstrip(".")
    lines = [f'.TH {title.upper().replace("-", chr(92) + "-")} 1 "" "ninfer" "ninfer manual"']
    lines += [".SH NAME", f"{escaped(title)} \\- {escaped(summary[0].lower() + summary[1:])}", ".SH SYNOPSIS"]
    if name == "ninfer":
        lines += [f".B ninfer {word}\n{synopsis(sub)}\n.br" for word, sub in command.commands.items()]
        lines += [".B ninfer \\-\\-version"]
    else:
        lines += [f".B ninfer {name}", synopsis(command)]
    lines += [".SH DESCRIPTION", escaped(PROSE[name])]
    if name == "ninfer":
        lines.append(".SH COMMANDS")
        for word, sub in command.commands.items():
            lines += [".TP", f"\\fBninfer\\-{word}\\fR(1)", escaped((sub.help or "").strip().split("\n")[0])]
    lines += options(command)
    if name == "chat":
        lines += chat_commands()
    lines.append(".SH EXAMPLES")
    for what, example in EXAMPLES[name]:
        lines += [".PP", escaped(what), ".PP", ".nf", ".RS 4", escaped(example).replace("\\e\\e", "\\e"), ".RE", ".fi"]
    lines.append(".SH FILES")
    for path in FILES_OF[name]:
        lines += [".TP", f"\\fI{escaped(path)}\\fR", escaped(FILES[path])]
    lines += [*environment(name, command), ".SH EXIT STATUS"]
    for status, what in STATUS.items():
        lines += [".TP", escaped(status), escaped(what)]
    others = ["ninfer", *(f"ninfer-{word}" for word in ("run", "chat", "bench", "save-session", "restore-session"))]
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{escaped(other)}\\fR(1)" for other in others if other != title)]
    return "\n".join(lines) + "\n"


def environment(name: str, command: Any) -> list[str]:
    lines = [".SH ENVIRONMENT", ".TP", "\\fBNO_COLOR\\fR", "If set, no colour on any stream; TERM=dumb does the same."]
    if name == "ninfer":
        return [
            *lines,
            ".TP",
            "\\fBNINFER_\\fR\\fIOPTION\\fR",
            escaped("A default for every command, for instance NINFER_MAX_NEW=500. An option given on the command "
                    "line wins over it, and it wins over config.toml. One that no option has is warned of."),
            ".TP",
            "\\fBHF_HOME\\fR, \\fBHF_ENDPOINT\\fR, \\fBHF_TOKEN\\fR, \\fBHF_HUB_OFFLINE\\fR",
            escaped("As everywhere with Hugging Face: where models are kept, and whence they come."),
        ]  # fmt: skip
    taken = {parameter.name for parameter in command.params}
    names = [f"\\fB{option.variable}\\fR" for option in ALL_OPTIONS if option.key in taken]
    return [*lines, ".TP", ", ".join(names), "Defaults of the options of the same name. See \\fBninfer\\fR(1)."]


def pages() -> dict[str, str]:
    """File name -> text of every page."""
    group: Any = typer.main.get_command(app)
    found = {"ninfer.1": page("ninfer", group)}
    found |= {f"ninfer-{word}.1": page(word, command) for word, command in group.commands.items()}
    return found


if __name__ == "__main__":
    for file, text in pages().items():
        (HERE / file).write_text(text, encoding="utf-8")
