"""What a sequence must find in the caches to go on behind its first `length` tokens, as bytes.

Window rings of all layers and draft layers over one window, complete compressed entries and index keys, and the
pending row of compressor rings where the length is odd. What lies beyond is not looked at: nobody reads it before it is
written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from deepinfer.model.caches import Caches
from deepinfer.model.config import ModelConfig
from deepinfer.ops import layouts


def kept(config: ModelConfig, caches: Caches, slot: int, pages: Sequence[int], length: int) -> dict[str, str]:
    """A digest per ring and per owner of entries."""
    return {name: hashlib.blake2b(part.tobytes(), digest_size=12).hexdigest() for name, part in
            _parts(config, caches, slot, pages, length)}  # fmt: skip


def _parts(
    config: ModelConfig, caches: Caches, slot: int, pages: Sequence[int], length: int
) -> Iterator[tuple[str, np.ndarray]]:
    positions = np.arange(max(0, length - config.text.sliding_window), length)
    for prefix, ring in caches.rings.items():
        yield prefix, ring[slot].numpy()[positions % ring.shape[1]]
    for owner, ring in caches.compressor_rings.items():
        if length % 2:
            yield f"compressor {owner}", ring[slot, (length - 1) % ring.shape[1]].numpy()
    record = layouts.LAYOUTS[caches.layout.record]
    for role in config.topology.layers:
        count = length // role.ratio if role.ratio else 0
        if role.owns_kv:
            places = _places(record, config.text.head_dim, role.ratio)
            yield f"main {role.layer}", _entries(caches.main[role.layer].numpy(), pages, places, count)
        if role.owns_index_k:
            places = _places(layouts.FP4_32_INDEX, config.text.index_head_dim, role.ratio)
            yield f"index {role.layer}", _entries(caches.index[role.layer].numpy(), pages, places, count)


def _entries(pool: np.ndarray, pages: Sequence[int], places: np.ndarray, count: int) -> np.ndarray:
    columns = -(-count // len(places))
    return pool[list(pages[:columns])][:, places].reshape(-1, places.shape[1])[:count]


@cache
def _places(layout: layouts.RecordLayout, channels: int, ratio: int) -> np.ndarray:
    """Bytes of each entry of a page: int [entries, bytes of a record]."""
    rows = []
    for slot in range(layouts.PAGE_TOKENS // ratio):
        data, scale = layout.data_offset(slot, channels, ratio), layout.scale_offset(slot, channels, ratio)
        rows.append(
            np.concatenate(
                [
                    np.arange(data, data + layout.data_bytes(channels)),
                    np.arange(scale, scale + layout.scale_bytes(channels)),
                ]
            )
        )
    return np.stack(rows)
