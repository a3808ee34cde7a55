"""A person's hour with `ninfer chat`, as a script in two processes. `python -m tests.scenarios.hour [--verify]` runs it
and prints what every reply cost.

The model says letters only, REPLY of them each time; a token is a byte or a control token.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.letters import write_letters
from tests.support.ninfer_process import Ninfer

REPLY = 20
SYSTEM = "Be brief."
BEFORE = """\
I am Bela.
I live in Oslo.
My cat is Tom.
/regen
I like tea.
Who am I?
/regen
Where do I live?
Who is Tom?
/regen
What do I like?
/regen 3
/branch first
/edit 2 I live in Rome now.
And in May?
/branch edited
/switch first
/rewrite You like tea.
Thanks.
/save hour.ninfer
"""
AFTER = """\
What is a fjord?
/restore hour.ninfer
And coffee?
/regen
/switch edited
Where am I?
/regen
/switch first
/edit 5 Say my name.
"""


@dataclass(frozen=True)
class Reply:
    """One reply: prompt is its token ids, frontier and source say where it started."""

    prompt: tuple[int, ...] = field(repr=False)
    prefill: int
    source: str
    frontier: int
    text: str

    @property
    def row(self) -> tuple[int, int, int, str]:
        """(prompt tokens, reused, prefilled, source)"""
        return len(self.prompt), self.frontier, self.prefill, self.source


@dataclass(frozen=True)
class Hour:
    """Attributes:
    before, after: the replies of the two processes.
    verified: what each /verify found.
    saved, restored: the results of /save and /restore.
    """

    before: tuple[Reply, ...]
    after: tuple[Reply, ...]
    verified: tuple[dict[str, Any], ...]
    saved: dict[str, Any]
    restored: dict[str, Any]

    @property
    def replies(self) -> tuple[Reply, ...]:
        return self.before + self.after


def run_hour(ninfer: Ninfer, model: Path, *, verify: bool = False) -> Hour:
    """Two processes one after the other; the second serves an unrelated conversation first."""
    first, second = (_chat(ninfer, model, script, verify) for script in (BEFORE, AFTER))
    results = {value["command"].split()[0]: value["result"] for value in (*first, *second) if "command" in value}
    checks = tuple(v["result"] for v in (*first, *second) if v.get("command") == "/verify")
    return Hour(_replies(first), _replies(second), checks, results["/save"], results["/restore"])


def trie_nodes(sequences: Iterable[Sequence[int]]) -> int:
    """Nodes of the trie of all sequences, its root not counted: tokens that somebody has to compute at least once."""
    root: dict[int, Any] = {}
    count = 0
    for sequence in sequences:
        node = root
        for token in sequence:
            if token not in node:
                node[token] = {}
                count += 1
            node = node[token]
    return count


def _chat(ninfer: Ninfer, model: Path, script: str, verify: bool) -> list[dict[str, Any]]:
    lines = script.splitlines()
    if verify:
        speaks = ("/regen", "/edit")
        lines = [
            x for line in lines for x in ([line, "/verify"] if line[0] != "/" or line.startswith(speaks) else [line])
        ]
    arguments = ["-m", str(model), "--system", SYSTEM, "--no-think", "--max-new", str(REPLY), "--seed", "1"]
    command = [sys.executable, "-m", "ninfer_cli", "chat", "--script", "-", "--json", "--json-tokens", *arguments]
    done = subprocess.run(
        [*command, "--autosave"],
        input="\n".join(lines),
        env={**ninfer.environment, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        cwd=ninfer.home,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"the chat ended with {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _replies(values: list[dict[str, Any]]) -> tuple[Reply, ...]:
    found = []
    for value in values:
        if "usage" not in value:
            continue
        usage, reuse = value["usage"], value["reuse"]
        assert usage["reused_tokens"] == reuse["frontier"]
        prompt = tuple(value["prompt_token_ids"])
        found.append(Reply(prompt, usage["prefill_tokens"], reuse["source"], reuse["frontier"], value["text"]))
    return tuple(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verify", action="store_true", help="/verify after every reply")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        hour = run_hour(Ninfer(home), write_letters(home / "letters"), verify=arguments.verify)
    print(f"{'prompt':>6} {'reused':>6} {'prefill':>7}  source")
    for number, reply in enumerate(hour.replies):
        if number == len(hour.before):
            print("  -- another process --")
        print(f"{len(reply.prompt):>6} {reply.frontier:>6} {reply.prefill:>7}  {reply.source}")
    nodes = trie_nodes(reply.prompt for reply in hour.replies)
    paid = sum(reply.prefill for reply in hour.replies)
    whole = sum(len(reply.prompt) for reply in hour.replies)
    print(f"{len(hour.replies)} replies, {whole} prompt tokens, {paid} prefilled, {nodes} nodes in the prompts' trie")
    if hour.verified:
        equal = sum(v["state"] and v["kv"] and v["tokens"] for v in hour.verified)
        print(f"/verify: {equal} of {len(hour.verified)} equal in state, keys and values, and tokens")


if __name__ == "__main__":
    main()
