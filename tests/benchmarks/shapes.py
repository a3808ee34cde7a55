"""How much of a 2,000-token conversation is computed again, and what its state weighs, beside figures of llama.cpp.

    python -m tests.benchmarks.shapes [MODEL] [--dtype auto] [--markdown FILE]

MODEL is a checkpoint directory with the published template; without, a small random model whose tokens are bytes. The
conversation is that of tests/scenarios/shapes.py. llama.cpp's figures are reported ones: its server's on shapes of
2,000 tokens. They are NOT measured here, and the lengths of the single messages differ. Demanded: in every shape
exactly the tokens behind the last message boundary, anchor or shared prefix that the prompt has in common with what was
read.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ninfer_core.contract.ids import ImageId
from ninfer_core.program.storage.image_store import ImageStore
from tests.benchmarks.demands import Demand, judged, parser
from tests.scenarios.shapes import Shape, after_restart, in_one_conversation, second_conversation, sent_at_once
from tests.support.checkpoints import Tiny
from tests.support.talk import Talk
from tests.support.tokenizers import write_bytes

LLAMA = {
    "an edit of the last 100": 516,
    "back to the earlier branch, and on": 582,
    "a second conversation under the system prompt": 979,
    "a change at token 300": 2000,
    "the last request after a restart": 2066,
}
"""Tokens that llama.cpp's server computes, as reported: of 2,000 under a system prompt of 1,000 the user part."""
LLAMA_STATE = "19.3 MiB, 1.2 ms to restore"
COPIES = 50


@dataclass(frozen=True)
class State:
    """seconds: median time of the copy of a StateImage from main memory to the device."""

    bytes: int
    seconds: float


def state(talk: Talk) -> State:
    """A store of the model's layout, apart from the Engine's."""
    images, image, seconds = ImageStore(talk.program.model.layout, 1, 1, torch.device("cpu")), ImageId(0), []
    images.device_slots.take(image)
    images.host_slots.take(image)
    images.copy_to_host(image)  # memory comes from the system when it is first written
    for _ in range(COPIES):
        began = time.perf_counter()
        images.copy_to_device(image, image)
        seconds.append(time.perf_counter() - began)
    return State(images.image_bytes, statistics.median(seconds))


def measure(model: Path, dtype: str, directory: Path) -> tuple[list[Shape], State, str]:
    """The shapes, the state, and what they were measured on."""

    def start() -> Talk:
        return Talk(model, None, dtype=dtype, patience=24 * 3600, device_state_slots=64)

    with start() as talk:
        shapes, info = list(in_one_conversation(sent_at_once(talk))), talk.engine.info
        found = state(talk)
    with start() as talk:
        shapes.insert(3, second_conversation(talk))
    shapes.append(after_restart(start, directory / "talk.ninfer"))
    return shapes, found, f"{info.model}, {info.dtype}, {info.device}, {info.threads} threads"


def table(shapes: Sequence[Shape]) -> list[str]:
    lines = ["| shape | prompt | ninfer computes | by hand | from | llama.cpp computes, reported |", f"|{'---|' * 6}"]
    for shape in shapes:
        source, frontier, _ = shape.reuse
        told = f"{LLAMA[shape.name]:,}" if shape.name in LLAMA else ""
        figures = f"{len(shape.prompt):,} | {shape.computed:,} | {shape.expected:,}"
        lines.append(f"| {shape.name} | {figures} | {source} at {frontier:,} | {told} |")
    return lines


def demands(shapes: Sequence[Shape]) -> list[Demand]:
    """Neither more nor less than what was counted by hand."""
    found = [(shape.name, abs(shape.computed - shape.expected)) for shape in shapes]
    return [Demand(f"{name}: tokens away from the count by hand", away, 0) for name, away in found]


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("model", type=Path, nargs="?")
    options.add_argument("--dtype", default="auto")
    options.add_argument("--markdown", type=Path)
    args = options.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        model = args.model
        if model is None:
            model = Path(name) / "bytes"
            Tiny(changes={"vocab_size": 272, "eos_token_id": 258}).write(model)
            write_bytes(model)
        shapes, found, where = measure(model, args.dtype, Path(name))
    lines = [
        *table(shapes),
        "",
        f"Measured on {where}. StateImage: {found.bytes:,} bytes ({found.bytes / 2**20:.1f} MiB); restored from main "
        f"memory in {found.seconds * 1e3:.2f} ms (median of {COPIES}). llama.cpp's, reported: {LLAMA_STATE}.",
    ]
    print("\n".join(lines))
    if args.markdown:
        args.markdown.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return judged(demands(shapes))


if __name__ == "__main__":
    sys.exit(main())
