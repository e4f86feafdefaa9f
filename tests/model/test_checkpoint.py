from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from deepinfer.hal.errors import CheckpointError, ConfigError, InvalidArgumentError
from deepinfer.model.checkpoint import Checkpoint, ReadRequest
from deepinfer.model.dummy import write_dummy
from deepinfer.model.report import CheckpointReportError
from deepinfer.model.shard_plan import ShardPlan
from released import GOLDEN_CHECKPOINT

SCALE = "layers.2.ffn.experts.1.w2.scale"


def findings(path: Path) -> list[tuple[str, str]]:
    with Checkpoint.open(path) as checkpoint:
        return sorted((f.problem, f.name) for f in checkpoint.findings())


def message(path: Path) -> str:
    with Checkpoint.open(path) as checkpoint, pytest.raises(CheckpointReportError) as caught:
        checkpoint.check()
    assert isinstance(caught.value, CheckpointError)
    return str(caught.value)


# ---- reading ---------------------------------------------------------------------------------------------------


def test_every_tensor_equals_what_the_safetensors_library_reads() -> None:
    expected: dict[str, torch.Tensor] = {}
    for shard in GOLDEN_CHECKPOINT.glob("*.safetensors"):
        expected |= load_file(shard)
    with Checkpoint.open(GOLDEN_CHECKPOINT) as checkpoint:
        checkpoint.check()
        for name, spec in checkpoint.inventory.items():
            got, want = checkpoint.read(name), expected[name]
            assert got.dtype == {
                "BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.uint8,
                "I8": torch.uint8,
            }[spec.dtype]  # fmt: skip
            assert got.shape == want.shape
            assert torch.equal(got.reshape(-1).view(torch.uint8), want.reshape(-1).view(torch.uint8)), name
            mapped = checkpoint.map(name)
            assert mapped.dtype == got.dtype
            assert torch.equal(mapped.reshape(-1).view(torch.uint8), got.reshape(-1).view(torch.uint8)), name
        assert checkpoint.bytes_read == sum(s.nbytes for s in checkpoint.inventory.values())


def test_read_into_fills_a_view_and_nothing_around_it(dummy_original: Path) -> None:
    name = "layers.0.ffn.experts.3.w1.weight"
    with Checkpoint.open(dummy_original) as checkpoint:
        stack = torch.full((3, 64, 64), 0xA5, dtype=torch.uint8)
        checkpoint.read_into(name, stack[1])
        assert torch.equal(stack[1], checkpoint.read(name))
        assert bool((stack[[0, 2]] == 0xA5).all())


@pytest.mark.parametrize("rows", [(0, 0), (0, 1), (37, 1001), (1617, 1618), (1618, 1618), (0, 1618)])
def test_row_ranges(dummy_original: Path, rows: tuple[int, int]) -> None:
    with Checkpoint.open(dummy_original) as checkpoint:
        for name in ("layers.1.engram.embed.weight", "layers.1.engram.embed.scale"):
            whole = checkpoint.read(name).view(torch.uint8)
            before = checkpoint.bytes_read
            part = checkpoint.read(name, rows).view(torch.uint8)
            assert checkpoint.bytes_read - before == part.nbytes
            assert torch.equal(part, whole[rows[0] : rows[1]])
            assert torch.equal(checkpoint.map(name, rows).view(torch.uint8), part)


@pytest.mark.parametrize("rows", [(-1, 2), (3, 2), (0, 1619)])
def test_rows_out_of_range(dummy_original: Path, rows: tuple[int, int]) -> None:
    with Checkpoint.open(dummy_original) as checkpoint:
        for method in (checkpoint.read, checkpoint.map):
            with pytest.raises(InvalidArgumentError, match="within the 1618 rows of layers.1.engram.embed.weight"):
                method("layers.1.engram.embed.weight", rows)


