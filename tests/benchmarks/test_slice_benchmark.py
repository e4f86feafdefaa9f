"""The slice benchmark runs to its end on a small model; its configuration is the released one but where it says so."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deepinfer.model.config import load_config
from deepinfer.model.dummy import DeviceDummyCheckpoint
from deepinfer.model.loading import load_model
from deepinfer.model.values import value_fault
from released import GOLDEN_CHECKPOINT, RELEASED

Command = Callable[..., int]
SLICE = Path(__file__).parents[2] / "benchmarks" / "slice"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SLICE.parent))
    return importlib.import_module("slice")


def test_the_configuration_is_the_released_one_but_for_what_does_not_fit() -> None:
    assert load_config(SLICE).unknown_keys == ()
    text = json.loads((SLICE / "config.json").read_text())["text_config"]
    released = RELEASED["text_config"]
    differ = {key for key in text.keys() | released.keys() if text.get(key) != released.get(key)}
    assert differ <= {
        "n_routed_experts", "dspark_n_routed_experts", "engram_vocab_size", "engram_num_embeddings",
        "engram_compressed_vocab_size", "initializer_range", "use_cache",
    }, differ  # fmt: skip
    assert text["n_routed_experts"] * 8 == released["n_routed_experts"]
    assert text["dspark_n_routed_experts"] * 8 == released["dspark_n_routed_experts"]


def test_weights_made_on_the_device_are_sound() -> None:
    with DeviceDummyCheckpoint.on(torch.device("cpu"), GOLDEN_CHECKPOINT) as made:
        for name, spec in made.inventory.items():
            found = made.read(name)
            assert value_fault(spec.dtype, found.reshape(-1).view(torch.uint8).numpy()) is None, name
            assert spec.kind != "norm" or bool((found == 1).all()), name
        name = "layers.0.attn.wkv.weight"
        assert not torch.equal(*(made.read(n).view(torch.uint8) for n in (name, name.replace("0", "1"))))
    model = load_model(GOLDEN_CHECKPOINT, load_format="device_dummy", identity_vocabulary=True)
    assert model.memory.device > 0
    model.close()


@pytest.mark.slow
def test_every_kind_of_case_gives_a_record(
    bench: Any, command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import slice_engine

    monkeypatch.setattr(slice_engine, "WARM", 1)
    monkeypatch.setattr(slice_engine, "STEPS", 2)
    small = ("--model", "tiny", "--backend", "reference", "--quick", "--batch", 2, "--repeats", 1)
    assert command(bench, "--json", *small, "--max-context", 256, "--drafts", 1) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = {record["case"].split(",")[0]: record for record in records if "op" not in record and "case" in record}
    assert found.keys() == {"decode", "eager", "fast", "ops", "prefill", "engine"}
    assert found["decode"]["ms"] > 0 and found["decode"]["byte_floor_ms"] > 0
    parts = {part for record in records for part in record.get("parts_ms", ())}
    assert parts == {"backbone", "sample", "draft"}
    assert found["engine"]["step_ms"] > 0 and found["eager"]["same_bits"]
    ops = {record["op"]: record for record in records if "op" in record}
    assert ops["grouped_linear"]["calls"] > 0 and ops["sparse_attention"]["ms"] > 0
    assert sum(record["part"] for record in ops.values()) >= 0.99


@pytest.mark.whole
def test_what_the_prefix_cache_is_worth(
    bench: Any, command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import slice_engine

    monkeypatch.setattr(slice_engine, "ROUNDS", 1)
    monkeypatch.setattr(slice_engine, "TURNS", 2)
    small = ("--model", "tiny", "--backend", "reference", "--batch", 1, "--max-context", 256, "--drafts", 0)
    assert command(bench, "--json", *small, "--only", "turns") == 0
    ratios, with_, without = (r for r in map(json.loads, capsys.readouterr().out.splitlines()) if "case" in r)
    assert ratios["same_tokens"] and ratios["ratios"]["ttft_later_turns"] > 1
    assert with_["cached_tokens"] >= 128 and without["cached_tokens"] == 0


def test_one_kind_alone(bench: Any, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--model", "tiny", "--backend", "reference", "--quick", "--batch", 1, "--repeats", 1)
    assert command(bench, *small, "--max-context", 256, "--drafts", 0, "--only", "fast, 1") == 0
    assert "the backend has no fast kernels" in capsys.readouterr().out


def test_a_step_below_the_bar_is_exit_status_1(bench: Any) -> None:
    judged = bench.Case("decode", *bench.JUDGED)
    assert bench._verdict(judged, {"byte_share": 0.55}, True) == "pass"
    assert bench._verdict(judged, {"byte_share": 0.54}, True) == "fail"
    assert bench._verdict(bench.Case("decode", 64, 1024), {"byte_share": 0.1}, True) == ""
    assert bench._verdict(judged, {"byte_share": 0.1}, False) == ""
    assert bench._verdict(bench.Case("fast", *bench.JUDGED), {"ratio": 1.2}, True) == "fail"
    engine = bench.Case("engine", bench.IDLE_BATCH, 1024, 5)
    assert engine in bench.cases(True, 128 << 10, 5)
    told = [{"async": ahead, "idle_part": part} for ahead, part in ((True, 0.05), (True, 0.06), (False, 0.06))]
    assert [bench._verdict(engine, one, True) for one in told] == ["pass", "fail", ""]


def test_floors_count_weights_once_and_experts_that_are_touched(bench: Any) -> None:
    from slice_ops import stored_bytes

    from deepinfer import ops
    from deepinfer.hal.catalog import load_backend
    from deepinfer.ops.spec import SPECS

    load_backend("reference")
    weight = torch.zeros((4, 32, 16), dtype=torch.uint8), torch.full((4, 32, 1), 127, dtype=torch.uint8)
    handle = ops.grouped_linear_prepare(*weight)
    x = torch.zeros((2, 32), dtype=torch.float8_e4m3fn), torch.full((2, 1), 127, dtype=torch.uint8)
    args = (*x, handle, None, torch.tensor([0, 1, 1, 2, 2], dtype=torch.int32))
    touched = handle.nbytes * (1 - 0.75**2)
    assert stored_bytes(SPECS["grouped_linear"], args, 1e9) == pytest.approx(touched)
    assert stored_bytes(SPECS["grouped_linear"], args, 1e9, 0.5) == pytest.approx(handle.nbytes / 4)
    norm = (torch.zeros(3, 64).bfloat16(), torch.ones(64).bfloat16(), 1e-6)
    assert stored_bytes(SPECS["rms_norm"], norm, 1e9) == 0
