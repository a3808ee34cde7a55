"""CopyStream: where the copies of a transaction run (context-cache TXN-5, TXN-7).

On a CUDA device they have a stream of their own, so that decode rounds go on beside them. The order is the same
everywhere:

    copying   waits for what was enqueued before: kernels that wrote the source, or still use what lay where it goes;
              an event is recorded behind each copy
    landed    the event has passed: only now is the replacement published, and only then is the old replica released

The CUDA part has not been run on a GPU: its calls are tested against a recording stand-in only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class CopyStream:
    """In main memory: a copy has landed when its call returns."""

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Copies issued inside belong to the stream. Raises what they raise."""
        yield

    def landed(self) -> bool:
        """Whether every copy so far is complete. Does not wait. Raises RuntimeError when the device reports a fault."""
        return True

    def settle(self) -> None:
        """Wait until every copy so far is complete, whatever became of it. Raises like `landed`."""

    @staticmethod
    def of(device: torch.device) -> CopyStream:
        """The one for a device."""
        return CudaCopyStream(device) if device.type == "cuda" else CopyStream()


class CudaCopyStream(CopyStream):
    """Beside the stream that the model runs on. Host memory is pinned, so that copies need no thread of ours."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        """
        Args:
            cuda: where streams come from; another one under test.
        """
        self._device = device
        self._cuda = cuda
        self._stream = cuda.Stream(device)
        self._event: Any = None

    @contextmanager
    def copying(self) -> Iterator[None]:
        """See CopyStream: inside, copies are only enqueued."""
        self._stream.wait_stream(self._cuda.current_stream(self._device))
        try:
            with self._cuda.stream(self._stream):
                yield
        finally:  # a copy that raised half-way may have enqueued its first half
            self._event = self._stream.record_event()

    def landed(self) -> bool:
        """See CopyStream."""
        return self._event is None or bool(self._event.query())

    def settle(self) -> None:
        """See CopyStream."""
        event, self._event = self._event, None
        if event is not None:
            event.synchronize()
