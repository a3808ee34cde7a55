"""Fingerprint of resident weights: which model a saved state belongs to (context-cache SES-4).

It is a digest over the name, shape, dtype and digest of the bytes of every tensor, so that the bytes can be taken in
any order: such as that of loading, beside it, while they still lie in the processor's cache.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from queue import SimpleQueue
from typing import Any

import torch
from blake3 import blake3
from torch import Tensor

from ninfer_core.errors import EngineClosed, NinferError, SessionError

_PIECE = 32 << 20
"""Bytes taken at a time: bounds the wait of `stop`, and the copy of weights that lie on another device."""


class Fingerprint:
    """Of one model: taken once, when it is first asked for, or by a thread that was begun before. Any thread may call.

    The thread holds the tensors, so no memory goes away below it.
    """

    def __init__(self, weights: Any, facts: str) -> None:
        """
        Args:
            weights: a tree of dataclasses and tuples of tensors.
            facts: what else decides the model's function, such as its configuration.
        """
        self._facts = facts
        self._tensors = tuple(_walk("", weights))
        self._digests: dict[int, bytes] = {}
        """By the tensor's place in memory: a tied head is the embedding."""
        self._value: str | None = None
        self._lock = threading.Lock()
        self._offers: SimpleQueue[Tensor | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    # --- beside loading -------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Take in a thread what is offered from now on. Call once, and later `complete` or `stop`."""
        thread = threading.Thread(target=self._run, name="ninfer-fingerprint", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return  # as many threads as there may be: whoever asks takes it then
        self._thread = thread
        # A thread within torch when the interpreter ends would abort the process: end it before that.
        atexit.register(self.stop)

    def offer(self, tensor: Tensor) -> None:
        """Nothing writes this tensor any more, and what was written is there (a blocking copy to a device is)."""
        if self._thread is not None:
            self._offers.put(tensor)

    def complete(self) -> None:
        """Nothing writes any tensor any more."""
        if self._thread is None:
            return
        for device in {tensor.device for _, tensor in self._tensors if tensor.device.type == "cuda"}:
            torch.cuda.synchronize(device)  # the last kernels that wrote one may have run on a stream of their own
        for _, tensor in self._tensors:
            self._offers.put(tensor)
        self._offers.put(None)

    def stop(self) -> None:
        """End the thread, and whoever waits for a value that is not there yet. Idempotent; waits for one piece."""
        self._stopped.set()
        self._offers.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # --- the value ------------------------------------------------------------------------------------------------
    def value(self) -> str:
        """Hex digest. Waits for the thread if there is one; what it has not taken is taken now.

        Raises:
            SessionError: the weights cannot be read back.
            EngineClosed: it was stopped before.
        """
        with self._lock:
            if self._value is None:
                if self._thread is not None:
                    self._thread.join()
                self._value = self._combined()
            return self._value

    def _combined(self) -> str:
        hasher = blake3(self._facts.encode())
        try:
            for name, tensor in self._tensors:
                self._take(tensor)
                hasher.update(f"{name} {list(tensor.shape)} {tensor.dtype}\n".encode())
                hasher.update(self._digests[tensor.data_ptr()])
        except NinferError:
            raise
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
            raise SessionError(
                f"the weights cannot be read for the fingerprint that a session needs ({reason}): "
                "free memory, or go on without a session"
            ) from error
        return hasher.hexdigest(length=20)

    def _take(self, tensor: Tensor) -> None:
        """Raises EngineClosed, or what torch does when bytes cannot be copied from a device."""
        if tensor.data_ptr() in self._digests:
            return
        hasher = blake3(max_threads=blake3.AUTO)
        flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
        for begin in range(0, flat.numel(), _PIECE):
            if self._stopped.is_set():
                raise EngineClosed("the Engine is closed: start a new one")
            hasher.update(flat[begin : begin + _PIECE].cpu().numpy().data)
        self._digests[tensor.data_ptr()] = hasher.digest()

    def _run(self) -> None:
        try:
            while (tensor := self._offers.get()) is not None:
                self._take(tensor)
        except Exception:
            return  # `value` takes the rest itself, and tells whoever asked what is wrong
        finally:
            atexit.unregister(self.stop)  # it would keep the whole model


def _walk(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _walk(f"{name}.{i}", item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _walk(f"{name}.{field.name}", getattr(value, field.name))
