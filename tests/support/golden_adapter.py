"""Adapter between `deepinfer.model` and the golden comparison: whole forwards and teacher-forced pieces.

The golden network was computed by an independent float64 implementation. Arrays that go in and out are float32 numpy
arrays that hold bf16 values.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.backends.reference import formats
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.caches import Caches
from deepinfer.model.draft import DraftRequest, DraftSampling
from deepinfer.model.loading import load_model
from deepinfer.model.step import Step
from deepinfer.model.truncation import EXACT, Truncation
from deepinfer.model.vision import ImageSpan, decode_image, expand_prompt, fit_image, plan_resize
from deepinfer.ops import layouts
from deepinfer.ops.fused import NormQuant

PAGES = 8


def factory(checkpoint: str, device: str = "cpu") -> Adapter:
    """Adapter over the checkpoint directory of the goldens, which has no tokenizer."""
    return Adapter(checkpoint, device)


class Adapter:
    """One sequence at a time, in state slot 1 and pages 1, 2, …; `mode` is that of truncated prompts."""

    mode = "mask"

    def __init__(self, checkpoint: str, device: str) -> None:
        reference.backend.load()
        self.model = load_model(checkpoint, device=device, identity_vocabulary=True)
        self.text = self.model.config.text

    def batch(
        self,
        ids: list[int],
        start: int,
        end: int,
        logits: list[int],
        truncation: Truncation = EXACT,
        images: Sequence[ImageSpan] = (),
    ) -> Batch:
        pages = range(1, 1 + self.model.cache_layout.pages_for(end))
        keep = truncation.keep_from(len(ids))
        part = SequenceSlice(np.array(ids, np.int32), start, end, 1, list(pages), logits, keep_from=keep, images=images)
        return Batch.build([part], self.text, self.model.device, compact=truncation.compact)

    def caches(self) -> Caches:
        return self.model.new_caches(PAGES, 2)

    # ---- free-running -------------------------------------------------------------------------------------------

    def logits(self, ids: list[int], images: list[str], positions: list[int], keep_tokens: int | None) -> Any:
        ids, spans = self.expand(ids, images)
        truncation = EXACT if keep_tokens is None else Truncation(self.mode, keep_tokens)
        batch = self.batch(ids, 0, len(ids), positions, truncation, spans)
        return self.model.forward(batch, self.caches()).cpu().numpy()

    def expand(self, ids: list[int], images: list[str]) -> tuple[list[int], list[ImageSpan]]:
        """The ids with spans in the place of placeholders, and the images of the files, encoded."""
        config = self.model.config
        decoded = [decode_image(Path(file).read_bytes()) for file in images]
        plans = [plan_resize(pixels.shape[1], pixels.shape[0], config.vision) for pixels in decoded]
        embeds = self.model.vision.encode([fit_image(*pair) for pair in zip(decoded, plans, strict=True)])
        expanded, starts = expand_prompt(np.array(ids, np.int32), plans, config.image_token_id, self.text.vocab_size)
        return expanded.tolist(), [ImageSpan(*span) for span in zip(starts, plans, embeds, strict=True)]

    def greedy(self, ids: list[int], n: int) -> list[int]:
        caches, ids, start = self.caches(), list(ids), 0
        first = len(ids)
        while len(ids) < first + n:
            logits = self.model.forward(self.batch(ids, start, len(ids), [len(ids) - 1]), caches)
            start = len(ids)
            ids.append(int(logits[0].argmax()))
        return ids[first:]

    def draft(self, ids: list[int]) -> tuple[int, list[int], list[float], Any]:
        """One draft pass behind the prompt, greedy: the golden token, the drafts, their confidences and logits."""
        caches = self.caches()
        logits = self.model.forward(self.batch(ids, 0, len(ids), [len(ids) - 1]), caches)
        golden = int(logits[0].argmax())
        device = self.model.device
        request = DraftRequest.build([golden], [len(ids) - 1], [1], device)
        block = self.text.dspark_block_size
        drafts = self.model.draft(request, DraftSampling.greedy(1, device), caches, block, keep_logits=True)
        assert drafts.logits is not None
        return golden, drafts.tokens[0].tolist(), drafts.confidence[0].tolist(), drafts.logits[0].cpu().numpy()

    def index_lists(self, ids: list[int]) -> dict[int, Any]:
        step = self._run(ids)[0]
        return {layer: rows.cpu().numpy() for layer, rows in step.selected.items()}

    def records(self, ids: list[int]) -> dict[str, Any]:
        """Record bytes by position. A ring holds only the last positions, so each is read right after its step."""
        caches = self.caches()
        window: dict[int, list[Any]] = {role.layer: [] for role in self.model.topology.layers}
        for pos in range(len(ids)):
            self.model.forward(self.batch(ids, pos, pos + 1, [pos]), caches)
            for layer, rows in window.items():
                rows.append(caches.rings[f"layers.{layer}"][1, pos % caches.layout.ring_slots].cpu().numpy().copy())
        found = {f"layers.{k}.record.window": canonical_fp8(np.stack(v), self.text.head_dim) for k, v in window.items()}
        for role in self.model.topology.layers:
            count = len(ids) // role.ratio if role.ratio else 0
            if role.owns_kv:
                layout, pages = layouts.LAYOUTS[caches.layout.record], caches.main[role.layer]
                found[f"layers.{role.layer}.record.compressed"] = entries(
                    layout, pages, self.text.head_dim, role.ratio, count
                )
            if role.owns_index_k:
                keys = entries(
                    layouts.FP4_32_INDEX, caches.index[role.layer], self.text.index_head_dim, role.ratio, count
                )
                found[f"layers.{role.layer}.record.index"] = canonical_fp4(keys, self.text.index_head_dim)
        return found

    # ---- teacher-forced pieces ----------------------------------------------------------------------------------

    def begin(self, ids: list[int]) -> None:
        batch = self.batch(ids, 0, len(ids), [len(ids) - 1])
        self.step = Step(batch, self.caches())

    def engram(self, layer: int, streams: Any) -> Any:
        module = self.model.engrams[layer]
        return module(self._bf16(streams), module.fetch(self.step.batch), self.step.batch.image)

    def collapse_norm(self, name: str, streams: Any, pending: Any) -> Any:
        return self._mix(name).enter(self._bf16(streams), self._put(pending)).y

    def attention(self, layer: int, x: Any) -> Any:
        return self.model.layers[layer].attention(self._input(x), self.step)

    def selected(self, layer: int) -> Any:
        return self.step.selected[layer].cpu().numpy()

    def ffn(self, layer: int, x: Any) -> Any:
        return self.model.layers[layer].moe(self._input(x), self.step.batch.image)

    def mix(self, name: str, streams: Any, y: Any) -> Any:
        return self._mix(name).leave(self._bf16(streams), self._bf16(y))

    def _put(self, array: Any) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.model.device)

    def _bf16(self, array: Any) -> torch.Tensor:
        return self._put(array).to(torch.bfloat16)

    def _input(self, array: Any) -> NormQuant:
        return normed(self._bf16(array))

    def _mix(self, name: str) -> Any:
        _, number, part = name.split(".")
        layer = self.model.layers[int(number)]
        return layer.attention_mix if part == "hc_attn" else layer.moe_mix

    def _run(self, ids: list[int]) -> tuple[Step, Any]:
        """A whole forward that keeps its step."""
        batch = self.batch(ids, 0, len(ids), [len(ids) - 1])
        step, model = Step(batch, self.caches()), self.model
        streams, pending = model.enter(batch)
        for number, layer in enumerate(model.layers):
            if number in model.engrams:
                module = model.engrams[number]
                streams = module(streams, module.fetch(batch), batch.image)
            streams, pending = layer(streams, pending, step)
        return step, streams


def normed(x: torch.Tensor) -> NormQuant:
    """Rows that are normed already, as a sub-layer takes them."""
    return NormQuant(x, *ops.quant_fp8(x))


def entries(layout: layouts.RecordLayout, pages: torch.Tensor, channels: int, ratio: int, count: int) -> Any:
    """Records of entries 0 .. count-1 of the sequence in pages 1, 2, …, each as data bytes, then scale bytes."""
    rows = []
    for entry in range(count):
        column, slot = layouts.entry_place(entry, ratio)
        page = pages[1 + column].cpu().numpy()
        data, scale = (
            layout.data_offset(slot, channels, ratio),
            layout.scale_offset(slot, channels, ratio),
        )
        rows.append(
            np.concatenate(
                [page[data : data + layout.data_bytes(channels)], page[scale : scale + layout.scale_bytes(channels)]]
            )
        )
    return np.stack(rows)


def canonical_fp8(records: Any, channels: int) -> Any:
    """FP8-32 records as the golden files spell them.

    Those were written from dequantised values. A group whose largest value v lies in (448, 464] x 2^e is stored with
    scale 2^(e+1); its largest code rounds to 448 x 2^e, and quantising that again gives scale 2^e: other bytes, the
    same values. Power-of-two scales make the second quantisation exact, so it hides no difference in value.
    """
    codes, scale = torch.from_numpy(records).split([channels, records.shape[1] - channels], 1)
    values = formats.dequantize_fp8(codes.contiguous().view(torch.float8_e4m3fn), scale.contiguous())
    again, scale = formats.quantize_fp8(values)
    assert torch.equal(formats.dequantize_fp8(again, scale), values)
    return torch.cat([again.view(torch.uint8), scale], 1).numpy()


def canonical_fp4(records: Any, channels: int) -> Any:
    """Index records as the golden files spell them; see `canonical_fp8`."""
    codes, scale = torch.from_numpy(records).split([channels // 2, records.shape[1] - channels // 2], 1)
    values = formats.dequantize_fp4_pow2(codes.contiguous(), scale.contiguous())
    again, scale = formats.quantize_fp4_pow2(values)
    assert torch.equal(formats.dequantize_fp4_pow2(again, scale), values)
    return torch.cat([again, scale], 1).numpy()
