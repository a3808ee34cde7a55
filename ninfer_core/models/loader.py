"""load_model: from a model directory to a resident model, tensor by tensor, without a second copy.

Bytes are read straight into their final place: file pages never count as this process's memory, and a file that is
cut short while being read is an error instead of a crash, as a mapping would be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path

import torch
from torch import Tensor

from ninfer_core.contract.progress import LoadProgress
from ninfer_core.errors import CapacityError, ModelError
from ninfer_core.kernels.backends import select
from ninfer_core.models.checkpoint import Checkpoint, StoredTensor, listed
from ninfer_core.models.fingerprint import Fingerprint
from ninfer_core.models.memory import available_memory
from ninfer_core.models.qwen3_5.config import Qwen3_5Config
from ninfer_core.models.qwen3_5.model import Qwen3_5Model
from ninfer_core.models.qwen3_5.weights import Blueprint
from ninfer_core.models.report import LoadReport

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
_PREFIXES = ("model.language_model.", "model.")
_CHUNK = 16 << 20
"""Bytes read at a time: bounds the scratch of a conversion and the wait for an interrupt."""


def checkpoint_dtype(checkpoint: Checkpoint) -> torch.dtype:
    """The dtype that the weights are stored in. Raises ModelError when it is not one that we read."""
    for prefix in _PREFIXES:
        stored = checkpoint.tensors.get(prefix + "embed_tokens.weight")
        if stored is not None:
            return _dtype(prefix + "embed_tokens.weight", stored)
    raise ModelError(f"{checkpoint.directory.path}: 1 tensor (embed_tokens.weight) missing: download the model again")


def load_model(
    source: Checkpoint | Path,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    progress: Callable[[LoadProgress], None] | None = None,
    *,
    for_sessions: bool = False,
) -> Qwen3_5Model:
    """Load a Qwen3.5-family checkpoint.

    Args:
        source: a checkpoint, or the directory that holds one.
        dtype: of the matrices in memory; None keeps the checkpoint's.
        progress: called before each piece that is read, with the bytes of the files that are wanted, and at the end.
        for_sessions: the fingerprint will be asked for: take it beside loading, in a thread that `Model.close` ends.

    Raises:
        ModelError: the directory is missing, foreign, damaged or incomplete.
        CapacityError: the weights do not fit into memory.
    """
    checkpoint = source if isinstance(source, Checkpoint) else Checkpoint.open(source)
    config = Qwen3_5Config.parse(checkpoint.config)
    target = torch.device(device)
    dtype = dtype or checkpoint_dtype(checkpoint)
    plan = _match(checkpoint, Blueprint(config, torch.device("meta"), dtype))
    blueprint = _allocate(config, target, dtype)
    total = sum(checkpoint.tensors[name].nbytes for name in plan.sources.values())
    done = 0

    def advance(name: str, nbytes: int) -> None:
        nonlocal done
        if progress is not None:
            progress(LoadProgress("weights", done, total, name))
        done += nbytes

    order = sorted(plan.sources.items(), key=lambda item: _place(checkpoint.tensors[item[1]]))
    whole = blueprint.whole_after([part for part, _ in order])
    fingerprint = Fingerprint(blueprint.weights, repr(config))
    try:
        if for_sessions:
            fingerprint.begin()
        with torch.inference_mode(), _Files() as files:
            for part, name in order:
                stored = checkpoint.tensors[name]
                _fill(blueprint.part(part), stored, files.open(stored), partial(advance, name))
                if part in whole:
                    fingerprint.offer(whole[part])
            blueprint.finish()
        advance("", 0)
        fingerprint.complete()
    except BaseException:
        fingerprint.stop()
        raise
    report = LoadReport(
        tensors=len(plan.sources), nbytes=blueprint.nbytes, visual_skipped=plan.visual, mtp_skipped=plan.mtp
    )
    return Qwen3_5Model(config, blueprint.weights, select(target), report, fingerprint)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Attributes: sources: the blueprint's part -> published name. visual, mtp: tensors left out."""

    sources: dict[str, str]
    visual: int
    mtp: int