def test_unfit_destinations(dummy_original: Path) -> None:
    with Checkpoint.open(dummy_original) as checkpoint:
        for out in (
            torch.empty(128, dtype=torch.float16),
            torch.empty(127, dtype=torch.bfloat16),
            torch.empty(256, dtype=torch.bfloat16)[::2],
            torch.empty(128, dtype=torch.bfloat16, device="meta"),
        ):
            with pytest.raises(InvalidArgumentError, match="out: got"):
                checkpoint.read_into("norm.weight", out)
        with pytest.raises(CheckpointError, match=r"no tensor layers\.99\.x"):
            checkpoint.read("layers.99.x")


def test_read_many_reports_progress_and_the_first_fault(dummy_original: Path, directory: Any) -> None:
    names = [f"layers.{i}.ffn.experts.{e}.w1.weight" for i in range(10) for e in range(8)]
    outs = [torch.zeros(64, 64, dtype=torch.uint8) for _ in names]
    done: list[int] = []
    with Checkpoint.open(dummy_original) as checkpoint:
        requests = [ReadRequest(n, o) for n, o in zip(names, outs, strict=True)]
        checkpoint.read_many(requests, workers=3, progress=done.append)
        assert sum(done) == len(names) * 4096
        for name, out in zip(names, outs, strict=True):
            assert torch.equal(out, checkpoint.read(name))
        with pytest.raises(InvalidArgumentError, match="out: got"):
            checkpoint.read_many([*requests, ReadRequest("norm.weight", torch.empty(3))])


def test_mapped_tensors_outlive_the_checkpoint(dummy_original: Path) -> None:
    with Checkpoint.open(dummy_original) as checkpoint:
        table = checkpoint.map("layers.4.engram.embed.weight")
        expected = checkpoint.read("layers.4.engram.embed.weight")
    assert torch.equal(table.view(torch.uint8), expected.view(torch.uint8))


