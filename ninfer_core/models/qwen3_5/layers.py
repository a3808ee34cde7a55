"""Small functions that every layer uses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last dimension (Zhang and Sennrich, arXiv 1910.07467), computed in fp32.

    Args:
        x: [..., size], model dtype.
        weight: [size] fp32, the 1 + w of this family.

    Returns:
        [..., size], x's dtype.
    """
    return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


class Rotary:
    """Rotary positions (Su et al., arXiv 2104.09864) on the first `dim` of a head's dimensions, halves rotated.

    The family's interleaved three-axis form reduces to this one when all axes count text positions.
    """

    def __init__(self, dim: int, theta: float, device: torch.device) -> None:
        steps = torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim
        self._frequencies = 1.0 / theta**steps

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of [tokens] positions: twice [tokens, 1, dim], worked out in fp32, then cast."""
        angles = positions[:, None].float() * self._frequencies
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        return torch.cat((cos, cos), dim=-1)[:, None], torch.cat((-sin, sin), dim=-1)[:, None]


def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate [tokens, heads, head_dim] in place and return it."""
    cos, sin = tables
    dim = cos.shape[-1]
    turning = x[..., :dim]
    swapped = turning.roll(dim // 2, dims=-1)
    turning.mul_(cos).add_(swapped.mul_(sin))
    return x