def _match(checkpoint: Checkpoint, blueprint: Blueprint) -> _Plan:
    """Find every part's tensor and check all shapes and dtypes before anything is allocated."""
    where = checkpoint.directory.path
    visual = mtp = 0
    found: dict[str, str] = {}
    extra: list[str] = []
    for name in checkpoint.tensors:
        part = _part(name)
        if name.startswith(("model.visual.", "visual.")):
            visual += 1
        elif name.startswith("mtp."):
            mtp += 1
        elif part == "lm_head.weight" and blueprint.config.tied:
            continue  # some tied checkpoints store the embedding twice
        elif part in found or not (part in blueprint.targets or part in blueprint.alternatives):
            extra.append(name)
        else:
            found[part] = name
    expected = dict(blueprint.targets)
    for fused, (whole, singles) in blueprint.alternatives.items():
        if fused in found:
            expected[fused] = whole
            for single in singles:
                del expected[single]
    missing = expected.keys() - found.keys()
    if missing:
        raise ModelError(f"{where}: {listed(missing, 'tensor')} missing: download the model again")
    extra += [name for part, name in found.items() if part not in expected]
    if extra:
        raise ModelError(f"{where}: {listed(extra, 'tensor')} not known to this architecture: check config.json")
    wrong = [
        f"{name} is {list(checkpoint.tensors[name].shape)}, not {list(expected[part].shape)}"
        for part, name in found.items()
        if checkpoint.tensors[name].shape != tuple(expected[part].shape)
    ]
    if wrong:
        raise ModelError(f"{where}: {listed(wrong, 'misshaped tensor')}: the weights are not of this config.json")
    for name in found.values():
        _dtype(name, checkpoint.tensors[name])
    return _Plan(found, visual, mtp)


def _part(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _dtype(name: str, stored: StoredTensor) -> torch.dtype:
    dtype = _DTYPES.get(stored.dtype)
    if dtype is None:
        raise ModelError(f"{stored.shown}: tensor {name} is {stored.dtype}: only {', '.join(_DTYPES)} are read")
    return dtype


def _allocate(config: Qwen3_5Config, device: torch.device, dtype: torch.dtype) -> Blueprint:
    needed = Blueprint(config, torch.device("meta"), dtype).nbytes + 2 * _CHUNK
    free = available_memory() if device.type == "cpu" else None
    if free is not None and needed > free:
        raise _too_large(needed, free, dtype)
    try:
        return Blueprint(config, device, dtype)
    except RuntimeError as error:  # torch raises nothing more particular when the CPU allocator fails
        if isinstance(error, torch.OutOfMemoryError) or "alloc" in str(error):
            raise _too_large(needed, None, dtype) from error
        raise


def _too_large(needed: int, free: int | None, dtype: torch.dtype) -> CapacityError:
    smaller = "use --dtype bfloat16, or a smaller model" if dtype == torch.float32 else "use a smaller model"
    has = "more than there is" if free is None else f"{free / 2**30:.1f} GiB are free"
    name = str(dtype).removeprefix("torch.")
    return CapacityError(f"the weights need {needed / 2**30:.1f} GiB as {name}, {has}: {smaller}, or free memory")


def _place(stored: StoredTensor) -> tuple[str, int]:
    """Read in file order: the disk likes it."""
    return str(stored.file), stored.offset


class _Files:
    """Keeps the file at hand open; closes it when the next one is asked for."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._stream: FileIO | None = None

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def open(self, stored: StoredTensor) -> FileIO:
        if self._path != stored.file or self._stream is None:
            self.__exit__()
            try:
                self._stream = FileIO(stored.file)
            except OSError as error:
                raise ModelError(f"{stored.shown}: cannot be read: {error.strerror}") from error
            self._path = stored.file
        return self._stream


def _fill(target: Tensor, stored: StoredTensor, stream: FileIO, advance: Callable[[int], None]) -> None:
    """Read a stored tensor into `target`, which is contiguous, of equal size and of any dtype and device."""
    flat = target.view(-1)
    dtype = _DTYPES[stored.dtype]
    direct = flat.device.type == "cpu" and flat.dtype == dtype
    step = _CHUNK // dtype.itemsize
    scratch = flat if direct else torch.empty(min(step, flat.numel()), dtype=dtype)
    try:
        stream.seek(stored.offset)
        for begin in range(0, flat.numel(), step):
            count = min(step, flat.numel() - begin)
            piece = flat[begin : begin + count] if direct else scratch[:count]
            advance(piece.nbytes)
            _read(piece, stream)
            if not direct:
                flat[begin : begin + count].copy_(piece)
    except EOFError:
        raise ModelError(f"{stored.shown}: the file ends early: download it again") from None
    except OSError as error:
        raise ModelError(f"{stored.shown}: cannot be read: {error.strerror}") from error


def _read(piece: Tensor, stream: FileIO) -> None:
    view = piece.view(torch.uint8).numpy().data
    while view:
        got = stream.readinto(view)
        if not got:
            raise EOFError
        view = view[got:]
