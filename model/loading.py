"""Assembling a `Model` from a checkpoint directory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import torch

from ..hal import errors
from ..hal.catalog import CATALOG
from ..hal.registry import REFERENCE, REGISTRY
from ..ops import spec as op_spec
from . import engram_tables, rope_table
from .cache_layout import DEFAULT_MAX_DRAFT, CacheLayout, build_cache_layout
from .checkpoint import READERS, Checkpoint
from .config import TextConfig
from .draft import Drafter
from .dummy import DeviceDummyCheckpoint, DummyCheckpoint
from .load import Loader
from .names import TensorSpec
from .shard_plan import ShardPlan
from .topology import LayerRole
from .transformer import Memory, Model

log = logging.getLogger(__name__)

EngramStorage = Literal["auto", "host", "device"]

HOST_TABLE_BYTES = 4 << 30
"""With storage 'auto', Engram tables above this many bytes stay in host memory, mapped from the checkpoint."""


def load_model(
    path: str | Path,
    *,
    device: torch.device | str = "cpu",
    max_model_len: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    engram_storage: EngramStorage = "auto",
    load_format: Literal["auto", "dummy", "device_dummy"] = "auto",
    max_draft: int = DEFAULT_MAX_DRAFT,
    backtrack: int | None = None,
    identity_vocabulary: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Model:
    """Load a checkpoint directory.

    The headers are checked as a whole before anything large is allocated; each rank then reads only its part.

    Args:
        path: Hugging Face directory.
        device: torch device of the weights.
        max_model_len: longest sequence in tokens; sizes the rotary tables. None = the configuration's limit.
        rank, world_size: this process's part of the routed experts and Engram rows.
        engram_storage: 'device', 'host' (tables stay mapped from the files), or 'auto' by size.
        load_format: 'auto' reads the files; 'dummy' reads config.json and tokenizer.json alone and makes weights up;
            'device_dummy' makes them up on the device, which takes seconds instead of minutes.
        max_draft: most draft tokens a step may verify; sizes the rings. 0 leaves the draft layers out.
        backtrack: positions that the rings keep beyond the window; None is max_draft + 1, the least.
        identity_vocabulary: use the identity Engram table instead of the tokenizer's (tests only).
        progress: called with (bytes read so far, bytes to read).

    Raises:
        CheckpointError, ConfigError, TokenizerError: the directory cannot be used; the message says why.
        InvalidArgumentError: an argument is out of range.
    """
    CATALOG.load(REFERENCE)  # whatever else is active, it is what others fall back to
    op_spec.freeze()
    REGISTRY.check_pins(op_spec.SPECS)
    target = torch.device(device)
    if load_format not in ("auto", "dummy", "device_dummy"):
        raise errors.InvalidArgumentError("load_format", load_format, "auto, dummy or device_dummy")
    with _open(path, load_format, target) as checkpoint:
        config = checkpoint.config
        if config.unknown_keys:
            log.warning("%s: nothing reads these keys: %s", Path(path) / "config.json", ", ".join(config.unknown_keys))
        length = _model_length(config.text, max_model_len)
        plan = ShardPlan(rank=rank, world_size=world_size)
        checkpoint.check(plan)
        specs = plan.specs(checkpoint.inventory).values()
        on_host = _tables_on_host(specs, engram_storage)
        total = sum(s.nbytes for s in specs if _is_read(s, on_host, max_draft))
        done = 0

        def advance(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            if progress is not None:
                progress(done, total)

        staging = target if load_format == "device_dummy" else None
        loader = Loader(checkpoint, config, plan, checkpoint.inventory, target, advance, staging)
        layout = build_cache_layout(config.text, config.topology, max_draft=max_draft, backtrack=backtrack)
        return _assemble(loader, Path(path), length, layout, max_draft, identity_vocabulary, on_host)


def _open(path: str | Path, load_format: str, device: torch.device) -> Checkpoint | DummyCheckpoint:
    if load_format == "auto":
        return Checkpoint.open(path)
    return DummyCheckpoint.open(path) if load_format == "dummy" else DeviceDummyCheckpoint.on(device, path)


def _is_read(spec: TensorSpec, tables_on_host: bool, max_draft: int) -> bool:
    """Whether a tensor is read as a whole; mapped tables and unwanted draft layers are not."""
    return not (tables_on_host and spec.kind == "engram_table") and not (
        max_draft == 0 and spec.name.startswith("mtp.")
    )


def _assemble(
    loader: Loader,
    path: Path,
    length: int,
    layout: CacheLayout,
    max_draft: int,
    identity_vocabulary: bool,
    on_host: bool,
) -> Model:
    config, text = loader.config, loader.config.text
    # A draft pass behind the last position reaches past the longest sequence.
    plain, scaled = (loader.put(table) for table in rope_tables(text, length, length + max_draft))

    def layer(role: LayerRole) -> torch.Tensor:
        return scaled if role.ratio else plain

    roles = (*config.topology.layers, *(config.topology.drafts if max_draft else ()))
    with ThreadPoolExecutor(READERS, thread_name_prefix="load") as pool:
        jobs = [pool.submit(loader.layer, role, layout.record, layer(role)) for role in roles]
        try:
            made = [job.result() for job in jobs]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    layers, drafts = made[: len(config.topology.layers)], made[len(config.topology.layers) :]
    engrams = {}
    if text.engram_layer_ids:
        vocabulary = engram_tables.load_vocabulary(
            path, text.vocab_size, text.engram_compressed_vocab_size, identity=identity_vocabulary
        )
        tables = hash_tables(text)
        lookup = loader.put(vocabulary.lookup, on_host=on_host)
        pad = int(vocabulary.lookup[text.engram_pad_token_id])
        for role in config.topology.layers:
            if role.engram is not None:
                engrams[role.layer] = loader.engram(role, tables[role.engram], lookup, pad, on_host=on_host)
    head = loader.bf16("head")
    norm = loader.tensor("norm.weight")
    embed = loader.tensor("embed.weight")
    drafter = Drafter(text, drafts, loader.draft_head(), embed, head) if drafts else None
    return Model(
        config,
        layout,
        loader.device,
        embed=embed,
        layers=layers,
        engrams=engrams,
        norm=norm,
        head=head,
        drafter=drafter,
        max_draft=max_draft if drafts else 0,
        vision=loader.vision(),
        max_model_len=length,
        world_size=loader.plan.world_size,
        memory=Memory(device=loader.device_bytes, mapped=loader.mapped_bytes),
        path=path,
    )


def hash_tables(text: TextConfig) -> tuple[engram_tables.EngramTable, ...]:
    """Engram hash parameters of a configuration, in `engram_layer_ids` order."""
    return engram_tables.engram_tables(
        text.engram_layer_ids,
        vocab_size=text.engram_vocab_size,
        max_ngram=text.engram_max_ngram_size,
        heads=text.engram_n_heads,
        compressed_size=text.engram_compressed_vocab_size,
        declared_rows=text.engram_num_embeddings,
    )


def rope_tables(
    text: TextConfig, length: int, plain_length: int | None = None
) -> tuple[rope_table.Float32Array, rope_table.Float32Array]:
    """Rotary tables fp32 [length, dr/2, 2] of window-only layers (or `plain_length` positions) and of layers with
    compressed KV."""
    dim = text.qk_rope_head_dim
    plain = rope_table.plain_frequencies(dim, text.rope_theta)
    scaling = text.rope_scaling
    if scaling is None:
        scaled = rope_table.plain_frequencies(dim, text.compress_rope_theta)
    else:
        scaled = rope_table.yarn_frequencies(
            dim,
            text.compress_rope_theta,
            factor=scaling.factor,
            beta_fast=scaling.beta_fast,
            beta_slow=scaling.beta_slow,
            original_max_position=scaling.original_max_position_embeddings,
        )
    most = length if plain_length is None else plain_length
    return rope_table.rope_table(plain, most), rope_table.rope_table(scaled, length)


def _model_length(text: TextConfig, wanted: int | None) -> int:
    if wanted is None:
        return text.max_position_embeddings
    if not 1 <= wanted <= text.max_position_embeddings:
        raise errors.InvalidArgumentError(
            "max_model_len", wanted, f"1 to {text.max_position_embeddings} for this model"
        )
    return wanted


def _tables_on_host(specs: Iterable[TensorSpec], storage: EngramStorage) -> bool:
    if storage not in ("auto", "host", "device"):
        raise errors.InvalidArgumentError("engram_storage", storage, "auto, host or device")
    size = sum(s.nbytes for s in specs if s.kind == "engram_table")
    return storage == "host" or (storage == "auto" and size > HOST_TABLE_BYTES)