def test_mapping_warns_of_nothing(dummy_original: Path) -> None:
    code = (
        "import warnings; warnings.simplefilter('error')\n"
        "from deepinfer.model.checkpoint import Checkpoint\n"
        f"print(Checkpoint.open({str(dummy_original)!r}).map('norm.weight').shape)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "torch.Size([128])"), run.stderr


def test_opening_and_checking_load_no_torch(dummy_original: Path) -> None:
    code = (
        "import sys\nfrom deepinfer.model.checkpoint import Checkpoint\n"
        f"Checkpoint.open({str(dummy_original)!r}).check()\nprint('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# ---- names -----------------------------------------------------------------------------------------------------


def test_one_file_without_an_index(tiny_values: Any, tmp_path: Path) -> None:
    write_dummy(tmp_path, tiny_values)
    assert not (tmp_path / "model.safetensors.index.json").exists()
    with Checkpoint.open(tmp_path) as checkpoint:
        checkpoint.check()


def test_prefixed_names_and_the_head_alias(directory: Any) -> None:
    with Checkpoint.open(directory.path) as checkpoint:
        expected = checkpoint.read("head.weight")
    for name in [n for n in directory.index["weight_map"] if n.startswith(("layers.0.attn", "norm"))]:
        directory.rename(name, f"model.{name}")
    directory.rename("head.weight", "lm_head.weight")
    with Checkpoint.open(directory.path) as checkpoint:
        checkpoint.check()
        assert torch.equal(checkpoint.read("head.weight"), expected)
        assert checkpoint.entry("model.norm.weight") == checkpoint.entry("norm.weight")


@pytest.mark.parametrize("spelling", ["model.norm.weight", "model.lm_head.weight", "lm_head.weight"])
def test_a_name_in_both_spellings_is_an_error(directory: Any, spelling: str) -> None:
    shape = [128] if "norm" in spelling else [512, 128]
    directory.add(spelling, "BF16", shape, bytes(2 * shape[0] * (shape[1] if len(shape) > 1 else 1)))
    name = spelling.removeprefix("model.").removeprefix("lm_")
    assert set(findings(directory.path)) == {("duplicate", name)}
    assert f"stored twice: {name} in" in message(directory.path)


def test_stored_in_two_shards(directory: Any) -> None:
    first, second = sorted(set(directory.index["weight_map"].values()))
    kept = dict(directory.index["weight_map"])
    name = next(n for n, shard in kept.items() if shard == second and n.endswith("norm.weight"))
    directory.add(name, "BF16", [128], bytes(256), first)
    directory.edit_index(lambda weight_map: weight_map.update(kept))
    assert ("duplicate", name) in findings(directory.path)


def test_draft_copies_of_the_embedding_are_passed_over(directory: Any) -> None:
    directory.add("mtp.0.embed.weight", "BF16", [2], bytes(4))
    directory.add("model.mtp.1.head.weight", "F32", [1], bytes(4))
    assert findings(directory.path) == []


# ---- one clear message for each wrong checkpoint ---------------------------------------------------------------


def test_missing_tensor(directory: Any) -> None:
    directory.drop("layers.3.attn.kv_norm.weight")
    assert findings(directory.path) == [("missing", "layers.3.attn.kv_norm.weight")]
    assert message(directory.path).splitlines() == [
        f"{directory.path}: not a usable checkpoint, 1 problem",
        "  missing: 1",
        "    layers.3.attn.kv_norm.weight: BF16 [64] in no shard",
    ]


def test_missing_scale(directory: Any) -> None:
    directory.drop(SCALE)
    assert findings(directory.path) == [("missing scale", SCALE)]
    assert "F8_E8M0 [128, 2] in no shard; quantised weights need their scales" in message(directory.path)


def test_wrong_shape(directory: Any) -> None:
    shard = directory.shard_of("layers.5.attn.wkv.weight")
    shard.header["layers.5.attn.wkv.weight"]["shape"] = [128, 64]
    shard.save()
    assert findings(directory.path) == [("shape", "layers.5.attn.wkv.weight")]
    assert f"[128, 64] in {shard.path.name}, must be [64, 128]" in message(directory.path)


def test_wrong_dtype(directory: Any) -> None:
    shard = directory.shard_of("layers.5.attn.wkv.weight")
    shard.header["layers.5.attn.wkv.weight"]["dtype"] = "F8_E5M2"
    shard.save()
    assert findings(directory.path) == [("dtype", "layers.5.attn.wkv.weight")]
    assert f"F8_E5M2 in {shard.path.name}, must be F8_E4M3" in message(directory.path)


def test_unexpected_tensor(directory: Any) -> None:
    directory.add("layers.0.attn.wq.weight", "BF16", [2], bytes(4))
    assert findings(directory.path) == [("unexpected", "layers.0.attn.wq.weight")]
    assert "belongs to no part of this architecture" in message(directory.path)


def test_a_rank_hears_of_unexpected_tensors_too(directory: Any) -> None:
    directory.add("layers.0.attn.wq.weight", "BF16", [2], bytes(4))
    with Checkpoint.open(directory.path) as checkpoint:
        for plan in (ShardPlan(0, 1), ShardPlan(1, 2)):
            with pytest.raises(CheckpointReportError, match="layers.0.attn.wq.weight"):
                checkpoint.check(plan)


def test_unfolded_hyper_connection_norm(directory: Any) -> None:
    directory.add("layers.0.hc_attn_norm.weight", "BF16", [512], bytes(1024))
    assert "must not exist: the hyper-connection norm weight belongs multiplied into" in message(directory.path)


def test_wrong_architecture(directory: Any) -> None:
    directory.edit_config(lambda values: values.update(architectures=["DeepseekV4ForCausalLM"]))
    with pytest.raises(ConfigError, match=r"'architectures' is \['DeepseekV4ForCausalLM'\]: must be"):
        Checkpoint.open(directory.path)


def test_config_out_of_range(directory: Any) -> None:
    directory.edit_config(lambda values: values["text_config"].update(candidate_topk_blocks=4104))
    with pytest.raises(ConfigError, match=r"text_config\.candidate_topk_blocks' is 4104: must be <= 4096"):
        Checkpoint.open(directory.path)


def test_corrupt_header_hides_no_other_fault_and_is_not_drowned(directory: Any) -> None:
    shard = directory.shard_of("norm.weight")
    raw = bytearray(shard.path.read_bytes())
    raw[20] = 0xFF
    shard.path.write_bytes(raw)
    directory.drop("vision.norm.weight")  # in the other shard
    assert findings(directory.path) == [("missing", "vision.norm.weight"), ("unreadable shard", shard.path.name)]
    assert f"{shard.path.name}: corrupt header: not valid JSON" in message(directory.path)


def test_corrupt_single_file(tiny_values: Any, tmp_path: Path) -> None:
    write_dummy(tmp_path, tiny_values)
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.write(b"\xff" * 8)
    assert findings(tmp_path) == [("unreadable shard", "model.safetensors")]


def test_truncated_shard(directory: Any) -> None:
    shard = directory.shard_of("norm.weight")
    size = shard.path.stat().st_size
    with shard.path.open("r+b") as file:
        file.truncate(size - 1)
    last = max((n for n in shard.header if n != "__metadata__"), key=lambda n: shard.header[n]["data_offsets"][1])
    assert findings(directory.path) == [("truncated", last)]
    assert f"{last}: ends at byte {size}, {shard.path.name} has {size - 1}" in message(directory.path)
    with Checkpoint.open(directory.path) as checkpoint:  # neither way of reading passes it by
        for read in (checkpoint.read, checkpoint.map):
            with pytest.raises(CheckpointError, match="truncated"):
                read(last)


def test_missing_shard(directory: Any) -> None:
    shard = directory.shard_of("norm.weight").path
    count = list(directory.index["weight_map"].values()).count(shard.name)
    shard.unlink()
    assert findings(directory.path) == [("missing shard", shard.name)]
    assert f"puts {count} tensors there" in message(directory.path)


def test_index_and_headers_disagree(directory: Any) -> None:
    first, second = sorted(set(directory.index["weight_map"].values()))
    assert directory.index["weight_map"]["norm.weight"] == first
    directory.edit_index(lambda weight_map: weight_map.update({"norm.weight": second}))
    directory.edit_index(lambda weight_map: weight_map.__delitem__("head.weight"))
    assert findings(directory.path) == [("index", "head.weight"), ("index", "norm.weight")]


def test_the_index_promises_what_no_shard_holds(directory: Any) -> None:
    shard = next(iter(directory.index["weight_map"].values()))
    directory.edit_index(lambda weight_map: weight_map.update({"extra.weight": shard}))
    assert findings(directory.path) == [("index", "extra.weight")]
    assert f"puts it in {shard}, which does not hold it" in message(directory.path)


def test_a_shard_name_that_the_file_system_refuses(directory: Any) -> None:
    directory.edit_index(lambda weight_map: weight_map.update({"norm.weight": "a" * 5000}))
    assert ("missing shard", "a" * 5000) in findings(directory.path)


def test_an_index_that_is_a_link_to_nowhere(directory: Any) -> None:
    index = directory.path / "model.safetensors.index.json"
    index.unlink()
    index.symlink_to("nowhere")
    with pytest.raises(CheckpointError, match="not a usable index"):
        Checkpoint.open(directory.path)


def test_bytes_behind_the_last_tensor(directory: Any) -> None:
    shard = directory.path / next(iter(directory.index["weight_map"].values()))
    with shard.open("ab") as file:
        file.write(b"xyz")
    assert findings(directory.path) == [("unreadable shard", shard.name)]
    assert "3 bytes behind the last tensor" in message(directory.path)


@pytest.mark.parametrize(
    ("text", "rule"),
    [("{", "not a usable index"), ("{}", "weight_map"), ('{"weight_map": {}}', "non-empty"),
     ('{"weight_map": {"a": "../x"}}', "not a plain file name"), ('{"weight_map": {"a": 3}}', "plain file name")],
)  # fmt: skip
def test_unusable_index(directory: Any, text: str, rule: str) -> None:
    (directory.path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match=rule):
        Checkpoint.open(directory.path)


def test_no_directory_and_no_shards(directory: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a directory"):
        Checkpoint.open(tmp_path / "nothing")
    (tmp_path / "bare").mkdir()
    shutil.copy(directory.path / "config.json", tmp_path / "bare")
    with pytest.raises(CheckpointError, match="no model.safetensors.index.json and no"):
        Checkpoint.open(tmp_path / "bare")


def test_many_faults_make_one_short_message(directory: Any) -> None:
    names = [f"layers.7.ffn.experts.{e}.w1.weight" for e in range(8)]
    for name in names:
        directory.drop(name)
    directory.drop(SCALE)
    text = message(directory.path)
    assert "not a usable checkpoint, 9 problems" in text
    assert "missing: 8" in text and "... and 3 more" in text and SCALE in text
    assert len(text.splitlines()) == 10


# ---- values ----------------------------------------------------------------------------------------------------


def spoil(directory: Any, name: str, at: int, value: bytes) -> None:
    shard = directory.shard_of(name)
    start = shard.bytes_of(name).start + at
    shard.data[start : start + len(value)] = value
    shard.save()


@pytest.mark.parametrize(
    ("name", "at", "value", "fault"),
    [
        (SCALE, 77, b"\xff", "element 77 (flat index) is scale byte 255 (NaN)"),
        ("layers.1.engram.embed.scale", 1617, b"\xff", "element 1617 (flat index) is scale byte 255 (NaN)"),
        ("layers.0.attn.wo_b.weight", 8191, b"\x7f", "element 8191 (flat index) is NaN"),
        ("layers.0.attn.wo_b.weight", 0, b"\xff", "element 0 (flat index) is NaN"),
        ("embed.weight", 2 * 65535, b"\xc0\x7f", "element 65535 (flat index) is NaN or infinity"),
        ("layers.9.attn.attn_sink", 12, b"\x00\x00\x80\xff", "element 3 (flat index) is NaN or infinity"),
    ],
)
def test_values_that_are_not_finite_are_refused(directory: Any, name: str, at: int, value: bytes, fault: str) -> None:
    spoil(directory, name, at, value)
    with Checkpoint.open(directory.path) as checkpoint:
        checkpoint.check()  # headers are right
        with pytest.raises(CheckpointError) as caught:
            checkpoint.read(name)
        assert str(caught.value) == f"{name}: {fault}, in {checkpoint.entry(name).shard.name}"
        assert checkpoint.value_fault(name) == fault


def test_a_bad_row_is_found_by_its_index_in_the_whole_table(directory: Any) -> None:
    spoil(directory, "layers.1.engram.embed.weight", 32 * 1000 + 5, b"\x7f")
    with Checkpoint.open(directory.path) as checkpoint:
        checkpoint.read("layers.1.engram.embed.weight", (0, 1000))
        checkpoint.read("layers.1.engram.embed.weight", (1001, 1618))
        with pytest.raises(CheckpointError, match=f"element {32 * 1000 + 5} "):
            checkpoint.read("layers.1.engram.embed.weight", (990, 1010))


def test_scales_that_were_never_written_are_refused(directory: Any) -> None:
    """A scale tensor that was allocated but not filled: every weight would vanish in silence."""
    shard = directory.shard_of(SCALE)
    part = shard.bytes_of(SCALE)
    spoil(directory, SCALE, 0, bytes(part.stop - part.start))
    with Checkpoint.open(directory.path) as checkpoint:
        with pytest.raises(CheckpointError, match="every scale byte is 0, the scales were never written"):
            checkpoint.read(SCALE)
        assert "never written" in (checkpoint.value_fault(SCALE) or "")
    spoil(directory, SCALE, 3, b"\x01")
    with Checkpoint.open(directory.path) as checkpoint:
        checkpoint.read(SCALE)
        assert checkpoint.value_fault(SCALE) is None


def test_values_are_checked_over_block_borders(directory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepinfer.model.checkpoint._BLOCK", 1024)
    spoil(directory, "embed.weight", 5000, b"\x80\x7f")
    with Checkpoint.open(directory.path) as checkpoint:
        with pytest.raises(CheckpointError, match="element 2500 "):
            checkpoint.read("embed.weight")
        assert "element 2500 " in (checkpoint.value_fault("embed.weight") or "")
        want = load_file(directory.shard_of("head.weight").path)["head.weight"]
        assert torch.equal(checkpoint.read("head.weight"), want)
