"""Errors that a person can act on. Each message is one line that says what happened and what to do."""

from __future__ import annotations


class NinferError(Exception):
    """Base of every error that ninfer raises on purpose. `str(error)` is one line without a trailing full stop."""


class UsageError(NinferError, ValueError):
    """The caller asked for something impossible: a bad option, message list or combination (exit status 2)."""


class ModelError(NinferError):
    """The model directory is missing, foreign, damaged or incomplete."""


class TemplateError(UsageError):
    """The chat template refused the messages, or is itself broken."""


class PromptTooLong(UsageError):
    """Prompt plus at least one new token does not fit the context. Carries the numbers."""

    def __init__(self, prompt_tokens: int, max_context: int, kv_capacity: int | None = None) -> None:
        """kv_capacity: tokens of the pool, which may be what limits the context; None is no limit."""
        super().__init__(
            f"the prompt has {prompt_tokens} tokens and the context holds {max_context}: "
            f"shorten it (in chat: /undo, /edit), or raise {context_options(max_context, kv_capacity)}"
        )
        self.prompt_tokens = prompt_tokens
        self.max_context = max_context


def context_options(max_context: int, kv_capacity: int | None) -> str:
    """What makes a context longer: a pool that is full with one needs to grow with it."""
    return "--max-context" if kv_capacity is None or max_context < kv_capacity else "--kv-capacity and --max-context"


class CapacityError(NinferError):
    """The machine's memory cannot hold what the options ask for. Says what to lower."""


class ContextTooLong(UsageError):
    """max_context is beyond what the model can attend to. Carries the model's longest."""

    def __init__(self, max_context: int, longest: int) -> None:
        super().__init__(f"max-context is {max_context} and the model's longest is {longest}: lower it")
        self.longest = longest


class NoRoomForContext(CapacityError):
    """The pool of keys and values, or the memory for it, is smaller than the context that was asked for."""


class QueueFull(NinferError):
    """The Engine's bounded queue has no room: try again when a request has ended."""


class EngineClosed(NinferError):
    """The Engine was closed or has failed as a whole; `__cause__` holds the reason."""


class SessionError(NinferError):
    """A session file is missing, damaged, foreign, newer, or cannot be written. Names the check that failed."""


class SessionPlaceError(SessionError):
    """A session's directory cannot be had: nothing is wrong with what it holds."""


class SessionInUse(SessionPlaceError):
    """Another process writes the session now."""


class SessionTooLarge(SessionError):
    """What was to be written is larger than what any reader accepts."""


class NoRoom(SessionError):
    """A session's state does not fit beside what is there."""


class ReplyError(NinferError):
    """One request cannot go on: the model's own output is unusable. Other requests are not touched."""


class CalibrationError(NinferError):
    """Measured coefficients cannot be taken or written."""
