"""ninfer_core: the Engine, its context cache and the Qwen3.5 model, as a library.

Names are imported on first use, so that `import ninfer_core` costs nothing and needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninfer_core.byte_size import size_text
    from ninfer_core.contract.cache_table import AxisUse, CacheTable, OwnerRow, Residency
    from ninfer_core.contract.intent import CacheIntent, CacheMode
    from ninfer_core.contract.progress import LoadProgress
    from ninfer_core.contract.prompt import PreparedPrompt
    from ninfer_core.contract.sampling import SamplingParams
    from ninfer_core.contract.statistics import RequestStatistics
    from ninfer_core.contract.verification import Verification
    from ninfer_core.engine.cache_options import ContextCacheOptions
    from ninfer_core.engine.calibrate import CalibrationReport, calibrate
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
    from ninfer_core.engine.options import EngineOptions
    from ninfer_core.engine.request import GenerationRequest
    from ninfer_core.engine.sessions import AutosavedSession, FileOptions, RestoredSession, SavedSession
    from ninfer_core.errors import (
        CalibrationError,
        CapacityError,
        ContextTooLong,
        EngineClosed,
        ModelError,
        NinferError,
        NoRoomForContext,
        PromptTooLong,
        QueueFull,
        ReplyError,
        SessionError,
        SessionInUse,
        TemplateError,
        UsageError,
    )
    from ninfer_core.frontend.messages import Conversation, Message, ToolCall, parse_messages
    from ninfer_core.models.download import DownloadProgress
    from ninfer_core.models.random_checkpoint import write_random_checkpoint
    from ninfer_core.models.shapes import SHAPES
    from ninfer_core.models.source import resolve_model
    from ninfer_core.program.session_inspection import Inspection, inspect_session
    from ninfer_core.program.session_key import SessionKey
    from ninfer_core.program.session_lock import is_locked
    from ninfer_core.program.session_place import is_new_session
    from ninfer_core.program.session_reader import open_session, open_text
    from ninfer_core.program.session_store import SessionStore
    from ninfer_core.strict_json import check_value, load_json

_HOMES = {
    "ninfer_core.byte_size": ("size_text",),
    "ninfer_core.contract.progress": ("LoadProgress",),
    "ninfer_core.contract.prompt": ("PreparedPrompt",),
    "ninfer_core.contract.sampling": ("SamplingParams",),
    "ninfer_core.engine.calibrate": ("CalibrationReport", "calibrate"),
    "ninfer_core.contract.statistics": ("RequestStatistics",),
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
    "ninfer_core.engine.cache_options": ("ContextCacheOptions",),
    "ninfer_core.engine.options": ("EngineOptions",),
    "ninfer_core.contract.cache_table": ("AxisUse", "CacheTable", "OwnerRow", "Residency"),
    "ninfer_core.contract.verification": ("Verification",),
    "ninfer_core.contract.intent": ("CacheIntent", "CacheMode"),
    "ninfer_core.engine.sessions": ("AutosavedSession", "FileOptions", "RestoredSession", "SavedSession"),
    "ninfer_core.program.session_inspection": ("Inspection", "inspect_session"),
    "ninfer_core.program.session_key": ("SessionKey",),
    "ninfer_core.program.session_lock": ("is_locked",),
    "ninfer_core.program.session_place": ("is_new_session",),
    "ninfer_core.program.session_reader": ("open_session", "open_text"),
    "ninfer_core.program.session_store": ("SessionStore",),
    "ninfer_core.engine.request": ("GenerationRequest",),
    "ninfer_core.errors": (
        "CalibrationError",
        "CapacityError",
        "ContextTooLong",
        "EngineClosed",
        "ModelError",
        "NinferError",
        "NoRoomForContext",
        "PromptTooLong",
        "QueueFull",
        "ReplyError",
        "SessionError",
        "SessionInUse",
        "TemplateError",
        "UsageError",
    ),
    "ninfer_core.frontend.messages": ("Conversation", "Message", "ToolCall", "parse_messages"),
    "ninfer_core.strict_json": ("check_value", "load_json"),
    "ninfer_core.models.download": ("DownloadProgress",),
    "ninfer_core.models.random_checkpoint": ("write_random_checkpoint",),
    "ninfer_core.models.shapes": ("SHAPES",),
    "ninfer_core.models.source": ("resolve_model",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "SHAPES",
    "AutosavedSession",
    "AxisUse",
    "CacheIntent",
    "CacheMode",
    "CacheTable",
    "CalibrationError",
    "CalibrationReport",
    "CapacityError",
    "Completion",
    "ContextCacheOptions",
    "ContextTooLong",
    "Conversation",
    "DownloadProgress",
    "Engine",
    "EngineClosed",
    "EngineInfo",
    "EngineOptions",
    "Event",
    "FileOptions",
    "FinishReason",
    "Finished",
    "GenerationRequest",
    "Inspection",
    "LoadProgress",
    "Message",
    "ModelError",
    "NinferError",
    "NoRoomForContext",
    "OwnerRow",
    "Prefilled",
    "PreparedPrompt",
    "PromptTooLong",
    "QueueFull",
    "ReasoningDelta",
    "ReplyError",
    "RequestHandle",
    "RequestStatistics",
    "Residency",
    "RestoredSession",
    "SamplingParams",
    "SavedSession",
    "SessionError",
    "SessionInUse",
    "SessionKey",
    "SessionStore",
    "Started",
    "TemplateError",
    "TextDelta",
    "ToolCall",
    "UsageError",
    "Verification",
    "calibrate",
    "check_value",
    "inspect_session",
    "is_locked",
    "is_new_session",
    "load_json",
    "open_session",
    "open_text",
    "parse_messages",
    "resolve_model",
    "size_text",
    "write_random_checkpoint",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'ninfer_core' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
