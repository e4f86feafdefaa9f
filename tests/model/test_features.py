"""What the parts of the text model owe each other: sharing, candidate restriction, image rows, no stray computation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer.hal.errors import NotSupportedError
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.loading import load_model
from deepinfer.model.step import Step
from deepinfer.ops.counting import counting
from golden_adapter import Adapter, factory, normed
from guard import ComputeOutsideOps, Guard, Inline
from released import GOLDEN_CHECKPOINT
from schedules import Driver


@pytest.fixture(scope="module")
def adapter() -> Adapter:
    return factory(str(GOLDEN_CHECKPOINT))


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    return np.random.default_rng(3).integers(3, 490, 120).tolist()


@pytest.fixture
def inline(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter.model._fetcher, "_pool", Inline())


@pytest.mark.usefixtures("inline")
def test_no_computation_happens_outside_ops(adapter: Adapter, tokens: list[int]) -> None:
    batch, caches = adapter.batch(tokens, 0, len(tokens), [5, 119]), adapter.caches()
    with Guard() as guard:
        logits = adapter.model.forward(batch, caches)
    assert logits.shape == (2, 512) and guard.inside > 1000


def test_op_calls_of_every_layer(adapter: Adapter) -> None:
    """Fused ops stand where the contract has them: a launch more in a layer is forty in a step."""
    every = {
        "hc_collapse_norm": 2, "hc_coefficients": 2, "hc_expand": 2,
        "linear_fp8": 6, "rms_norm_quant": 1, "rms_norm": 1, "rope": 2, "window_pack": 1, "sparse_attention": 1,
        "window_store": 1, "quant_fp8": 2, "linear_fp8_grouped": 1,
        "moe_route": 1, "moe_pack": 1, "grouped_linear": 2, "swiglu_quant": 2, "moe_combine": 1,
    }  # fmt: skip
    assert sum(every.values()) == 29
    model, step = adapter.model, Step(adapter.batch([5, 6, 7], 0, 3, []), adapter.caches())
    streams, pending = model.enter(step.batch)
    for layer in model.layers:
        role, want = layer.attention.role, Counter(every)
        if role.owns_kv:
            want.update(["linear_bf16", "rms_norm", "compressed_store"])
            want.update(["linear_bf16", "compress_pool", "compressor_ring_store"] if role.ratio == 2 else [])
        if role.owns_index_k:
            want.update(["linear_bf16", "rms_norm", "index_key_store"])
        if role.runs_indexer:
            both = ["index_score", "topk_select", "block_select"]
            want.update(["linear_fp8", "index_query_pack", "linear_bf16"])
            want.update(both if role.candidate == "source" else ["index_topk"])
        with counting() as counts:
            streams, pending = layer(streams, pending, step)
        assert {op: len(rows) for op, rows in counts.rows.items()} == want, role


@pytest.mark.usefixtures("inline")
def test_the_guard_sees_a_stray_computation(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = adapter.model.layers[3]
    enter = layer.moe_mix.enter
    monkeypatch.setattr(layer.moe_mix, "enter", lambda *given: enter(*given)._replace(y=enter(*given).y * 1))
    with Guard(), pytest.raises(ComputeOutsideOps, match="aten.mul"):
        adapter.model.forward(adapter.batch([5], 0, 1, [0]), adapter.caches())


@pytest.mark.usefixtures("inline")
def test_the_guard_sees_a_stray_computation_of_the_worker(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    engram = adapter.model.engrams[1]
    fetch = engram.fetch
    monkeypatch.setattr(engram, "fetch", lambda batch: (fetch(batch)[0], fetch(batch)[1] + 0))
    with Guard(), pytest.raises(ComputeOutsideOps, match="aten.add"):
        adapter.model.forward(adapter.batch([5], 0, 1, [0]), adapter.caches())


def changed_layers(adapter: Adapter, tokens: list[int], spoil: Callable[[Any], None]) -> set[int]:
    """Layers whose attention gives another result in the last row after `spoil(caches)`, inputs held fixed."""
    model, text = adapter.model, adapter.text
    driver = Driver(model, pages=4, slots=2)
    track = driver.add(tokens)
    driver.step([(track, len(tokens) - 1)])
    part = SequenceSlice(track.tokens, track.done, track.done + 1, track.slot, track.pages)
    rng = torch.Generator().manual_seed(1)
    inputs = [torch.randn(1, text.hidden_size, generator=rng).bfloat16() for _ in model.layers]

    def outputs() -> list[torch.Tensor]:
        step = Step(Batch.build([part], text, model.device), driver.caches)
        return [layer.attention(normed(x), step) for layer, x in zip(model.layers, inputs, strict=True)]

    pages, state = driver.caches.pages.clone(), driver.caches.state.clone()
    before = outputs()
    driver.caches.pages.copy_(pages)
    driver.caches.state.copy_(state)
    spoil(driver.caches)
    return {i for i, (a, b) in enumerate(zip(before, outputs(), strict=True)) if not torch.equal(a, b)}


def test_layers_read_the_cache_of_their_source(adapter: Adapter, tokens: list[int]) -> None:
    for owner, readers in ((2, {2, 3}), (4, {4, 5}), (6, {6, 7, 8, 9})):
        # Codes 0x22 with the scales as they are: other values, all finite.
        def spoil(caches: Any, owner: int = owner) -> None:
            data = adapter.text.head_dim // 2
            caches.main[owner].unflatten(1, (-1, data + data // 8))[..., :data] = 0x22

        assert changed_layers(adapter, tokens, spoil) == readers


def test_layers_use_the_index_list_of_their_source(adapter: Adapter, tokens: list[int]) -> None:
    def flip(caches: Any, owner: int) -> None:
        section = caches.index[owner]
        data = section.shape[1] // 17 * 16
        section[:, :data] ^= 0x88  # signs of all index keys

    for owner, readers in ((2, {2, 3}), (4, {4, 5}), (6, {6, 7, 8, 9})):
        assert changed_layers(adapter, tokens, lambda caches, owner=owner: flip(caches, owner)) == readers


def test_each_layer_reads_its_own_window(adapter: Adapter, tokens: list[int]) -> None:
    for layer in (0, 3, 9):

        def spoil(caches: Any, layer: int = layer) -> None:
            caches.rings[f"layers.{layer}"][..., :64] = 0x31

        assert changed_layers(adapter, tokens, spoil) == {layer}


def test_reindexing_stays_inside_the_candidate_blocks(adapter: Adapter, tokens: list[int]) -> None:
    step = adapter._run(tokens)[0]
    size, rows = adapter.text.candidate_block_size, []
    assert step.blocks is not None
    for pos in range(len(tokens)):
        blocks = {b for b in step.blocks[pos].tolist() if b >= 0}
        picked = [j for j in step.selected[8][pos].tolist() if j >= 0]
        assert {j // size for j in picked} <= blocks and pos // size in blocks
        assert len(picked) == min(16, pos + 1) and picked == sorted(set(picked)) and picked[-1] <= pos
        rows.append(len(blocks))
    assert rows[-1] == 8 < -(-len(tokens) // size), "the sequence is long enough for the limit to bite"


def test_image_rows_skip_engram_and_cut_the_look_back(adapter: Adapter) -> None:
    text, model = adapter.text, adapter.model
    image = text.vocab_size + 2
    ids = [10, 20, image, image, 30, 40, 50, 60]
    batch = adapter.batch(ids, 0, len(ids), [])
    streams = torch.randn(
        len(ids), text.hc_mult, text.hidden_size, generator=torch.Generator().manual_seed(2)
    ).bfloat16()
    for module in model.engrams.values():
        codes, scales = module.fetch(batch)
        new = module(streams, (codes, scales), batch.image)
        same = [torch.equal(new[t], streams[t]) for t in range(len(ids))]
        assert same == [False, False, True, True, False, False, False, False]
        # The row after an image looks back on nothing, as if the sequence started there.
        fresh = adapter.batch(ids[4:], 0, 4, [])
        again = module.fetch(fresh)
        for a, b in zip((codes, scales), again, strict=True):
            assert torch.equal(a[4:].view(torch.uint8), b.view(torch.uint8))


def test_image_rows_are_routed_with_their_own_bias(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    moe = adapter.model.layers[0].moe
    x = torch.randn(1, adapter.text.hidden_size, generator=torch.Generator().manual_seed(4)).bfloat16()
    plain, image = torch.tensor([False]), torch.tensor([True])
    text_y, image_y = moe(normed(x), plain), moe(normed(x), image)
    assert not torch.equal(text_y, image_y), "the two biases of the golden checkpoint choose other experts"


def test_the_context_reaches_across_every_part(adapter: Adapter, tokens: list[int]) -> None:
    """A token outside the window of every later row still changes them, through the compressed branch."""
    other = [*tokens]
    other[20] = other[20] % 480 + 7
    a, b = (adapter.logits(ids, [], [119], None) for ids in (tokens, other))
    assert not np.array_equal(a, b)


def test_draft_and_vision_weights_load(adapter: Adapter) -> None:
    model = adapter.model
    assert model.drafter is not None and len(model.drafter.layers) == 2
    assert model.drafter.weights.main_proj.tensors[0].shape == (128, 384)
    assert model.drafter.weights.confidence.shape == (128 + 32,)
    weights = model.vision.weights
    assert len(weights.blocks) == 2 and weights.patch_embed.weight.tensors[0].shape == (64, 588)
    assert weights.project2.bias is not None and weights.marks.shape == (3, 128)


def test_every_tensor_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer.model.checkpoint import Checkpoint

    read: list[str] = []
    original = Checkpoint.read_into

    def record(self: Any, name: str, out: Any, rows: Any = None) -> None:
        read.append(name)
        original(self, name, out, rows)

    monkeypatch.setattr(Checkpoint, "read_into", record)
    progress: list[tuple[int, int]] = []
    model = load_model(GOLDEN_CHECKPOINT, identity_vocabulary=True, progress=lambda a, b: progress.append((a, b)))
    with Checkpoint.open(GOLDEN_CHECKPOINT) as checkpoint:
        assert sorted(read) == sorted(checkpoint.inventory)
        total = sum(s.nbytes for s in checkpoint.inventory.values())
    assert progress[-1] == (total, total) and progress == sorted(progress)
    assert model.memory.device > total and model.memory.mapped == 0


def test_a_model_for_no_drafts_leaves_the_draft_layers_in_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer.model.checkpoint import Checkpoint

    read: list[str] = []
    original = Checkpoint.read_into

    def record(self: Any, name: str, out: Any, rows: Any = None) -> None:
        read.append(name)
        original(self, name, out, rows)

    monkeypatch.setattr(Checkpoint, "read_into", record)
    progress: list[tuple[int, int]] = []
    model = load_model(
        GOLDEN_CHECKPOINT, identity_vocabulary=True, max_draft=0, progress=lambda a, b: progress.append((a, b))
    )
    assert model.drafter is None and model.max_draft == 0
    assert read and not any(name.startswith("mtp.") for name in read)
    assert progress[-1][0] == progress[-1][1]


def test_whatever_lives_on_the_device_is_counted(adapter: Adapter) -> None:
    """Weights, rotary tables, hash parameters: every storage that the model reaches, once."""
    found: dict[int, int] = {}
    seen: set[int] = set()

    def walk(value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list | tuple):
            for item in value:
                walk(item)
        elif type(value).__module__.startswith("deepinfer"):
            slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
            for name in [*getattr(value, "__dict__", {}), *slots]:
                walk(getattr(value, name, None))

    model = load_model(GOLDEN_CHECKPOINT, identity_vocabulary=True)
    walk(model)
    assert len(found) > 300 and model.memory.device == sum(found.values())
    shorter = load_model(GOLDEN_CHECKPOINT, identity_vocabulary=True, max_model_len=100)
    dim = model.config.text.qk_rope_head_dim
    assert model.memory.device - shorter.memory.device == 2 * 4 * dim * (model.max_model_len - 100)


def test_layers_may_be_loaded_side_by_side(
    adapter: Adapter, tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepinfer.model.loading.READERS", 4)
    done: list[int] = []
    model = load_model(GOLDEN_CHECKPOINT, identity_vocabulary=True, progress=lambda a, b: done.append(a))
    assert model.memory == adapter.model.memory and done == sorted(done)
    batch = adapter.batch(tokens, 0, len(tokens), [119])
    assert torch.equal(model.forward(batch, model.new_caches(4, 2)), adapter.model.forward(batch, adapter.caches()))


def test_mapped_engram_tables_give_the_same_logits(adapter: Adapter, tokens: list[int]) -> None:
    mapped = load_model(GOLDEN_CHECKPOINT, identity_vocabulary=True, engram_storage="host")
    tables = sum(e.weights.table.numel() + e.weights.table_scale.numel() for e in mapped.engrams.values())
    assert mapped.memory.mapped == tables > 0 and mapped.memory.device == adapter.model.memory.device - tables
    batch = adapter.batch(tokens, 0, len(tokens), [119])
    assert torch.equal(mapped.forward(batch, mapped.new_caches(4, 2)), adapter.model.forward(batch, adapter.caches()))


def test_a_rank_loads_its_experts_and_refuses_to_run_alone(adapter: Adapter) -> None:
    parts = [load_model(GOLDEN_CHECKPOINT, identity_vocabulary=True, rank=r, world_size=2) for r in range(2)]
    whole = adapter.model.layers[2].moe.weights
    for rank, part in enumerate(parts):
        weights = part.layers[2].moe.weights
        assert (weights.first_expert, weights.local_experts) == (4 * rank, 4)
        for mine, all_ in zip(weights.w13.tensors, whole.w13.tensors, strict=True):
            assert torch.equal(mine, all_[4 * rank : 4 * rank + 4])
    rows = [p.engrams[1].weights.table.shape[0] for p in parts]
    assert sum(rows) == adapter.model.engrams[1].weights.table.shape[0]
    with pytest.raises(NotSupportedError, match="2 ranks"):
        parts[0].forward(adapter.batch([5], 0, 1, [0]), adapter.caches())
