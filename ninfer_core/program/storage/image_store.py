"""ImageStore: the memory of all StateImages, Device pool and Host pool (context-cache ST-1, ST-2).

It knows where an image's replicas lie and copies whole images. Which images live is the ledger's business.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ninfer_core.contract.ids import Generation, ImageId, SlotId
from ninfer_core.kernels.planes import StatePlanes
from ninfer_core.models.layout import ModelLayout
from ninfer_core.program.storage.slots import Slots

_ALIGN = 64
"""Bytes: every plane of an image starts on a cache line."""


class ImageStore:
    """Layout of one slot: for every GDN layer its recurrent state (fp32), then for every GDN layer its convolution
    history (model dtype), then the final hidden row. Copying an image is one contiguous operation (DEF-9).

    Device slots are one pool, not paired with lanes. Host memory is pinned when the device is not the CPU.
    """

    def __init__(self, layout: ModelLayout, device_slots: int, host_slots: int, device: torch.device) -> None:
        planes: list[tuple[torch.dtype, tuple[int, ...]]] = [
            *[(torch.float32, layout.recurrent_shape)] * layout.gdn_layers,
            *[(layout.dtype, layout.conv_shape)] * layout.gdn_layers,
            (layout.dtype, (layout.hidden_size,)),
        ]
        offsets, end = [], 0
        for dtype, shape in planes:
            offsets.append(end)
            end += -(-math.prod(shape) * dtype.itemsize // _ALIGN) * _ALIGN
        self.image_bytes = end
        self._device = _zeros((device_slots, end), device)
        pinned = device.type == "cuda"
        self._host = _zeros((host_slots, end), torch.device("cpu"), pinned=pinned)
        self._layout = [(offset, dtype, shape) for offset, (dtype, shape) in zip(offsets, planes, strict=True)]
        views = [self._view(*plane) for plane in self._layout]
        n = layout.gdn_layers
        self.planes = StatePlanes(recurrent=tuple(views[:n]), conv=tuple(views[n : 2 * n]), hidden=views[-1])
        self.device_slots: Slots[ImageId] = Slots(device_slots)
        self.host_slots: Slots[ImageId] = Slots(host_slots)
        self._generations: dict[ImageId, int] = {}

    def _view(self, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        size = math.prod(shape) * dtype.itemsize
        return self._device[:, offset : offset + size].view(dtype).view(-1, *shape)

    # --- look-ups: valid until the image's placement changes ------------------------------------------------------
    def slot(self, image: ImageId) -> SlotId:
        """The Device slot of an image. Raises KeyError when it has no Device replica."""
        return SlotId(self.device_slots.of(image))

    def generation(self, image: ImageId) -> Generation:
        """Advances whenever the id is given to a new image."""
        return Generation(self._generations.get(image, 0))

    def bytes_of(self, image: ImageId) -> Tensor:
        """[image_bytes] uint8 of any replica, Device first. A view."""
        if image in self.device_slots:
            return self._device[self.device_slots.of(image)]
        return self._host[self.host_slots.of(image)]

    def finite(self, row: Tensor) -> bool:
        """Whether every number of an image, given as [image_bytes] uint8, is finite."""
        return all(
            bool(torch.isfinite(row[offset : offset + math.prod(shape) * dtype.itemsize].view(dtype)).all())
            for offset, dtype, shape in self._layout
        )

    # --- placement ------------------------------------------------------------------------------------------------
    def born(self, image: ImageId) -> None:
        """The id means a new image from now on."""
        self._generations[image] = self._generations.get(image, 0) + 1

    def copy_to_host(self, image: ImageId) -> None:
        """Demote: fill the image's Host slot from its Device slot. On CUDA it is only enqueued, as in `CopyStream`."""
        host, device = self.host_slots.of(image), self.device_slots.of(image)
        self._host[host].copy_(self._device[device], non_blocking=True)

    def snapshot(self, source: ImageId, destination: ImageId) -> None:
        """Fill destination's Host slot from source's Device slot. Complete when it returns."""
        self._host[self.host_slots.of(destination)].copy_(self._device[self.device_slots.of(source)])

    def copy_to_device(self, source: ImageId, destination: ImageId) -> None:
        """Restore: fill destination's Device slot from source's Host slot (often the same image). Enqueued likewise."""
        device, host = self.device_slots.of(destination), self.host_slots.of(source)
        self._device[device].copy_(self._host[host], non_blocking=True)

    @staticmethod
    def bytes_per_image(layout: ModelLayout) -> int:
        """Bytes of one StateImage, without building a pool."""
        return ImageStore(layout, 0, 0, torch.device("meta")).image_bytes


def _zeros(shape: tuple[int, int], device: torch.device, *, pinned: bool = False) -> Tensor:
    """Zeroed bytes, so that the gaps between planes compare equal. In main memory the system gives them when they are
    first touched: slots that are never used cost nothing (torch.zeros would write them all)."""
    if device.type != "cpu" or pinned:
        return torch.zeros(shape, dtype=torch.uint8, device=device, pin_memory=pinned)
    return torch.from_numpy(np.zeros(shape, dtype=np.uint8))
