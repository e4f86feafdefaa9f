from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.hal.errors import ConfigError
from deepinfer.model.config import ModelConfig, TextConfig
from deepinfer.model.topology import Topology, build_topology, source_of

Values = dict[str, Any]


def test_released_roles(released_values: Values) -> None:
    topology = ModelConfig.from_dict(released_values).topology
    layers = topology.layers
    assert topology.n_prefill_layer == 20
    assert topology.kv_owners == topology.index_k_owners == (2, 8, 14, 20)
    assert [r.layer for r in layers if r.runs_indexer] == [2, 8, 14, 20, 24, 28, 32, 36]
    assert [r.layer for r in layers if r.candidate == "source"] == [20]
    assert [r.layer for r in layers if r.candidate == "restricted"] == [24, 28, 32, 36]
    assert {r.layer: r.engram for r in layers if r.engram is not None} == {1: 0, 14: 1}
    assert {r.layer: r.tap for r in layers if r.tap is not None} == {37: 0, 38: 1, 39: 2}
    assert [r.half for r in layers] == ["producer"] * 20 + ["consumer"] * 20
    sources = [(r.ratio, r.kv_source, r.index_k_source, r.index_source) for r in layers]
    assert sources[:2] == [(0, None, None, None)] * 2
    assert sources[7] == (2, 2, 2, 2)
    assert sources[19] == (2, 14, 14, 14)
    assert sources[23] == (1, 20, 20, 20)
    assert sources[27] == (1, 20, 20, 24)
    assert sources[39] == (1, 20, 20, 36)
    assert [(d.prefix, d.ratio, d.half, d.kv_source) for d in topology.drafts] == [
        (f"mtp.{i}", 0, "draft", None) for i in range(3)
    ]
    assert topology.compact_refusal is None


def test_index_keys_may_have_more_owners_than_kv(tiny_values: Values) -> None:
    text = tiny_values["text_config"]
    text["index_k_source_layer_ids"] = [2, 4, 6, 8]
    role = ModelConfig.from_dict(tiny_values).topology.layers[9]
    assert (role.kv_source, role.index_k_source, role.index_source) == (6, 8, 8)


@pytest.mark.parametrize(
    ("changes", "key", "rule"),
    [
        ({"compress_ratios": [0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0]}, "compress_ratios", "at least one"),
        ({"kv_source_layer_ids": [2, 3, 4, 6]}, "index_k_source_layer_ids", "subset of index_source_layer_ids"),
        (
            {"kv_source_layer_ids": [2, 4, 6], "index_k_source_layer_ids": [2, 6]},
            "kv_source_layer_ids",
            "subset of index_k",
        ),
        ({"index_source_layer_ids": [2, 4, 8]}, "index_k_source_layer_ids", "subset of index_source_layer_ids"),
        ({"kv_source_layer_ids": [2, 4]}, "kv_source_layer_ids", "must contain 6"),
        ({"kv_source_layer_ids": [4, 6]}, "kv_source_layer_ids", "layer 2 has compress ratio 2 but no source"),
        (
            {"compress_ratios": [0, 0, 2, 2, 2, 2, 1, 1, 1, 2, 0, 0]},
            "compress_ratios",
            "layer 9 (ratio 2) and its source in kv_source_layer_ids, layer 6 (ratio 1)",
        ),
        (
            {"compress_ratios": [0, 0, 2, 0, 2, 2, 1, 1, 1, 1, 0, 0]},
            "compress_ratios",
            "layer 3 (ratio 0) and its source",
        ),
        ({"kv_source_layer_ids": [0, 2, 4, 6], "index_source_layer_ids": [0, 2, 4, 6]}, "compress_ratios", "layer 0"),
        ({"candidate_source_layer_id": 7}, "candidate_source_layer_id", "must be one of index_source_layer_ids"),
        ({"candidate_source_layer_id": 2}, "candidate_source_layer_id", "index source 6 uses its candidates but has"),
    ],
)
def test_sharing_rules(tiny_values: Values, changes: Values, key: str, rule: str) -> None:
    tiny_values["text_config"] |= changes
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_dict(tiny_values)
    assert caught.value.key == f"text_config.{key}"
    assert rule in caught.value.rule


