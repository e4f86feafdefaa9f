"""A decode step whose shape is fixed: what a captured graph runs.

The host gives a few numbers per sequence in one block of memory; rows, positions, tokens, logits, the tokens drawn and
the drafts for the next step are made on the device, by launches that depend on nothing but the shape. A step holds up
to `sequences` sequences of up to `width` rows; what is left are padding rows, which touch no cache and nobody's result.

`DecodeStep` has three parts, to be run in this order: `backbone`, `sample`, `draft`. None waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .. import ops
from ..hal.stream import Streams
from ..ops import sampling, verify
from ..ops.layouts import PAGE_TOKENS
from .batch import Batch
from .caches import Caches
from .device_batch import DeviceRows, device_batch, on_device, step_ratios
from .draft import DraftPool, DraftRequest, DraftSampling
from .transformer import Model

ALIGNMENT = 256
"""Bytes. Whatever the size, a field begins where kernels that want aligned tensors take it."""
ROW_MULTIPLE = 8
"""Rows of a step are a multiple, so that a line per row of 4-byte numbers keeps the alignment too."""


@dataclass(frozen=True)
class DecodeShape:
    """Static shape of a step.

    Attributes:
        sequences: most sequences. width: most rows of each. pages: columns of the block table.
    """

    sequences: int
    width: int
    pages: int

    @property
    def rows(self) -> int:
        """Rows of the step, padding included."""
        return -(-self.sequences * self.width // ROW_MULTIPLE) * ROW_MULTIPLE


Field = tuple[str, tuple[int, ...], type[np.generic], int]
"""Name, shape, type, and the value that makes padding."""


STAGES = 2
"""Steps that may be in flight, and so blocks of host memory that are used in turns."""


class Fields:
    """Arrays of numbers side by side in one block of device memory, and the same twice in host memory.

    Attributes:
        stage: number of the host memory that is used now.
        device: name -> tensor.
    """

    def __init__(self, fields: Sequence[Field], device: torch.device, streams: Streams) -> None:
        places, size = {}, 0
        for name, shape, dtype, _ in fields:
            nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            places[name] = (size, nbytes)
            size += -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.memory = torch.zeros(max(size, 1), dtype=torch.uint8, device=device)
        self._pinned = [streams.pinned((max(size, 1),), torch.uint8) for _ in range(STAGES)]
        self._host: list[dict[str, npt.NDArray[np.generic]]] = [{} for _ in range(STAGES)]
        self.device: dict[str, torch.Tensor] = {}
        self._empty: dict[str, int] = {}
        for name, shape, dtype, empty in fields:
            start, nbytes = places[name]
            for pinned, host in zip(self._pinned, self._host, strict=True):
                host[name] = pinned.numpy()[start : start + nbytes].view(dtype).reshape(shape)
            view = self.memory[start : start + nbytes].view(_TORCH[dtype])
            self.device[name] = view.view(shape)
            self._empty[name] = empty
        self.stage = 0
        self.clear()

    @property
    def host(self) -> dict[str, npt.NDArray[np.generic]]:
        """name -> array, a view of pinned memory."""
        return self._host[self.stage]

    def turn(self) -> None:
        """Go on with the other host memory, which is that of the step before the last one."""
        self.stage = (self.stage + 1) % STAGES

    def clear(self) -> None:
        """Everything in host memory becomes padding."""
        for host in self._host:
            for name, value in self._empty.items():
                host[name][...] = value

    def upload(self) -> None:
        """Queue the copy to the device. Host memory must stay as it is until that is done."""
        self.memory.copy_(self._pinned[self.stage], non_blocking=True)

    def download(self) -> None:
        """Queue the copy to the host."""
        self._pinned[self.stage].copy_(self.memory, non_blocking=True)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self.memory.numel()


_TORCH: dict[type[np.generic], torch.dtype] = {
    np.int32: torch.int32,
    np.int64: torch.int64,
    np.float32: torch.float32,
    np.uint8: torch.uint8,
}


def input_fields(shape: DecodeShape, history: int) -> list[Field]:
    """What the host gives; see `ops.step_metadata`, `ops.step_tokens` and `ops.expand_params`.

    Beside these: base, 1, as a row draws the token behind its own position; golden: tokens that are forced, by row;
    drawn: 1 where the sequence's drafts were drawn from the distributions in its row of the pool; draft_slot: its row
    in that pool, -1 for one that takes no drafts in the next step. Padding sequences have no rows.
    """
    s, rows = shape.sequences, shape.rows
    i32: type[np.generic] = np.int32
    per_sequence = [
        ("query_len", 0), ("key_len", 0), ("valid_start", 0), ("state_slot", 0), ("slot", -1), ("fresh_begin", 0),
        ("skip", 0), ("top_k", 0), ("drawn", 0), ("draft_slot", -1),
    ]  # fmt: skip
    return [
        *((name, (s,), i32, empty) for name, empty in per_sequence),
        ("history", (s, history), i32, -1),
        ("block_table", (s, shape.pages), i32, -1),
        ("fresh", (rows,), i32, -1),
        ("golden", (rows,), i32, -1),
        ("inv_temperature", (s,), np.float32, 1),
        ("top_p", (s,), np.int64, 1 << 31),
        ("min_p", (s,), np.int64, 0),
        ("seeds", (s,), np.int64, 0),
        ("base", (s,), np.int64, 1),
    ]


def output_fields(shape: DecodeShape, drafts: int) -> list[Field]:
    """What the host reads.

    By sequence: begin and rows, its first row and how many it had; count, drafts accepted; emitted, these and the token
    behind them; drafts and confidence, for the next step. By row: logprob of its token; valid, how many tokens were
    kept (0: the logits were not numbers); draft_log2q, base-2 log-probability with which the drafter drew that token.
    """
    s, rows = shape.sequences, shape.rows
    return [
        ("begin", (s,), np.int32, 0),
        ("rows", (s,), np.int32, 0),
        ("count", (s,), np.int32, 0),
        ("emitted", (s, shape.width), np.int32, -1),
        ("logprob", (rows,), np.float32, 0),
        ("valid", (rows,), np.int32, 0),
        ("draft_log2q", (rows,), np.float32, 0),
        ("drafts", (s, drafts), np.int32, -1),
        ("confidence", (s, drafts), np.float32, 0),
    ]


@dataclass(frozen=True)
class DecodeSettings:
    """What of sampling and drafting is the same in every step.

    Attributes:
        drafts: most drafts per sequence; 0 is plain decoding.
        pool: of drafts, None without any.
        shared: drafter-invariant mode. force_top_k: candidates of a draw, 0 for all.
        inv_confidence: f32 [drafts], see `DraftSampling`; None for 1.
    """

    drafts: int = 0
    pool: DraftPool | None = None
    shared: bool = False
    force_top_k: int = 0
    inv_confidence: torch.Tensor | None = None


@dataclass(frozen=True)
class Known:
    """Where a step's sequences stand: int32 [S] query_len and key_len; [Z] last_token and [Z, n] drafts, which
    sequences with a `slot` take; [S, H] history."""

    query_len: torch.Tensor
    key_len: torch.Tensor
    last_token: torch.Tensor
    drafts: torch.Tensor
    history: torch.Tensor


class DecodeStep:
    """Buffers and work of one shape. Memory stays where it is, so that the work can be captured.

    Args:
        logits: f32 [at least shape.rows, V], where logits go; steps of several shapes may share it.
        more_inputs, more_outputs: fields of a step that does more.
    """

    def __init__(
        self,
        model: Model,
        caches: Caches,
        shape: DecodeShape,
        settings: DecodeSettings,
        streams: Streams,
        logits: torch.Tensor,
        more_inputs: Sequence[Field] = (),
        more_outputs: Sequence[Field] = (),
    ) -> None:
        text, device = model.config.text, model.device
        self.model, self.caches, self.shape, self.settings = model, caches, shape, settings
        self.ngram = text.engram_max_ngram_size if text.engram_layer_ids else 1
        self.inputs = Fields([*input_fields(shape, self.ngram - 1), *more_inputs], device, streams)
        self.outputs = Fields([*output_fields(shape, settings.drafts), *more_outputs], device, streams)
        self.logits = logits[: shape.rows]
        ratios = step_ratios(text)
        on_device(ratios, device)
        self._entries = {ratio: shape.pages * PAGE_TOKENS // ratio for ratio in ratios}
        self._row_ids = torch.arange(shape.rows, dtype=torch.int32, device=device)
        self._host_rows = Fields(self._row_fields(), device, streams)
        self._batch: Batch | None = None
        self._known: Known | None = None
        self._emitted: verify.Emitted | None = None
        pool = settings.pool
        self._none = torch.zeros((1, 1), dtype=torch.int32, device=device)
        self._pool_tokens = self._none if pool is None else pool.tokens
        self._last = torch.zeros(self._pool_tokens.shape[0], dtype=torch.int32, device=device)

    def turn(self) -> None:
        """Go on with the host memory that the step before does not use."""
        for fields in (self.inputs, self.outputs, self._host_rows):
            fields.turn()

    # ---- Engram rows of tables in host memory

    def _row_fields(self) -> list[Field]:
        fields: list[Field] = []
        for layer, engram in sorted(self.model.engrams.items()):
            if engram.staged:
                fields.append((f"codes{layer}", (self.shape.rows, engram.width), np.uint8, 0))
                fields.append((f"scales{layer}", (self.shape.rows, engram.width // 32), np.uint8, 0))
        return fields

    @property
    def reads_host(self) -> bool:
        """Whether n-grams must be given to `gather` before each step."""
        return bool(self._host_rows.host)

    def gather(self, ngrams: npt.NDArray[np.int32]) -> None:
        """Gather the rows of tables in host memory: int32 [rows, n] of the step's rows; queue their copy."""
        given = torch.from_numpy(ngrams)
        for layer, engram in sorted(self.model.engrams.items()):
            if engram.staged:
                codes, scales = engram.fetch_ngrams(given)
                self._host_rows.host[f"codes{layer}"][: len(ngrams)] = codes.view(torch.uint8).numpy()
                self._host_rows.host[f"scales{layer}"][: len(ngrams)] = scales.numpy()
        self._host_rows.upload()

    # ---- the work

    def backbone(self) -> torch.Tensor:
        """Everything up to the logits f32 [rows, V], in the order of the rows."""
        batch = self._batch = self._make_batch()
        rows = {}
        for layer, engram in sorted(self.model.engrams.items()):
            if engram.staged:
                codes, scales = (self._host_rows.device[f"{kind}{layer}"] for kind in ("codes", "scales"))
                rows[layer] = (codes.view(torch.float8_e4m3fn), scales)
            else:
                rows[layer] = engram.fetch(batch)
        return self.model.forward(batch, self.caches, rows, self.logits)

    def known(self) -> Known:
        """Lengths and tokens of the sequences: those that the host gave."""
        given = self.inputs.device
        return Known(given["query_len"], given["key_len"], self._last, self._pool_tokens, given["history"])

    def _make_batch(self) -> Batch:
        given = self.inputs.device
        known = self._known = self.known()
        rows = DeviceRows(
            query_len=known.query_len,
            key_len=known.key_len,
            valid_start=given["valid_start"],
            source=given["slot"],
            fresh=given["fresh"],
            fresh_begin=given["fresh_begin"],
            last_token=known.last_token,
            drafts=known.drafts,
            history=known.history,
            state_slot=given["state_slot"],
            block_table=given["block_table"],
            logit_seq=None,
            logit_offset=None,
            rows=self.shape.rows,
            entries=self._entries,
            skip=given["skip"],
            logit_rows=self._row_ids,
        )
        return device_batch(rows, self.model.config.text)

    def sample(self, *, plain: bool) -> None:
        """Draw the tokens and decide about the drafts.

        Args:
            plain: every sequence is greedy, so that neither filters nor distributions are looked at.
        """
        batch, known, given, out = self._batch, self._known, self.inputs.device, self.outputs.device
        assert batch is not None and known is not None, "the backbone runs first"
        names = ("inv_temperature", "top_k", "top_p", "min_p", "seeds", "base")
        params = ops.expand_params(batch.row_seq, batch.positions, *(given[name] for name in names))
        filters = (None, None, None) if plain else (params.top_k, params.top_p, params.min_p)
        kept = sampling.sample_filter(
            self.logits, params.inv_temperature, *filters, force_top_k=self.settings.force_top_k
        )
        drafts = self._drafts_of_rows(batch)
        pool = None if self.settings.pool is None or plain else self.settings.pool.log2q
        log2q = None if pool is None else pool.flatten(0, 1)
        draft_row = None if pool is None else self._draft_rows(batch, drafts, pool.shape[1])
        if self.shape.width == 1:
            tokens = sampling.sample_draw(self.logits, params.inv_temperature, kept, params.seeds, params.positions)
            accepted = torch.zeros_like(batch.image)
        else:
            rows = (drafts, params.seeds, params.positions, log2q, draft_row)
            tokens, accepted = verify.verify_drafts(
                self.logits, params.inv_temperature, kept, *rows, self.settings.shared
            )
        golden = given["golden"]
        emitted = self._emitted = verify.accept_prefix(
            tokens, accepted, batch.row_begin, known.query_len, self.shape.width, drafts, golden, self.stop_ids()
        )
        said = torch.where(golden >= 0, golden, tokens)
        out["logprob"].copy_(sampling.token_logprobs(self.logits, said, params.inv_temperature, kept))
        out["valid"].copy_(kept.count)
        out["begin"].copy_(batch.row_begin)
        out["rows"].copy_(known.query_len)
        out["count"].copy_(emitted.accepted)
        out["emitted"].copy_(emitted.tokens)
        if log2q is not None and draft_row is not None:
            out["draft_log2q"].copy_(log2q[draft_row.clamp(min=0).long(), said.long()])
        self.commit(known, emitted, kept)

    def rows_of_sequences(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Behind the backbone: int32 [S], the first row of each sequence, and how many rows it has."""
        assert self._batch is not None and self._known is not None, "the backbone runs first"
        return self._batch.row_begin, self._known.query_len

    def stop_ids(self) -> torch.Tensor | None:
        """Tokens that end a sequence, int32 [S, C], where somebody on the device must know of it."""
        return None

    def commit(self, known: Known, emitted: verify.Emitted, kept: sampling.Filter) -> None:
        """Keep on the device what the step gave, where a step follows before the host has seen it."""

    def _drafts_of_rows(self, batch: Batch) -> torch.Tensor:
        """int32 [rows]: the draft that a row decides is the token of the row behind it; NO_DRAFT on a last row."""
        drafts = torch.full_like(batch.tokens, verify.NO_DRAFT)
        same = (batch.row_seq[1:] == batch.row_seq[:-1]) & (batch.row_seq[1:] >= 0)
        drafts[:-1] = torch.where(same, batch.tokens[1:], verify.NO_DRAFT)
        return drafts

    def _draft_rows(self, batch: Batch, drafts: torch.Tensor, places: int) -> torch.Tensor:
        """int32 [rows]: row of the drafter's distributions that a row's draft was drawn from, -1 for none."""
        given, owner = self.inputs.device, batch.row_seq.clamp(min=0).long()
        place = self._row_ids - batch.row_begin[owner]
        row = given["state_slot"][owner] * places + place
        return torch.where((drafts >= 0) & (given["drawn"][owner] > 0), row, -1)

    def draft(self, *, plain: bool) -> None:
        """Draft for the next step, and keep what the drafts were drawn from by state slot."""
        given, settings = self.inputs.device, self.settings
        assert settings.pool is not None
        filters = {} if plain else {name: given[name] for name in ("top_k", "top_p", "min_p")}
        how = DraftSampling(
            given["inv_temperature"],
            given["seeds"],
            **filters,
            force_top_k=settings.force_top_k,
            shared=settings.shared,
            inv_confidence=settings.inv_confidence,
        )
        pool = replace(settings.pool, log2q=None) if plain else settings.pool
        drafts = self.model.draft(self.draft_request(), how, self.caches, settings.drafts, pool)
        self.outputs.device["drafts"].copy_(drafts.tokens)
        self.outputs.device["confidence"].copy_(drafts.confidence)

    @property
    def drawn(self) -> Any:
        """Tensors of the sampling that the draft pass goes on with; to be set where another sampling came between."""
        return self._emitted

    @drawn.setter
    def drawn(self, value: Any) -> None:
        self._emitted = value

    def draft_request(self) -> DraftRequest:
        """The sequences that draft: those with a `draft_slot`."""
        batch, emitted, given = self._batch, self._emitted, self.inputs.device
        assert batch is not None and emitted is not None, "sampling runs first"
        slots = given["draft_slot"]
        return DraftRequest(
            tokens=emitted.last,
            base=torch.where(slots >= 0, batch.seq_start, -1),
            accepted=emitted.accepted,
            valid_start=given["valid_start"],
            state_slot=given["state_slot"],
            pool_slot=slots,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers on the device, without the logits."""
        return self.inputs.nbytes + self.outputs.nbytes + self._host_rows.nbytes
