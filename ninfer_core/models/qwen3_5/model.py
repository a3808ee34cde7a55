"""Qwen3_5Model: the resident model, an implementation of `ninfer_core.models.model.Model`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.kernels.interface import Kernels
from ninfer_core.kernels.planes import KvPlanes, StatePlanes
from ninfer_core.kernels.scan_plan import ScanPlan
from ninfer_core.models.fingerprint import Fingerprint
from ninfer_core.models.layout import ModelLayout
from ninfer_core.models.qwen3_5.attention import Attention
from ninfer_core.models.qwen3_5.config import Qwen3_5Config
from ninfer_core.models.qwen3_5.gdn import Gdn
from ninfer_core.models.qwen3_5.layers import Rotary, rms_norm
from ninfer_core.models.qwen3_5.mlp import Mlp
from ninfer_core.models.qwen3_5.moe import Moe
from ninfer_core.models.qwen3_5.weights import GdnWeights, LayerWeights, MlpWeights, ModelWeights
from ninfer_core.models.report import LoadReport


class Qwen3_5Model:  # noqa: N801 (the family's own name)
    """Weights bound to a backend. Holds no state of any sequence: that is in the planes of each call."""

    def __init__(
        self,
        config: Qwen3_5Config,
        weights: ModelWeights,
        kernels: Kernels,
        report: LoadReport,
        fingerprint: Fingerprint,
    ) -> None:
        self.config = config
        self.report = report
        self.weight_bytes = report.nbytes
        self._weights = weights
        self._fingerprint = fingerprint
        self._kernels = kernels
        self._rotary = Rotary(config.attention.rotary_dim, config.attention.rope_theta, weights.embedding.device)
        self._layers = tuple(self._bind(layer) for layer in weights.layers)
        mixers = [mixer for mixer, _ in self._layers]
        gdn, attention = config.gdn, config.attention
        self.layout = ModelLayout(
            gdn_layers=sum(isinstance(mixer, Gdn) for mixer in mixers),
            attention_layers=sum(isinstance(mixer, Attention) for mixer in mixers),
            recurrent_shape=(gdn.value_heads, gdn.key_dim, gdn.value_dim),
            conv_shape=(gdn.channels, gdn.kernel - 1),
            hidden_size=config.hidden_size,
            kv_shape=(attention.kv_heads, attention.head_dim),
            dtype=weights.embedding.dtype,
            vocab_size=config.vocab_size,
            max_positions=config.max_positions,
        )

    @property
    def device(self) -> torch.device:
        return self._weights.embedding.device

    def fingerprint(self) -> str:
        """See `Model.fingerprint`."""
        return self._fingerprint.value()

    def close(self) -> None:
        """See `Model.close`."""
        self._fingerprint.stop()

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, state: StatePlanes, kv: KvPlanes) -> Tensor:
        """See `Model.forward`."""
        eps, plan = self.config.eps, ScanPlan.build(batch)
        kernels = self._kernels.begin(batch, plan)
        tables = self._rotary.tables(batch.positions, self.layout.dtype)
        gdn_planes = iter(zip(state.recurrent, state.conv, strict=True))
        kv_planes = iter(zip(kv.keys, kv.values, strict=True))
        x = F.embedding(batch.token_ids, self._weights.embedding)
        for weights, (mixer, mlp) in zip(self._weights.layers, self._layers, strict=True):
            normed = rms_norm(x, weights.input_norm, eps)
            if isinstance(mixer, Gdn):
                x.add_(mixer.run(normed, kernels, next(gdn_planes)))
            else:
                x.add_(mixer.run(normed, tables, kernels, next(kv_planes)))
            x.add_(mlp.run(rms_norm(x, weights.post_norm, eps)))
        return self._keep_hidden(x, batch, plan, state.hidden)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """See `Model.logits`."""
        return self._kernels.linear(hidden, self._weights.head).float().contiguous()

    def _keep_hidden(self, x: Tensor, batch: ForwardBatch, plan: ScanPlan, plane: Tensor) -> Tensor:
        """Normalise the rows that anyone asks for, store taps' and ends' rows, return each row's last."""
        wanted = torch.cat((batch.last, plan.hidden_tokens))
        rows = rms_norm(x.index_select(0, wanted), self._weights.norm, self.config.eps)
        last, kept = rows.split_with_sizes([len(batch.last), len(plan.hidden_tokens)])
        plane.index_copy_(0, plan.hidden_slots, kept)
        return last

    def _bind(self, layer: LayerWeights) -> tuple[Gdn | Attention, Mlp | Moe]:
        config, kernels = self.config, self._kernels
        mixer: Gdn | Attention
        if isinstance(layer.mixer, GdnWeights):
            mixer = Gdn(config.gdn, config.eps, layer.mixer, kernels)
        else:
            mixer = Attention(config.attention, config.eps, layer.mixer, kernels)
        if isinstance(layer.mlp, MlpWeights):
            return mixer, Mlp(layer.mlp, kernels)
        assert config.moe is not None
        return mixer, Moe(config.moe, layer.mlp, kernels)