def test_compact_truncation_is_refused_with_the_reason(tiny_values: Values) -> None:
    text = tiny_values["text_config"]
    text["dspark_target_layer_ids"] = [5, 8]
    refusal = ModelConfig.from_dict(tiny_values).topology.compact_refusal
    assert refusal is not None and "dspark_target_layer_ids [5, 8]" in refusal
    text["engram_layer_ids"] = [1, 6]
    refusal = ModelConfig.from_dict(tiny_values).topology.compact_refusal
    assert refusal is not None and "engram_layer_ids [6]" in refusal
    text["engram_layer_ids"] = [1, 4]
    text["dspark_target_layer_ids"] = [0, 5]  # all on the producers' side
    assert ModelConfig.from_dict(tiny_values).topology.compact_refusal is None


def test_source_of_takes_the_nearest_at_or_below() -> None:
    assert [source_of(layer, (2, 5)) for layer in range(7)] == [None, None, 2, 2, 2, 5, 5]
    assert source_of(3, ()) is None


RATIOS = st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(1, 6)).map(
    lambda n: (0,) * n[0] + (2,) * n[1] + (1,) * n[2]
)
IDS = st.sets(st.integers(0, 13), min_size=1, max_size=5).map(lambda ids: tuple(sorted(ids)))


@settings(max_examples=300, deadline=None)
@given(ratios=RATIOS, kv=IDS, more_k=IDS, more=IDS, candidate=st.none() | st.integers(0, 13))
def test_every_accepted_layout_is_consistent(
    ratios: tuple[int, ...], kv: tuple[int, ...], more_k: tuple[int, ...], more: tuple[int, ...], candidate: int | None
) -> None:
    """Whatever is not refused keeps the refinement rules of the four maps."""
    inside = [layer for layer, ratio in enumerate(ratios) if ratio]
    first = [ratios.index(r) for r in (2, 1) if r in ratios]
    kv = tuple(sorted({*first, *(i for i in kv if i in inside)}))
    index_k = tuple(sorted({*kv, *(i for i in more_k if i in inside)}))
    index = tuple(sorted({*index_k, *(i for i in more if i in inside)}))
    topology = _build(ratios, kv, index_k, index, candidate)
    if topology is None:
        return
    by_id = {role.layer: role for role in topology.layers}
    for role in topology.layers:
        if role.ratio == 0:
            assert role.kv_source is role.index_k_source is role.index_source is None
            continue
        assert role.kv_source is not None and role.index_k_source is not None and role.index_source is not None
        assert by_id[role.index_source].kv_source == role.kv_source
        assert by_id[role.index_source].index_k_source == role.index_k_source
        assert by_id[role.index_k_source].kv_source == role.kv_source
        for source in (role.kv_source, role.index_k_source, role.index_source):
            assert by_id[source].ratio == role.ratio
        assert (by_id[role.kv_source].half == "consumer") == (role.half == "consumer")
        if role.candidate == "restricted":
            assert candidate is not None and by_id[candidate].ratio == role.ratio and role.layer > candidate


def _build(
    ratios: tuple[int, ...],
    kv: tuple[int, ...],
    index_k: tuple[int, ...],
    index: tuple[int, ...],
    candidate: int | None,
) -> Topology | None:
    text = object.__new__(TextConfig)
    fields: Values = {
        "compress_ratios": ratios, "num_hidden_layers": len(ratios), "kv_source_layer_ids": kv,
        "index_k_source_layer_ids": index_k, "index_source_layer_ids": index, "candidate_source_layer_id": candidate,
        "engram_layer_ids": (), "dspark_target_layer_ids": (), "num_nextn_predict_layers": 0,
    }  # fmt: skip
    for name, value in fields.items():
        object.__setattr__(text, name, value)
    try:
        return build_topology(text)
    except ConfigError:
        assert candidate is not None, "only the random candidate source may break a rule"
        return None
