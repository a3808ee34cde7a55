"""Names for the integers that cross a boundary. A frontier f means: state covers tokens [0, f)."""

from __future__ import annotations

from typing import NewType

Frontier = NewType("Frontier", int)
RequestId = NewType("RequestId", int)
SequenceId = NewType("SequenceId", int)
SlotId = NewType("SlotId", int)
"""One StateImage's place in the Device pool."""
PageId = NewType("PageId", int)
"""One physical KV page of 64 tokens in the Device pool."""
Generation = NewType("Generation", int)
Revision = NewType("Revision", int)

PAGE_SIZE = 64
"""Tokens in one KV page (context-cache KV-1)."""

OwnerId = NewType("OwnerId", int)
"""An active sequence, a private continuation or a shared prefix. Never used twice."""
CheckpointRef = NewType("CheckpointRef", int)
"""One published checkpoint. Never used twice, so a stale reference can only miss."""
ImageId = NewType("ImageId", int)
"""One StateImage, wherever its replicas are. Used again after the image has died."""
LogicalPage = NewType("LogicalPage", int)
"""One KV logical page of any pool, wherever its replicas are. Used again after the page has died."""
