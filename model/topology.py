"""What each layer does, as the configuration lays it out.

Four maps say where a layer finds what it does not make itself: compressed KV, index keys, the index (top-k) list and
the candidate blocks. Each follows one rule: a layer uses the largest source id that is not above its own. Window KV
and queries are always a layer's own. Pure Python; `build_topology` refuses configurations whose maps do not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..hal.errors import ConfigError
from .config import TextConfig

Candidate = Literal["none", "source", "restricted"]
Half = Literal["producer", "consumer", "draft"]


@dataclass(frozen=True)
class LayerRole:
    """Role of one layer.

    Fields:
        layer: backbone index, or draft index when half is "draft".
        prefix: the layer's part of tensor names, such as "layers.3" or "mtp.0".
        ratio: 0 window only; 1 or 2 tokens per compressed entry.
        kv_source, index_k_source, index_source: layer ids, None where the layer has no compressed branch.
        candidate: "source" makes the candidate blocks, "restricted" scans inside them only, "none" neither.
        engram: index of the Engram table read at this layer's entry, or None.
        half: "producer" below n_prefill_layer, "consumer" from it on, "draft".
        tap: position of the layer in dspark_target_layer_ids, or None.
    """

    layer: int
    prefix: str
    ratio: int
    kv_source: int | None
    index_k_source: int | None
    index_source: int | None
    candidate: Candidate
    engram: int | None
    half: Half
    tap: int | None

    @property
    def owns_kv(self) -> bool:
        """Has a compressor and writes compressed KV."""
        return self.kv_source == self.layer

    @property
    def owns_index_k(self) -> bool:
        """Projects and writes index keys."""
        return self.index_k_source == self.layer

    @property
    def runs_indexer(self) -> bool:
        """Scores and selects; other layers reuse its list."""
        return self.index_source == self.layer


@dataclass(frozen=True)
class Topology:
    """Roles of all backbone layers and draft layers; `n_prefill_layer` is the first consumer."""

    layers: tuple[LayerRole, ...]
    drafts: tuple[LayerRole, ...]
    n_prefill_layer: int
    compact_refusal: str | None
    """Why prefill truncation in mode "compact" cannot be used with this configuration; None if it can."""

    @property
    def kv_owners(self) -> tuple[int, ...]:
        """Layers that own compressed KV, ascending."""
        return tuple(role.layer for role in self.layers if role.owns_kv)

    @property
    def index_k_owners(self) -> tuple[int, ...]:
        """Layers that own index keys, ascending."""
        return tuple(role.layer for role in self.layers if role.owns_index_k)


def source_of(layer: int, sources: tuple[int, ...]) -> int | None:
    """The largest source id that is not above `layer`; None before the first source."""
    return max((s for s in sources if s <= layer), default=None)


def build_topology(text: TextConfig) -> Topology:
    """Lays out the roles.

    Raises:
        ConfigError: a sharing rule is broken.
    """
    ratios = text.compress_ratios[: text.num_hidden_layers]
    if 1 not in ratios:
        raise _error("compress_ratios", list(text.compress_ratios), "at least one backbone layer must have ratio 1")
    n_prefill = ratios.index(1)
    _check_subsets(text, n_prefill)
    _check_segments(text, ratios, n_prefill)
    _check_candidates(text, ratios)
    layers = tuple(_role(text, layer, n_prefill) for layer in range(text.num_hidden_layers))
    drafts = tuple(
        LayerRole(i, f"mtp.{i}", 0, None, None, None, "none", None, "draft", None)
        for i in range(text.num_nextn_predict_layers)
    )
    return Topology(layers, drafts, n_prefill, _compact_refusal(text, n_prefill))


def _error(key: str, value: object, rule: str) -> ConfigError:
    return ConfigError(f"text_config.{key}", value, rule)


def _check_subsets(text: TextConfig, n_prefill: int) -> None:
    """Every KV source is an index-K source and every index-K source an index source.

    This nesting makes the index segments refine the index-K segments, and those the KV segments.
    """
    kv, index_k, index = (
        text.kv_source_layer_ids,
        text.index_k_source_layer_ids,
        text.index_source_layer_ids,
    )
    if not set(kv) <= set(index_k):
        raise _error("kv_source_layer_ids", list(kv), f"must be a subset of index_k_source_layer_ids {list(index_k)}")
    if not set(index_k) <= set(index):
        raise _error(
            "index_k_source_layer_ids", list(index_k), f"must be a subset of index_source_layer_ids {list(index)}"
        )
    if n_prefill not in kv:
        raise _error(
            "kv_source_layer_ids",
            list(kv),
            f"must contain {n_prefill}, the first layer with compress ratio 1; no KV segment may cross it",
        )


def _check_segments(text: TextConfig, ratios: tuple[int, ...], n_prefill: int) -> None:
    """A source and the layers that use it have one ratio, and every compressed layer has all three sources."""
    for key in ("kv_source_layer_ids", "index_k_source_layer_ids", "index_source_layer_ids"):
        sources: tuple[int, ...] = getattr(text, key)
        for layer, ratio in enumerate(ratios):
            source = source_of(layer, sources)
            if source is None:
                if ratio:
                    raise _error(key, list(sources), f"layer {layer} has compress ratio {ratio} but no source")
            elif ratios[source] != ratio or ratio == 0:
                raise _error(
                    "compress_ratios",
                    list(text.compress_ratios),
                    f"layer {layer} (ratio {ratio}) and its source in {key}, layer {source} (ratio {ratios[source]}),"
                    " must have the same ratio, 1 or 2",
                )


def _check_candidates(text: TextConfig, ratios: tuple[int, ...]) -> None:
    source = text.candidate_source_layer_id
    if source is None:
        return
    if source not in text.index_source_layer_ids:
        raise _error(
            "candidate_source_layer_id",
            source,
            f"must be one of index_source_layer_ids {list(text.index_source_layer_ids)}",
        )
    for layer in text.index_source_layer_ids:
        if layer > source and ratios[layer] != ratios[source]:
            raise _error(
                "candidate_source_layer_id",
                source,
                f"index source {layer} uses its candidates but has ratio {ratios[layer]}, not {ratios[source]}",
            )


def _role(text: TextConfig, layer: int, n_prefill: int) -> LayerRole:
    index_source = source_of(layer, text.index_source_layer_ids)
    candidate: Candidate = "none"
    if text.candidate_source_layer_id is not None and index_source == layer:
        if layer == text.candidate_source_layer_id:
            candidate = "source"
        elif layer > text.candidate_source_layer_id:
            candidate = "restricted"
    return LayerRole(
        layer=layer,
        prefix=f"layers.{layer}",
        ratio=text.compress_ratios[layer],
        kv_source=source_of(layer, text.kv_source_layer_ids),
        index_k_source=source_of(layer, text.index_k_source_layer_ids),
        index_source=index_source,
        candidate=candidate,
        engram=_position(layer, text.engram_layer_ids),
        half="producer" if layer < n_prefill else "consumer",
        tap=_position(layer, text.dspark_target_layer_ids),
    )


def _position(layer: int, ids: tuple[int, ...]) -> int | None:
    return ids.index(layer) if layer in ids else None


def _compact_refusal(text: TextConfig, n_prefill: int) -> str | None:
    late = [layer for layer in text.engram_layer_ids if layer >= n_prefill]
    if late:
        return f"engram_layer_ids {late} lie in the consumer half, which starts at layer {n_prefill}"
    sides = {target >= n_prefill for target in text.dspark_target_layer_ids}
    if len(sides) > 1:
        targets = list(text.dspark_target_layer_ids)
        return f"dspark_target_layer_ids {targets} lie on both sides of layer {n_prefill}"
    return None
