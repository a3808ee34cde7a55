"""ninfer_core: the Engine, its context cache and the Qwen3.5 model, as a library.

Names are imported on first use, so that `import ninfer_core` costs nothing and needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninfer_core.contract.progress import LoadProgress
    from ninfer_core.contract.prompt import PreparedPrompt
    from ninfer_core.contract.sampling import SamplingParams
    from ninfer_core.engine.engine import Engine
    from ninfer_core.engine.events import (
        Completion,
        Event,
        Finished,
        FinishReason,
        Prefilled,
        ReasoningDelta,
        Started,
        TextDelta,
    )
    from ninfer_core.engine.handle import RequestHandle
    from ninfer_core.engine.info import EngineInfo
    from ninfer_core.engine.options import ContextCacheOptions, EngineOptions
    from ninfer_core.engine.request import CacheMode, GenerationRequest
    from ninfer_core.errors import (
        CapacityError,
        EngineClosed,
        ModelError,
        NinferError,
        PromptTooLong,
        QueueFull,
        ReplyError,
        TemplateError,
        UsageError,
    )
    from ninfer_core.frontend.messages import Conversation, Message, ToolCall, parse_messages
    from ninfer_core.models.download import DownloadProgress
    from ninfer_core.models.random_checkpoint import write_random_checkpoint
    from ninfer_core.models.shapes import SHAPES
    from ninfer_core.models.source import resolve_model

_HOMES = {
    "ninfer_core.contract.progress": ("LoadProgress",),
    "ninfer_core.contract.prompt": ("PreparedPrompt",),
    "ninfer_core.contract.sampling": ("SamplingParams",),
    "ninfer_core.engine.engine": ("Engine",),
    "ninfer_core.engine.events": (
        "Completion",
        "Event",
        "FinishReason",
        "Finished",
        "Prefilled",
        "ReasoningDelta",
        "Started",
        "TextDelta",
    ),
    "ninfer_core.engine.handle": ("RequestHandle",),
    "ninfer_core.engine.info": ("EngineInfo",),
    "ninfer_core.engine.options": ("ContextCacheOptions", "EngineOptions"),
    "ninfer_core.engine.request": ("CacheMode", "GenerationRequest"),
    "ninfer_core.errors": (
        "CapacityError",
        "EngineClosed",
        "ModelError",
        "NinferError",
        "PromptTooLong",
        "QueueFull",
        "ReplyError",
        "TemplateError",
        "UsageError",
    ),
    "ninfer_core.frontend.messages": ("Conversation", "Message", "ToolCall", "parse_messages"),
    "ninfer_core.models.download": ("DownloadProgress",),
    "ninfer_core.models.random_checkpoint": ("write_random_checkpoint",),
    "ninfer_core.models.shapes": ("SHAPES",),
    "ninfer_core.models.source": ("resolve_model",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "SHAPES",
    "CacheMode",
    "CapacityError",
    "Completion",
    "ContextCacheOptions",
    "Conversation",
    "DownloadProgress",
    "Engine",
    "EngineClosed",
    "EngineInfo",
    "EngineOptions",
    "Event",
    "FinishReason",
    "Finished",
    "GenerationRequest",
    "LoadProgress",
    "Message",
    "ModelError",
    "NinferError",
    "Prefilled",
    "PreparedPrompt",
    "PromptTooLong",
    "QueueFull",
    "ReasoningDelta",
    "ReplyError",
    "RequestHandle",
    "SamplingParams",
    "Started",
    "TemplateError",
    "TextDelta",
    "ToolCall",
    "UsageError",
    "parse_messages",
    "resolve_model",
    "write_random_checkpoint",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'ninfer_core' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
