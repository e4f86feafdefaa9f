"""Floating-point work of a step, in the accounting of the step log, and the peak that it is held against.

A multiply-add counts by the weights that it reads, in units of FP8: 1 with FP4, 2 with FP8, 4 with BF16, 8 with FP32.
So a kernel at the peak of its precision counts as 1.0 of the FP8 peak, twice the BF16 one, whatever that precision is.
Counted are the matrix products of the backbone and attention: draft layers, padding, replicas of experts and images are
not. Norms, activations, routing and lookups are no matrix products.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..hal.errors import NotSupportedError
from ..model.config import ModelConfig
from ..model.names import TensorSpec, inventory

UNITS: Mapping[str, float] = {"I8": 1.0, "F8_E4M3": 2.0, "BF16": 4.0, "F32": 8.0}
"""FP8-equivalent FLOPs of a multiply-add, by the storage dtype of the weight. I8 holds two FP4 codes a byte."""
ATTENTION_UNIT = UNITS["BF16"]
INDEX_UNIT = UNITS["I8"]
"""Index queries and keys are FP4."""
BF16_TFLOPS: Mapping[str, float] = {"sm_90": 989.0, "sm_100": 2250.0, "ascend": 432.0}
"""Dense BF16 peaks by chip."""
SM100_ON_ARM = 2500.0
LOOKUPS = ("embedding", "norm", "engram_table", "draft_head", "vision")

Ints = npt.NDArray[np.int64]


def peak_flops(arch: str, machine: str | None = None) -> float:
    """FP8-equivalent FLOPs per second of a device: twice its BF16 peak.

    Args:
        arch: chip as kernels name it: sm_90, sm_100, ascend950, …
        machine: of the host; None asks the system.

    Raises:
        NotSupportedError: a chip whose peak is not known.
    """
    family = "ascend" if arch.startswith("ascend") else arch
    if family not in BF16_TFLOPS:
        raise NotSupportedError(f"MFU on {arch}", f"peaks are known of {', '.join(BF16_TFLOPS)}")
    arm = (platform.machine() if machine is None else machine).lower() in ("aarch64", "arm64")
    tflops = SM100_ON_ARM if family == "sm_100" and arm else BF16_TFLOPS[family]
    return 2 * tflops * 1e12


def floor_sums(n: Ints, ratio: int, cap: int | None = None) -> Ints:
    """Sum of min(c // ratio, cap) over c = 1..n, for every n."""
    if cap is not None:
        edge = cap * ratio - 1  # the last c that stays below the cap
        capped: Ints = floor_sums(np.minimum(n, edge), ratio) + cap * np.maximum(n - edge, 0)
        return capped
    whole = n // ratio
    found: Ints = ratio * (whole * (whole - 1) // 2) + whole * (n - whole * ratio + 1)
    return found


@dataclass(frozen=True)
class FlopModel:
    """Work per row of a model.

    Attributes:
        linear: multiply-adds of a row in the layers, by dtype of the weight.
        head: multiply-adds of a row of logits.
        window, window_layers: keys of the sliding window, and layers that look at them: all.
        selected: (ratio, most entries) of a layer's compressed keys -> layers that have these.
        index: (ratio, most entries that are scored, None for all) -> layers that score.
        key_work, index_work: multiply-adds per row and key, of attention and of an index score.
    """

    linear: Mapping[str, float]
    head: float
    window: int
    window_layers: int
    selected: Mapping[tuple[int, int], int]
    index: Mapping[tuple[int, int | None], int]
    key_work: int
    index_work: int

    @classmethod
    def of(cls, config: ModelConfig) -> FlopModel:
        """From a model's configuration: its weights by name, its layers by role."""
        text = config.text
        linear: dict[str, float] = {}
        for spec in inventory(config).values():
            work = _row_work(spec, config)
            if work:
                linear[spec.dtype] = linear.get(spec.dtype, 0.0) + work
        selected: dict[tuple[int, int], int] = {}
        index: dict[tuple[int, int | None], int] = {}
        for role in config.topology.layers:
            if role.index_source is not None:
                key = (role.ratio, text.index_topk)
                selected[key] = selected.get(key, 0) + 1
            if role.runs_indexer:
                restricted = role.candidate == "restricted"
                most = text.candidate_topk_blocks * text.candidate_block_size if restricted else None
                index[role.ratio, most] = index.get((role.ratio, most), 0) + 1
        return cls(
            linear=linear,
            head=float(text.vocab_size * text.hidden_size),
            window=text.sliding_window,
            window_layers=text.num_hidden_layers,
            selected=selected,
            index=index,
            key_work=2 * text.num_attention_heads * text.head_dim,
            index_work=text.index_n_heads * text.index_head_dim,
        )

    @property
    def row(self) -> float:
        """FP8-equivalent FLOPs of a row in the layers' weights."""
        return sum(UNITS[dtype] * work for dtype, work in self.linear.items())

    def attention(self, start: Ints, end: Ints) -> tuple[float, float]:
        """Multiply-adds of rows start..end-1 of every sequence: (with keys, of index scores).

        A row sees itself and what is before it: the window, and of every layer's compressed entries the best.
        """

        def between(ratio: int, cap: int | None) -> float:
            return float((floor_sums(end, ratio, cap) - floor_sums(start, ratio, cap)).sum())

        keys = self.window_layers * between(1, self.window)
        keys += sum(layers * between(ratio, most) for (ratio, most), layers in self.selected.items())
        scores = sum(layers * between(ratio, most) for (ratio, most), layers in self.index.items())
        return keys * self.key_work, scores * self.index_work

    def step(self, start: Ints, end: Ints, logits: int) -> tuple[float, float]:
        """(FP8-equivalent FLOPs, plain FLOPs of attention alone) of such rows, `logits` of which have logits."""
        keys, scores = self.attention(start, end)
        total = self.row * float((end - start).sum()) + UNITS["BF16"] * self.head * logits
        return total + ATTENTION_UNIT * keys + INDEX_UNIT * scores, 2 * (keys + scores)


def _row_work(spec: TensorSpec, config: ModelConfig) -> float:
    """Multiply-adds of a row with this weight; of an expert on average."""
    if len(spec.shape) < 2 or spec.is_scale or spec.kind in LOOKUPS or spec.name.startswith("mtp."):
        return 0.0
    if spec.kind == "engram" and not spec.name.endswith("wkv.weight"):
        return 0.0  # weights of norms, one per stream
    if spec.kind == "expert":
        return spec.parameters * config.text.num_experts_per_tok / config.text.n_routed_experts
    return float(spec.parameters)
