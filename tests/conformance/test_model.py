"""The suite `model` on the tiny preset: faults planted in one op show at the level that must see them, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import deepinfer.ops
from deepinfer.conformance import brief, greedy, levels
from deepinfer.conformance.case import Target
from deepinfer.conformance.decisions import DECIDING, Replay, gate_keys, margins, visible_scores
from deepinfer.conformance.greedy import Clear, compare_tokens
from deepinfer.conformance.suites import model as suite
from deepinfer.conformance.trace import OpCall
from deepinfer.conformance.variants import variants
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REFERENCE, REGISTRY
from deepinfer.ops.spec import SPECS
from planted import planted, right

assert deepinfer.ops
Right = Callable[..., Any]
LONG = 15
ALL = tuple(SPECS.values())


@pytest.fixture(scope="module", autouse=True)
def cache_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPINFER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def dropped_sink(fn: Right, *args: Any) -> Tensor:
    return fn(*args[:3], torch.full_like(args[3], -torch.inf), *args[4:])  # type: ignore[no-any-return]


def scaled(fn: Right, *args: Any) -> Tensor:
    return fn(*args) * 1.25  # type: ignore[no-any-return]


def test_the_first_op_that_diverges_is_named() -> None:
    with planted(sparse_attention=dropped_sink, rms_norm=right) as target:
        outcome = levels.judge_ops("tiny", LONG, ALL, target)
    first = str(outcome.findings[0])
    assert "step 0, layer 0, call" in first and "sparse_attention" in first and outcome.worst and outcome.worst > 1
    assert "diverge" in outcome.findings[-1].message


def test_a_model_is_passed_with_kernels_for_all_of_its_ops_only() -> None:
    with planted(rms_norm=right) as target:
        assert levels.judge_ops("tiny", LONG, [SPECS["rms_norm"]], target).passed
        some = levels.judge_ops("tiny", LONG, ALL, target)
        assert not some.findings and some.skipped.startswith("declared unsupported: no kernels of its own for ")
        assert "sparse_attention" in some.skipped and "rms_norm," not in some.skipped
        assert levels.judge_ops("tiny", LONG, [SPECS["rope"]], target).skipped.startswith("declared unsupported")


def test_a_fallback_that_is_allowed_is_named_and_is_not_the_backends_own() -> None:
    with planted(rms_norm=right) as target:
        allowed = Target(target.backend, target.device, fallback=True)
        whole = levels.judge_replayed("tiny", LONG, allowed)
        some = levels.judge_ops("tiny", LONG, ALL, allowed)
    assert not whole.findings and not whole.skipped and whole.worst is not None
    assert "sparse_attention" in whole.borrowed and "rms_norm" not in whole.borrowed
    assert not some.findings and not some.skipped and "sparse_attention" in some.borrowed
    assert not whole.passed and not some.passed
    with planted(moe_combine=scaled) as target:
        found = levels.judge_replayed("tiny", LONG, Target(target.backend, target.device, fallback=True))
    assert found.findings and "sparse_attention" in found.borrowed


def test_a_legitimate_variant_is_not_wrong_and_fallbacks_are_listed() -> None:
    def variant(op: str) -> Callable[..., Any]:
        return lambda fn, *args: variants()["all"][op](*args[:-1])

    chosen = ("linear_bf16", "grouped_linear", "linear_fp8", "rms_norm", "hc_expand", "moe_route", "hc_collapse_norm")
    with planted(**{op: variant(op) for op in chosen}) as target:
        for judge in (levels.judge_layers, levels.judge_replayed):
            outcome = judge("tiny", LONG, target)
            assert not outcome.findings and outcome.worst is not None
            assert "sparse_attention" in outcome.skipped and "rms_norm," not in outcome.skipped


def test_errors_of_a_layer_and_of_the_whole_are_seen() -> None:
    with planted(moe_combine=scaled) as target:
        forced = levels.judge_layers("tiny", LONG, target)
        whole = levels.judge_replayed("tiny", LONG, target)
    assert forced.findings[0].check == "layer" and "layer 0:" in forced.findings[0].message
    assert whole.findings[0].check == "replayed" and "streams after layer 0" in whole.findings[0].message


def test_a_layer_is_judged_on_recorded_inputs() -> None:
    """An error of layer 0 alone does not reach layer 1."""
    calls = iter(range(10**9))

    def first_only(fn: Right, *args: Any) -> Tensor:
        y = fn(*args)
        return y * 1.25 if next(calls) % 10 == 0 else y  # one call per layer, ten layers

    with planted(moe_combine=first_only) as target:
        found = levels.judge_layers("tiny", LONG, target).findings
    assert [f.message.split(":")[0] for f in found] == ["layer 0"]


def test_some_layers_and_the_calls_of_draft_layers_are_judged_alone() -> None:
    def of_drafts(made: OpCall) -> bool:
        return made.op == "moe_combine" and made.layer.startswith("draft")

    with planted(moe_combine=right) as target:
        passed = brief.judge_some_layers("tiny", (1, 6), target)
        assert not passed.findings and "sparse_attention" in passed.skipped
        assert brief.judge_some_calls("tiny", of_drafts, target).notes == ("2 calls",)
    with planted(moe_combine=scaled) as target:
        layers = brief.judge_some_layers("tiny", (1, 6), target)
        drafts = brief.judge_some_calls("tiny", of_drafts, target)
        every = levels.judge_ops("tiny", LONG, [SPECS["moe_combine"]], target)
    assert [f.message.split(":")[0] for f in layers.findings] == ["layer 1", "layer 6"]
    assert [f.message.split(", call")[0] for f in drafts.findings] == ["step 1, draft layer 0", "step 1, draft layer 1"]
    assert "32 calls in all" in every.findings[-1].message  # of three steps and ten layers, and of two draft layers


def test_nan_is_no_small_error() -> None:
    def lost(fn: Right, *args: Any) -> Tensor:
        return fn(*args) * torch.nan  # type: ignore[no-any-return]

    with planted(moe_combine=lost) as target:
        assert levels.judge_replayed("tiny", LONG, target).findings


def test_greedy_tokens_of_a_wrong_head_are_seen() -> None:
    def head(fn: Right, x: Tensor, weight: Any, fp32_out: bool, out: Any) -> Tensor:
        y = fn(x, weight, fp32_out, out)
        return y.roll(1, dims=1) if weight.dims["N"] > 400 else y  # type: ignore[no-any-return]

    with planted(rms_norm=right) as target:
        outcome = greedy.judge_greedy("tiny", 40, target)
        assert not outcome.findings and "positions qualify" in outcome.notes[0], outcome
        assert "linear_bf16" in outcome.skipped
    with planted(linear_bf16=head) as target:
        found = greedy.judge_greedy("tiny", 40, target)
        assert found.findings[0].check == "greedy" and "all margins clear" in found.findings[0].message


def test_only_clear_tokens_count_and_only_up_to_the_first_difference() -> None:
    clear = [[Clear(5, True), Clear(6, False), Clear(7, True)]]
    assert not compare_tokens(clear, [[5, 6, 7]])
    assert not compare_tokens(clear, [[5, 9, 8]])
    assert len(compare_tokens(clear, [[4, 9, 8]])) == 1
    assert len(compare_tokens(clear, [[5, 6, 8]])) == 1


def call(op: str, *args: Any) -> OpCall:
    return OpCall("step 0, layer 0", 0, op, "reference", args)


def test_margins() -> None:
    visible = torch.tensor([4, 2, 0], dtype=torch.int32)
    scores = torch.tensor([[1.0, 4.0, 2.0, 3.5, 9.0]] * 3)
    got = margins(call("topk_select", scores, visible, 2, None, 8))
    assert got.tolist() == [1.5, torch.inf, torch.inf]
    blocks = torch.tensor([[0, 3], [1, -1], [-1, -1]], dtype=torch.int32)
    lanes = torch.tensor([[1.0, 4.0, 2.0, 3.5]] * 3)
    seen = visible_scores({"scores": lanes, "visible": torch.tensor([7, 3, 0]), "blocks": blocks, "block_size": 2})
    assert seen.isfinite().tolist() == [[True, True, True, False], [True, False, False, False], [False] * 4]
    got = margins(call("block_select", torch.tensor([[1.0, 2.0, 5.0, 0.0, 4.5, 9.0, 0.0]]), torch.tensor([7]), 2, 2))
    assert got.tolist() == [4.0]  # the last block counts as infinite, 9 is next, 5 after it
    logits, bias = torch.tensor([[0.0, 1.0, 2.0, 3.0]]), torch.zeros(4)
    keys = gate_keys(logits, bias, bias, torch.tensor([False]))
    route = call("moe_route", None, None, bias, bias, torch.tensor([False]), 1, 1.0)
    assert margins(replace(route, results=(bias, bias, logits))).allclose(keys[:, 3] - keys[:, 2])


def test_a_replay_gives_recorded_results_in_order() -> None:
    replay = Replay({op: [(torch.tensor([1]),), (torch.tensor([2]),)] for op in DECIDING})
    assert [int(replay.take("topk_select", torch.zeros(1))[0]) for _ in range(2)] == [1, 2]
    with pytest.raises(AssertionError, match="more calls"):
        replay.take("topk_select", torch.zeros(1))
    assert int(replay.again().take("topk_select", torch.zeros(1))[0]) == 1


def test_some_ops_alone_give_the_first_level_alone() -> None:
    assert [c.label for c in suite.cases("quick", [SPECS["rope"]])] == ["ops on recorded inputs"]
    labels = [c.id for c in suite.cases("full", ALL)]
    assert len(labels) == 8 and "model/kernel/greedy tokens" in labels


@pytest.mark.gpu
def test_the_reference_on_a_gpu_and_on_the_cpu() -> None:
    """The one comparison of two devices that needs no kernels."""
    target = Target(REFERENCE, torch.device("cuda", 0))
    CATALOG.load(REFERENCE)
    with REGISTRY.using(REFERENCE, ""):
        for case in suite.cases("quick", ALL):
            outcome = case.run(target)
            assert outcome.passed, (case.id, *map(str, outcome.findings))
