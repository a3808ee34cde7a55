"""Autograd functions over kernels.cpp, compiled on first use; all take and give fp32."""

from __future__ import annotations

import ctypes
import hashlib
import pathlib
import subprocess
import tempfile
from typing import Any

import torch

SOURCE = pathlib.Path(__file__).resolve().with_name("kernels.cpp")


def _load() -> ctypes.CDLL:
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    library = pathlib.Path.home() / ".cache" / "ninfer-demo" / f"kernels-{digest}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=library.parent, suffix=".so", delete=False) as new:
            subprocess.run(
                [
                    "g++",
                    "-O3",
                    "-march=native",
                    "-ffast-math",
                    "-mprefer-vector-width=512",
                    "-shared",
                    "-fPIC",
                    str(SOURCE),
                    "-o",
                    new.name,
                ],
                check=True,
            )
            pathlib.Path(new.name).replace(library)
    return ctypes.CDLL(str(library))


LIBRARY = _load()


def _call(name: str, *args: torch.Tensor | int) -> None:
    getattr(LIBRARY, name)(
        *(ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_int64(a) for a in args)
    )


class DeltaRule(torch.autograd.Function):
    """The gated delta rule on q | k | v side by side; see kernels.cpp for the shapes."""

    @staticmethod
    def forward(ctx: Any, mixed: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, key_heads: int) -> torch.Tensor:
        mixed, g, beta = mixed.contiguous(), g.contiguous(), beta.contiguous()
        batch, length, heads = g.shape
        out = torch.empty(batch, length, heads, 64)
        _call("delta_forward", mixed, g, beta, out, batch, length, key_heads, heads)
        ctx.save_for_backward(mixed, g, beta)
        ctx.key_heads = key_heads
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        mixed, g, beta = ctx.saved_tensors
        grad = grad.contiguous()
        d_mixed, d_g, d_beta = torch.zeros_like(mixed), torch.empty_like(g), torch.empty_like(beta)
        _call("delta_backward", mixed, g, beta, grad, d_mixed, d_g, d_beta, *g.shape[:2], ctx.key_heads, g.shape[2])
        return d_mixed, d_g, d_beta, None


class Norm(torch.autograd.Function):
    """RMS norm with the weight 1 + w."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        _call("norm_forward", x, w, out, x.numel() // x.shape[-1], x.shape[-1])
        ctx.save_for_backward(x, w)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, w = ctx.saved_tensors
        grad = grad.float().contiguous()
        d_x, d_w = torch.empty_like(x), torch.zeros_like(w)
        _call("norm_backward", x, w, grad, d_x, d_w, x.numel() // x.shape[-1], x.shape[-1])
        return d_x, d_w


class GatedNorm(torch.autograd.Function):
    """RMS norm over 64, times w, times silu(z)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x, z = x.contiguous(), z.contiguous()
        out = torch.empty_like(x)
        _call("gated_forward", x, z, w, out, x.numel() // 64)
        ctx.save_for_backward(x, z, w)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, z, w = ctx.saved_tensors
        grad = grad.contiguous()
        d_x, d_z, d_w = torch.empty_like(x), torch.empty_like(z), torch.zeros_like(w)
        _call("gated_backward", x, z, w, grad, d_x, d_z, d_w, x.numel() // 64)
        return d_x, d_z, d_w


class ConvSilu(torch.autograd.Function):
    """Causal depthwise convolution of width 4, then silu; x [B, T, C], w [C, 1, 4]."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x, w = x.contiguous(), w[:, 0].t().contiguous()
        out = torch.empty_like(x)
        _call("conv_forward", x, w, out, *x.shape)
        ctx.save_for_backward(x, w)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, w = ctx.saved_tensors
        grad = grad.contiguous()
        d_x, d_w = torch.zeros_like(x), torch.zeros_like(w)
        _call("conv_backward", x, w, grad, d_x, d_w, *x.shape)
        return d_x, d_w.t()[:, None]
