"""From options to running parts: checkpoint, Frontend, pools. Progress is reported all the way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ninfer_core.cache.calibration import read_calibration
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.hardware import hardware_key
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.contract.progress import LoadProgress
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.demo import demo_model_path
from ninfer_core.engine.defaults import sampling_defaults
from ninfer_core.engine.info import EngineInfo
from ninfer_core.engine.options import EngineOptions
from ninfer_core.engine.session_facts import session_facts
from ninfer_core.engine.sizing import measured_budgets, resolve_device, resolve_dtype, resolve_sizes
from ninfer_core.frontend.frontend import Frontend
from ninfer_core.models.checkpoint import Checkpoint
from ninfer_core.models.loader import checkpoint_dtype, load_model
from ninfer_core.models.prefill_signature import prefill_signature
from ninfer_core.models.qwen3_5.config import Qwen3_5Config
from ninfer_core.models.report import LoadReport
from ninfer_core.program.program import Program
from ninfer_core.program.storage.image_store import ImageStore
from ninfer_core.program.storage.page_store import PageStore


@dataclass(frozen=True, slots=True)
class Parts:
    """What an Engine is made of.

    Attributes:
        hardware, signature: the keys under which coefficients of this machine and model are measured (COST-4).
    """

    program: Program
    limits: CacheLimits
    cost: CostModel
    hardware: str
    signature: str
    frontend: Frontend
    default_sampling: SamplingParams
    info: EngineInfo


def start_up(options: EngineOptions) -> Parts:
    """Load everything that the options name. Small files come first: what is wrong with them is told at once, not
    after minutes of reading weights.

    Raises:
        UsageError, ModelError, CapacityError: see `Engine`.
    """
    device = resolve_device(options.device)
    directory = demo_model_path() if options.model is None else Path(options.model)
    checkpoint = Checkpoint.open(directory)
    if options.progress is not None:
        options.progress(LoadProgress("tokenizer", 0, 0))
    frontend = Frontend.load(directory, Qwen3_5Config.parse(checkpoint.config).vocab_size)
    default_sampling = sampling_defaults(directory)
    stored = checkpoint_dtype(checkpoint)
    elements = sum(tensor.nbytes for tensor in checkpoint.tensors.values()) // stored.itemsize
    dtype = resolve_dtype(options.dtype, stored, elements)
    model = load_model(checkpoint, device, dtype, options.progress, for_sessions=options.sessions)
    try:
        sizes = resolve_sizes(options, model.layout, measured_budgets(device))
        program = Program(model, sizes.capacity, sizes.lease, session_facts(directory, frontend))
    except BaseException:
        model.close()  # else it would read on in weights that nobody has any use for
        raise
    hardware, signature = hardware_key(device), prefill_signature(model.config, model.layout.dtype)
    measured = read_calibration(options.calibration)
    cost = CostModel.resolve(hardware, signature, measured.coefficients)
    info = EngineInfo(
        model=checkpoint.directory.name,
        model_directory=directory,
        device=str(device),
        dtype=str(model.layout.dtype).removeprefix("torch."),
        threads=torch.get_num_threads(),
        max_context=sizes.max_context,
        max_concurrency=options.max_concurrency,
        kv_capacity=sizes.capacity.pages[0] * PAGE_SIZE,
        weight_bytes=model.weight_bytes,
        kv_bytes=sizes.capacity.pages[0] * PageStore.bytes_per_page(model.layout),
        state_bytes=sizes.capacity.device_images * ImageStore.bytes_per_image(model.layout),
        vocab_size=model.layout.vocab_size,
        has_thinking_switch=frontend.thinking.has_switch,
        load_report=_report(model.report),
        cache=sizes.limits.enabled,
        device_state_slots=sizes.capacity.device_images - options.max_concurrency,
        host_state_slots=sizes.capacity.host_images,
        host_kv_capacity=sizes.capacity.host_bytes,
        max_private_continuations=sizes.limits.private_cells,
        max_shared_prefixes=sizes.limits.shared_cells,
        max_long_anchors=sizes.limits.long_anchors,
        cost_model=cost.source,
        notices=measured.notices,
    )
    return Parts(program, sizes.limits, cost, hardware, signature, frontend, default_sampling, info)


def _report(report: LoadReport) -> str:
    skipped = f"{report.visual_skipped} vision and {report.mtp_skipped} multi-token-prediction tensors left out"
    return f"{report.tensors} tensors, {report.nbytes / 2**20:,.0f} MiB; {skipped}"
