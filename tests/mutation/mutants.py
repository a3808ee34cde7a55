"""Named mutants of the physical authority: each is one plausible mistake, and the suite must notice every one.

python -m tests.mutation.mutants            run all (in a temporary copy of the repository)
python -m tests.mutation.mutants NAME ...   run some
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import hypothesis.stateful  # noqa: F401
import pytest
import torch  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
SUITES = {
    "p": "tests/program/test_program.py",
    "j": "tests/program/test_projection.py",
    "h": "tests/program/test_histories.py",
    "x": "tests/program/test_exactness.py",
    "e": "tests/program/test_execution.py",
    "k": "tests/program/test_storage.py",
    "s": "tests/program/test_session_file.py",
    "b": "tests/program/test_backfill.py",
    "l": "tests/program/test_legality.py",
    "t": "tests/program/test_extents.py",
    "c": "tests/program/test_copy_stream.py",
}


class Mutant(NamedTuple):
    """In `file` the text `old` becomes `new`; the suites named by the letters of `killers` are run in order."""

    name: str
    file: str
    old: str
    new: str
    killers: str = "pjh"


PLAN, TRAN, STORE = "program/planning/", "program/transactions/", "program/storage/"
VERBS = "program/transitions.py"
MUTANTS = (
    Mutant(
        "release before publish",
        PLAN + "projection.py",
        "released = leaving.without(copying).without(in_use)",
        "released = leaving.without(in_use)",
    ),
    Mutant(
        "source released before its copies",
        PLAN + "projection.py",
        "released = leaving.without(copying).without(in_use)",
        "released = leaving.without(copying)",
    ),
    Mutant(
        "additive reclaim",
        PLAN + "projection.py",
        "pages |= owner.needs_pages\n        else",
        "pages ^= owner.needs_pages\n        else",
    ),
    Mutant(
        "pages of an extent taken for consecutive",
        "program/ledger/objects.py",
        "(lowest(self.mask), self.mask.bit_length()))",
        "(self.pages[0], self.pages[-1] + 1))",
        "j",
    ),
    Mutant(
        "double charge of a borrowed page",
        PLAN + "projection.py",
        "held = [own + (tail is not None)",
        "held = [0 * own + (tail is not None)",
    ),
    Mutant(
        "a moved image is charged again",
        PLAN + "projection.py",
        "image = 0 if use.moves and not use.image_from_host else 1",
        "image = 1",
    ),
    Mutant(
        "a restored image is not charged",
        PLAN + "projection.py",
        "image = 0 if use.moves and not use.image_from_host else 1",
        "image = 0 if use.moves else 1",
    ),
    Mutant(
        "restored pages are not charged",
        PLAN + "projection.py",
        "pages = tuple(map(add, growth, geometry.per_pool(restored))) if restored else growth",
        "pages = growth",
    ),
    Mutant(
        "growth is not reserved",
        PLAN + "projection.py",
        "growth = tuple([max(0, total - own) for total, own in zip(lifetime, held, strict=True)])",
        "growth = tuple([min(1, max(0, total - own)) for total, own in zip(lifetime, held, strict=True)])",
    ),
    Mutant("move although a survivor needs it", PLAN + "projection.py", "not images & checkpoint.image_mask", "True"),
    Mutant(
        "COW skipped",
        PLAN + "projection.py",
        "kept = tail is not None and bool(pages >> tail & 1)",
        "kept = False",
        "hx",
    ),
    Mutant("only the first peak is looked at", PLAN + "projection.py", "first.most(second)", "first"),
    Mutant(
        "demoted images have no peak",
        PLAN + "projection.py",
        "after = before.without(copying) | demoted",
        "after = before.without(copying)",
    ),
    Mutant("free bytes taken for a hole", PLAN + "hosting.py", "unplaceable += size", "unplaceable += 0"),
    Mutant(
        "shrinking has no peak", PLAN + "hosting.py", "peak = max(peak, used + size)", "peak = max(peak, used)", "tj"
    ),
    Mutant("extents are shrunk although there is room", PLAN + "hosting.py", "if unplaceable else ()", "", "tj"),
    Mutant(
        "what dies in an extent is copied, too",
        PLAN + "hosting.py",
        "extent.pages, extent.mask & living)",
        "extent.pages, extent.mask)",
        "tj",
    ),
    Mutant(
        "an extent counts a page that came back elsewhere",
        "program/ledger/world.py",
        "kept.append(replace(extent, mask=living))",
        "kept.append(extent)",
        "t",
    ),
    Mutant(
        "a shrunk extent's pages stay where they were",
        TRAN + "shrinking.py",
        "self._physical.pools[extent.pool].moved(extent)",
        "pass",
        "t",
    ),
    Mutant(
        "a shrink releases before it copies",
        TRAN + "shrinking.py",
        "self._reserve(shrink)\n            yield",
        "self._reserve(shrink)\n            self._publish(shrink)\n            yield",
        "t",
    ),
    Mutant(
        "the span of a broken-off shrink is lost",
        TRAN + "shrinking.py",
        "arena = arena.release(extent.offset, extent.size)\n        self._reserved = None",
        "pass\n        self._reserved = None",
        "t",
    ),
    Mutant(
        "a copy runs on the model's stream",
        "program/copy_stream.py",
        "with self._cuda.stream(self._stream):",
        "if True:",
        "c",
    ),
    Mutant(
        "a copy does not wait for the model",
        "program/copy_stream.py",
        "self._stream.wait_stream(self._cuda.current_stream(self._device))",
        "pass",
        "c",
    ),
    Mutant(
        "publication does not wait for the copies",
        TRAN + "running.py",
        "            yield from self._copy_to_host()\n            yield from self._landed()",
        "            yield from self._copy_to_host()",
        "c",
    ),
    Mutant(
        "a commit does not wait for the copies",
        TRAN + "running.py",
        "            yield from self._copy_to_device(demand)\n            yield from self._landed()",
        "            yield from self._copy_to_device(demand)",
        "c",
    ),
    Mutant(
        "an abort does not wait for the copies",
        TRAN + "running.py",
        "self._physical.copies.settle()  # a destination",
        "pass  # a destination",
        "c",
    ),
    Mutant(
        "an extent dies with its first page",
        PLAN + "ground.py",
        "extent.mask & gone and not extent.mask & host_pages",
        "extent.mask & gone",
    ),
    Mutant(
        "a changed owner still counts as it was",
        PLAN + "census.py",
        "self._all_but(frozenset(outcomes))",
        "self._all_but(frozenset())",
        "j",
    ),
    Mutant("a session outlives its revision", PLAN + "assessment.py", "world.revision != self.revision", "False", "j"),
    Mutant(
        "a running owner is a victim",
        PLAN + "legality.py",
        'if owner.lane is not None:\n            return f"owner {owner_id} is active: it',
        'if False:\n            return f"owner {owner_id} is active: it',
        "l",
    ),
    Mutant(
        "the selected source is a victim",
        PLAN + "legality.py",
        "if source is not None and owner_id == source.owner:",
        "if False:",
        "l",
    ),
    Mutant("a proof keeps its donors", PLAN + "backfill.py", "else owner.id not in donors", "else True", "b"),
    Mutant(
        "a proof forgets the borrower",
        PLAN + "backfill.py",
        "used = projection.peaks[1] - measure(geometry, projection.disposed, 0)",
        "used = left.used()",
        "b",
    ),
    Mutant(
        "a proof releases what another request leases",
        PLAN + "backfill.py",
        "staying = {*protected} if source is None else {*protected, source.owner}",
        "staying = set() if source is None else {source.owner}",
        "b",
    ),
    Mutant("stale plan started", VERBS, "plan.revision != world.revision or project", "False and project"),
    Mutant(
        "start believes the session", VERBS, "project(world, plan.target)", "self._assessments.projection(plan.target)"
    ),
    Mutant(
        "seal believes a session of another revision",
        "program/assessments.py",
        "if self._session is not None and self._session.revision == self._world.revision:",
        "if self._session is not None:",
    ),
    Mutant("plan used twice", VERBS, "work = self._works.pop(plan)", "work = self._works[plan]", "e"),
    Mutant(
        "two transitions at once",
        VERBS,
        "if self._gate.is_open:\n            return",
        "if False:\n            return",
    ),
    Mutant(
        "revision not advanced at commit",
        TRAN + "running.py",
        "self._publish(world.advanced())\n        self._physical.settle",
        "self._publish(world)\n        self._physical.settle",
    ),
    Mutant(
        "revision not advanced at publication",
        TRAN + "publish.py",
        "self._physical.publish(world.advanced())\n",
        "self._physical.publish(world)\n",
    ),
    Mutant(
        "destinations kept after an abort",
        TRAN + "running.py",
        "physical.forget_ids(self._images, self._pages)",
        "pass",
    ),
    Mutant(
        "reservation kept after an abort",
        TRAN + "running.py",
        "world = replace(world, held=world.geometry.zero())",
        "pass",
    ),
    Mutant(
        "arena span lost by an abort",
        TRAN + "running.py",
        "arena = arena.release(extent.offset, extent.size)\n            world",
        "pass\n            world",
    ),
    Mutant(
        "cancel between phases ignored",
        TRAN + "running.py",
        '        if self._cancelled:\n            self._abort("cancelled")\n            return True',
        "        if False:\n            return True",
    ),
    Mutant(
        "consumed source deleted at once", TRAN + "running.py", "(*source.lineage, source.checkpoint)", "source.lineage"
    ),
    Mutant(
        "what an abort deleted is not told",
        TRAN + "running.py",
        "refs - {summary.ref for summary in now}",
        "frozenset()",
    ),
    Mutant(
        "demoted replica stays on Device",
        TRAN + "running.py",
        "there.with_only(there.replicas.without(projection.replaced))",
        "there",
    ),
    Mutant(
        "tail copied one token short",
        TRAN + "publish.py",
        "armed.frontier % PAGE_SIZE)",
        "armed.frontier % PAGE_SIZE - 1)",
        "phx",
    ),
    Mutant(
        "captured pages stay writable",
        TRAN + "publish.py",
        "writable=lane.writable & ~checkpoint.page_mask,\n            room_images",
        "writable=lane.writable,\n            room_images",
    ),
    Mutant("fork never settles", "program/execution/passes.py", "self._publisher.settle_fork(sequence)", "pass", "phx"),
    Mutant(
        "fork reads its own empty slot",
        "program/execution/passes.py",
        "images.slot(lane.image if lane.reads is None else lane.reads),\n            write_slot",
        "images.slot(lane.image),\n            write_slot",
        "phx",
    ),
    Mutant(
        "fork writes the source's slot",
        "program/execution/passes.py",
        "write_slot=images.slot(lane.image)",
        "write_slot=images.slot(lane.image if lane.reads is None else lane.reads)",
        "phx",
    ),
    Mutant(
        "taps are not cut",
        "program/execution/passes.py",
        "cuts=tuple(sorted((*taps, *plain), key=lambda cut: cut.offset)),",
        "cuts=tuple(plain),",
        "px",
    ),
    Mutant(
        "rejected rows go on",
        "program/execution/passes.py",
        "if row.handle.id not in accepted or row.error is not None:",
        "if row.error is not None:",
        "e",
    ),
    Mutant(
        "truncate gives the promise away",
        STORE + "physical.py",
        "lane.promised[pool] + len(gone)",
        "lane.promised[pool]",
    ),
    Mutant(
        "Host replica of an old epoch serves",
        STORE + "page_store.py",
        "self.epoch == wanted.epoch and self.coverage >= wanted.coverage",
        "True",
        "k",
    ),
    Mutant(
        "a prefix of another prompt matches",
        "program/identity.py",
        "prompt.tokens.startswith(self.tokens)",
        "len(prompt.tokens) >= len(self.tokens)",
    ),
    Mutant(
        "execution frontiers are not compared",
        "program/identity.py",
        "and self.cuts == tuple(cut for cut in prompt.cuts if cut <= self.frontier)",
        "and True",
    ),
    Mutant(
        "tensor checksums are not checked",
        "program/session_file.py",
        "if checksum != self._checksums[name]:",
        "if False:",
        "s",
    ),
    Mutant(
        "another model's state is taken",
        "program/restoring.py",
        'if content.header.get("model") != facts:',
        "if False:",
        "s",
    ),
    Mutant(
        "a restored endpoint is not the last",
        "program/session_directory.py",
        "checkpoints=tuple(reversed(stay))",
        "checkpoints=tuple(sorted(stay, key=lambda c: c.frontier))",
        "s",
    ),
    Mutant(
        "session written in place",
        "program/session_file.py",
        "save_file(arrays, temporary, metadata",
        "save_file(arrays, path); save_file(arrays, temporary, metadata",
        "s",
    ),
    Mutant(
        "infinite state is taken", "program/restoring.py", "if not self._physical.images.finite(", "if False and (", "s"
    ),
)


def killed_by(mutant: Mutant, copy: Path) -> str | None:
    """The suite that notices the mutant, or None when it survives."""
    target = copy / "ninfer_core" / mutant.file
    text = target.read_text(encoding="utf-8")
    assert text.count(mutant.old) >= 1, f"{mutant.name}: the code has changed, rewrite this mutant"
    target.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        suites = [SUITES[letter] for letter in mutant.killers]
        code, said = forked(lambda: run_suites(suites, copy))
        if code:
            return next((suite for suite in suites if f"{suite}::" in said), "an error before any test")
    finally:
        target.write_text(text, encoding="utf-8")
    return None


def run_suites(suites: Sequence[str], copy: Path) -> int:
    """In a child: pytest on the copy, as if nothing of the repository had been imported. Returns its exit code."""
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path = [str(copy), *(path for path in sys.path if Path(path or ".").resolve() not in (ROOT, copy))]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "ninfer_core")]:
        del sys.modules[name]
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "tests.mutation.quick", *suites]))


def forked(work: Callable[[], int]) -> tuple[int, str]:
    """(exit code, output) of work in a child, which finds torch and hypothesis imported: most of a short run's time."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            code = 1
            try:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                code = work()
                sys.stdout.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read()


def main() -> int:
    chosen = [m for m in MUTANTS if not sys.argv[1:] or m.name in sys.argv[1:]]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        for part in ("ninfer_core", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for mutant in chosen:
            suite = killed_by(mutant, copy)
            survivors += suite is None
            print(f"{'SURVIVES' if suite is None else 'killed':9} {mutant.name}  {suite or ''}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
