"""The presets' activations: diverse, bounded, and dependent on every feature of the model."""

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from deepinfer import ops
from deepinfer.hal.catalog import load_backend
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.presets import make_checkpoint
from deepinfer.model.presets.corpus import STORY
from deepinfer.model.tokenizer import Tokenizer
from deepinfer.model.transformer import Model

RECORDED = (
    "hc_coefficients", "hc_expand", "moe_route", "topk_select", "index_topk", "block_select", "engram_gate",
    "swiglu_quant",
)  # fmt: skip
LENGTH = 200  # past the candidate limit (64 entries), the top-k limit and several windows
EDITED = 112  # rows compared after an edit; past the same limits


@dataclass
class Run:
    model: Model
    tokens: np.ndarray
    logits: torch.Tensor
    calls: dict[str, list[tuple[tuple[Any, ...], Any]]]

    def outputs(self, op: str) -> list[Any]:
        return [out for _, out in self.calls[op]]


def forward(model: Model, tokens: np.ndarray) -> torch.Tensor:
    """Logits of every position, in one prefill."""
    pages = -(-len(tokens) // 128)
    part = SequenceSlice(tokens, 0, len(tokens), 1, list(range(1, pages + 1)), list(range(len(tokens))))
    batch = Batch.build([part], model.config.text, torch.device("cpu"))
    return model.forward(batch, model.new_caches(pages + 1, 2))


def run(directory: Path, tokens: np.ndarray) -> torch.Tensor:
    load_backend("reference")
    model = Model.load(directory, device="cpu", max_model_len=256)
    try:
        return forward(model, tokens)
    finally:
        model.close()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint("tiny", 0, tmp_path_factory.mktemp("health") / "tiny")


@pytest.fixture(scope="module")
def tokens(directory: Path) -> np.ndarray:
    return np.array(Tokenizer.load(directory).encode(STORY)[:LENGTH], np.int32)


@pytest.fixture(scope="module")
def healthy(directory: Path, tokens: np.ndarray) -> Iterator[Run]:
    load_backend("reference")
    model = Model.load(directory, device="cpu", max_model_len=256)
    calls: dict[str, list[tuple[tuple[Any, ...], Any]]] = defaultdict(list)

    def recorder(name: str, op: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            out = op(*args, **kwargs)
            # Selections of both ops are one list, in the order of the layers.
            fused = name == "index_topk"
            calls["topk_select" if fused else name].append((args, out[0] if fused else out))
            return out

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in RECORDED:
            patch.setattr(ops, name, recorder(name, getattr(ops, name)))
        logits = forward(model, tokens)
    yield Run(model, tokens, logits, calls)
    model.close()


# ---- statistics


def test_logits_are_finite_spread_and_differ_between_positions(healthy: Run) -> None:
    logits = healthy.logits
    assert logits.isfinite().all()
    assert 2 < logits.std(dim=-1).mean() < 12
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    assert 1 < entropy.mean() < 4 and entropy.std() > 0.3
    assert len(logits.argmax(dim=-1).unique()) > 40


def test_margin_of_the_first_choice_is_mostly_clear(healthy: Run) -> None:
    best = healthy.logits.topk(2, dim=-1).values
    margin = best[:, 0] - best[:, 1]
    assert margin.median() > 0.4
    assert (margin < 0.02).float().mean() < 0.05


def test_streams_neither_explode_nor_die_nor_fall_together(healthy: Run) -> None:
    streams = [out.float() for out in healthy.outputs("hc_expand")]
    sizes = [float(x.square().mean().sqrt()) for x in streams]
    assert len(sizes) == 2 * healthy.model.config.text.num_hidden_layers
    assert 0.8 < min(sizes) and max(sizes) < 3
    for x in streams:
        for other in range(1, x.shape[1]):
            assert torch.cosine_similarity(x[:, 0], x[:, other], dim=-1).mean() < 0.995


def test_hyper_connection_mixes_vary_with_the_input_and_with_the_stream(healthy: Run) -> None:
    for pre, post, comb in healthy.outputs("hc_coefficients"):
        for mix in (pre, post, comb):
            assert mix.std(dim=0).mean() > 0.02  # over tokens
            assert mix.mean(dim=0).std() > 0.1  # over streams
        assert (comb - comb.transpose(1, 2)).abs().mean() > 0.02
        carried = comb.diagonal(dim1=1, dim2=2).mean()
        assert 0.5 < carried < 0.95


def test_routing_uses_every_expert_of_every_layer(healthy: Run) -> None:
    experts = healthy.model.config.text.n_routed_experts
    choices = []
    for weights, chosen, _ in healthy.outputs("moe_route"):
        share = torch.bincount(chosen.flatten().long(), minlength=experts) / chosen.numel()
        assert share.min() > 0.01
        assert -(share * share.log()).sum() / np.log(experts) > 0.8
        assert weights.std() > 0.05
        choices.append(chosen.sort(dim=-1).values)
    for first, second in zip(choices, choices[1:], strict=False):
        assert (first == second).all(dim=-1).float().mean() < 0.5


def test_swiglu_clamp_is_reached_but_rare(healthy: Run) -> None:
    limit = healthy.model.config.text.swiglu_limit
    reached = []
    for (gate_up, *_), _out in healthy.calls["swiglu_quant"]:
        gate, up = gate_up.float().chunk(2, dim=-1)
        reached.append(((gate > limit) | (up.abs() > limit)).float().mean())
    assert 0 < sum(reached) / len(reached) < 0.05


def test_selected_entries_differ_between_layers_and_from_the_newest(healthy: Run) -> None:
    lists = healthy.outputs("topk_select")
    text = healthy.model.config.text
    assert len(lists) == len(text.index_source_layer_ids)
    late = [[set(row.tolist()) - {-1} for row in selected[-40:]] for selected in lists]
    for first, second in ((0, 1), (2, 3)):  # the same ratio
        common = [len(a & b) / len(a) for a, b in zip(late[first], late[second], strict=True)]
        assert 0.02 < np.mean(common) < 0.8
    for ratio, layer in ((2, 0), (2, 1), (1, 2), (1, 3)):
        newest = [set(range((t + 1) // ratio - text.index_topk, (t + 1) // ratio)) for t in range(160, 200)]
        common = [len(a & b) / text.index_topk for a, b in zip(late[layer], newest, strict=True)]
        assert np.mean(common) < 0.6
        assert len(set.union(*late[layer])) > 30


def test_candidate_blocks_leave_some_out(healthy: Run) -> None:
    (blocks,) = healthy.outputs("block_select")
    kept = {tuple(row) for row in blocks[-40:].tolist()}
    assert len(kept) > 20
    assert all(-1 not in row for row in kept)


def test_engram_gates_open_and_close(healthy: Run) -> None:
    assert len(healthy.calls["engram_gate"]) == len(healthy.model.config.text.engram_layer_ids)
    for (streams, kv, *_), out in healthy.calls["engram_gate"]:
        value = kv.float().view(len(kv), -1, streams.shape[-1])[:, -1:]
        gate = ((out - streams).float() * value).sum(dim=-1) / value.square().sum(dim=-1)
        assert gate.std() > 0.15
        assert (gate > 0.6).any() and (gate < 0.4).any()
        added, before = (out - streams).float().square().mean().sqrt(), streams.float().square().mean().sqrt()
        assert 0.1 < added / before < 0.6


def test_sampled_text_is_text(healthy: Run, directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)
    chance = healthy.logits.softmax(dim=-1).mean(dim=0)
    control = sorted(tokenizer.control_ids - set(tokenizer.span_ids) - {tokenizer.eos_id})
    assert chance[control].sum() < 1e-4
    assert 1e-4 < chance[tokenizer.eos_id] < 0.02
    broken = [i for i in range(len(chance)) if "\ufffd" in tokenizer.decode([i])]
    assert len(broken) > 50 and chance[broken].sum() < 1e-3


# ---- every feature shows in the logits

Edit = Callable[[torch.Tensor], torch.Tensor]


def zero(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor.view(torch.uint8)).view(tensor.dtype)


def transpose_mix(m: int) -> Edit:
    """Exchange rows and columns of the stream mixing part of hc_*_fn or hc_*_base."""

    def edit(tensor: torch.Tensor) -> torch.Tensor:
        comb = tensor[2 * m :].unflatten(0, (m, m)).transpose(0, 1).flatten(0, 1)
        return torch.cat([tensor[: 2 * m], comb])

    return edit


TENSOR_EDITS: dict[str, tuple[str, Edit]] = {
    "attention sink": (r"layers\.\d+\.attn\.attn_sink", lambda t: t - 1000),
    "query norm": (r"layers\.\d+\.attn\.q_norm\.weight", torch.ones_like),
    "window KV norm": (r"layers\.\d+\.attn\.kv_norm\.weight", torch.ones_like),
    "compressed KV": (r"layers\.\d+\.attn\.compressor\.norm\.weight", zero),
    "pooling gate": (r"layers\.\d+\.attn\.compressor\.wgate\.weight", zero),
    "sign of index head weights": (r"layers\.\d+\.attn\.indexer\.weights_proj\.weight", torch.abs),
    "index key norm": (r"layers\.\d+\.attn\.indexer\.k_norm\.weight", torch.ones_like),
    "indexer of the reindexing layer": (r"layers\.8\.attn\.indexer\.wq_b\.weight", zero),
    "first Engram table": (r"layers\.1\.engram\.embed\.weight", zero),
    "second Engram table": (r"layers\.4\.engram\.embed\.weight", zero),
    "Engram query weight": (r"layers\.\d+\.engram\.q_weight", torch.ones_like),
    "router bias": (r"layers\.\d+\.ffn\.gate\.bias", zero),
    "shared expert": (r"layers\.\d+\.ffn\.shared_experts\.w2\.weight", zero),
    "one routed expert": (r"layers\.5\.ffn\.experts\.3\.w2\.weight", zero),
    "read mix": (r"layers\.\d+\.hc_\w+_scale", lambda t: t * torch.tensor([0.0, 1.0, 1.0])),
    "write mix": (r"layers\.\d+\.hc_\w+_scale", lambda t: t * torch.tensor([1.0, 0.0, 1.0])),
    "carry mix": (r"layers\.\d+\.hc_\w+_scale", lambda t: t * torch.tensor([1.0, 1.0, 0.0])),
    "direction of the carry mix": (r"layers\.\d+\.hc_\w+_(fn|base)", transpose_mix(4)),
    "last layer's attention": (r"layers\.9\.attn\.wo_b\.weight", zero),
    "final norm": (r"norm\.weight", torch.ones_like),
}  # fmt: skip
CONFIG_EDITS: dict[str, dict[str, Any]] = {
    "window": {"sliding_window": 12},
    "top-k": {"index_topk": 8},
    "candidate restriction": {"candidate_source_layer_id": None},
    "YaRN": {"rope_scaling": None},
    "theta of window layers": {"rope_theta": 20000},
    "theta of compressed layers": {"compress_rope_theta": 40000},
    "FP4 records": {"use_fp4_sparse_kv": False},
    "SwiGLU clamp": {"swiglu_limit": 1000.0},
    "routed scaling": {"routed_scaling_factor": 1.0},
    "Sinkhorn iterations": {"hc_sinkhorn_iters": 1},
}


# One of each kind always runs; the whole list does with --slow.
QUICK = {
    "attention sink",
    "compressed KV",
    "pooling gate",
    "sign of index head weights",
    "second Engram table",
    "router bias",
    "shared expert",
    "carry mix",
    "direction of the carry mix",
    "candidate restriction",
    "window",
    "top-k",
    "YaRN",
    "FP4 records",
}


def features(names: dict[str, Any]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in names]


def edited(source: Path, target: Path, pattern: str = "$^", edit: Edit = zero, **settings: Any) -> Path:
    """A copy of the checkpoint with the matching tensors and settings changed."""
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    config["text_config"] |= settings
    (target / "config.json").write_text(json.dumps(config))
    matched = 0
    for shard in target.glob("*.safetensors"):
        with safe_open(shard, "pt") as file:
            content = {name: file.get_tensor(name) for name in file.keys()}
        names = [name for name in content if re.fullmatch(pattern, name)]
        matched += len(names)
        save_file({**content, **{name: edit(content[name]).contiguous() for name in names}}, shard)
    assert matched or settings, f"{pattern} matches no tensor"
    return target


def change(healthy: Run, directory: Path) -> float:
    """Rms change of the logits in an edited checkpoint, over their spread. Later rows cannot reach earlier ones."""
    before, after = healthy.logits[:EDITED], run(directory, healthy.tokens[:EDITED])
    return float((after - before).square().mean().sqrt() / before.std())


@pytest.mark.parametrize("feature", features(TENSOR_EDITS))
def test_removing_a_tensor_feature_changes_the_logits(
    healthy: Run, directory: Path, tmp_path: Path, feature: str
) -> None:
    pattern, edit = TENSOR_EDITS[feature]
    assert change(healthy, edited(directory, tmp_path / "new", pattern, edit)) > 0.02


@pytest.mark.parametrize("feature", features(CONFIG_EDITS))
def test_changing_a_setting_changes_the_logits(healthy: Run, directory: Path, tmp_path: Path, feature: str) -> None:
    assert change(healthy, edited(directory, tmp_path / "new", **CONFIG_EDITS[feature])) > 0.02


def test_an_untouched_copy_changes_nothing(healthy: Run, directory: Path, tmp_path: Path) -> None:
    copy = edited(directory, tmp_path / "new", r"layers\.0\.attn\.attn_sink", torch.clone)
    assert change(healthy, copy) == 0.0


@pytest.mark.slow
def test_kernel_preset_is_healthy_too(tmp_path: Path) -> None:
    directory = make_checkpoint("kernel", 0, tmp_path / "kernel")
    tokens = np.array(Tokenizer.load(directory).encode(STORY)[:48], np.int32)
    with pytest.MonkeyPatch.context() as patch:
        sizes: list[float] = []
        expand = ops.hc_expand

        def measured(*args: Any, **kwargs: Any) -> torch.Tensor:
            out = expand(*args, **kwargs)
            sizes.append(float(out.float().square().mean().sqrt()))
            return out

        patch.setattr(ops, "hc_expand", measured)
        logits = run(directory, tokens)
    assert logits.isfinite().all() and 2 < logits.std(dim=-1).mean() < 12
    assert 0.8 < min(sizes) and max(sizes) < 3
    assert 1 < torch.distributions.Categorical(logits=logits).entropy().mean() < 4
