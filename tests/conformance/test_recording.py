"""Recordings: what they hold, what differs on another machine, damage, and the one of a GPU that is kept here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from deepinfer.conformance import recording
from deepinfer.conformance.recording import FACTS, OUTPUTS, RecordingError, check, digest, record
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REFERENCE, REGISTRY
from deepinfer.ops.spec import SPECS

OPS = ("quant_fp8", "rms_norm", "topk_select", "window_store")
KEPT_HERE = sorted(path.parent for path in (Path(__file__).parents[1] / "recordings").glob(f"*/{FACTS}"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording")
    backend = CATALOG.load(REFERENCE)
    with REGISTRY.using(REFERENCE):
        record(backend, backend.devices()[0], [SPECS[op] for op in OPS], folder)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def edit(folder: Path, change: Any) -> None:
    facts = json.loads((folder / FACTS).read_text())
    change(facts)
    (folder / FACTS).write_text(json.dumps(facts))


def first(facts: dict[str, Any], op: str) -> tuple[int, dict[str, Any]]:
    """The first call of an op with elements, and its number."""
    return next((i, c) for i, c in enumerate(facts["calls"]) if c["op"] == op and 0 not in c["outputs"][0]["shape"])


def test_the_machine_that_made_it_agrees_in_every_bit(made: Path) -> None:
    facts, kept = recording.load(made)
    assert {call["op"] for call in facts["calls"]} == set(OPS)
    assert facts["backend"] == REFERENCE and facts["torch"] == torch.__version__ and facts["date"]
    exact = [out for call in facts["calls"] if call["op"] != "rms_norm" for out in call["outputs"]]
    assert kept and not any(out["kept"] for out in exact)
    found = check(made)
    assert not found.findings and not found.passed_over and not found.within
    assert found.equal == sum(len(call["outputs"]) for call in facts["calls"])


def test_other_bits_of_an_exact_op_are_a_finding(copy: Path) -> None:
    edit(copy, lambda facts: first(facts, "quant_fp8")[1]["outputs"][1].update(digest="0" * 64))
    (finding,) = check(copy).findings
    assert finding.check == "bits" and finding.message.startswith("quant_fp8, ") and "scale" in finding.message


def test_an_output_that_the_recording_lacks_is_a_finding(copy: Path) -> None:
    edit(copy, lambda facts: first(facts, "quant_fp8")[1]["outputs"].pop())
    (finding,) = check(copy, ["quant_fp8"]).findings
    assert finding.check == "outputs" and "recorded are q, of q, scale" in finding.message


@pytest.mark.parametrize(("factor", "wrong"), [(1.0, False), (1.5, True)])
def test_other_bits_of_an_op_that_rounds_are_held_against_its_class(copy: Path, factor: float, wrong: bool) -> None:
    facts, kept = recording.load(copy)
    number, _ = first(facts, "rms_norm")
    value = kept[f"{number}/y"]
    save_file({**kept, f"{number}/y": (value.float() * factor).bfloat16()}, copy / OUTPUTS)
    edit(copy, lambda facts: facts["calls"][number]["outputs"][0].update(digest="0" * 64))
    found = check(copy, ["rms_norm"])
    assert [f.check for f in found.findings] == (["limit"] if wrong else [])
    assert found.within == (0 if wrong else 1)


def test_what_cannot_be_compared_is_counted(copy: Path) -> None:
    def change(facts: dict[str, Any]) -> None:
        first(facts, "quant_fp8")[1]["arguments"] = "0" * 64
        first(facts, "topk_select")[1]["sample"] = "gone"
        first(facts, "window_store")[1]["version"] = 99
        out = first(facts, "rms_norm")[1]["outputs"][0]
        out.update(kept=False, digest="0" * 64)

    edit(copy, change)
    assert check(copy).passed_over == {"other arguments": 3, "other version": 1, "not kept": 1}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / OUTPUTS).unlink(), "no whole recording"),
        (lambda folder: (folder / OUTPUTS).write_bytes((folder / OUTPUTS).read_bytes()[:-5]), "no whole recording"),
        (lambda folder: (folder / FACTS).write_text("{"), "no whole recording"),
        (lambda folder: (folder / FACTS).write_text("[]"), "no whole recording"),
        (lambda folder: save_file({}, folder / OUTPUTS), "no whole recording"),
        (lambda folder: edit(folder, lambda facts: facts.update(format=1)), "format 1; this version reads 2"),
        (
            lambda folder: save_file({k: v[:0] for k, v in load_file(folder / OUTPUTS).items()}, folder / OUTPUTS),
            "another shape",
        ),
    ],
)
def test_a_folder_that_is_no_recording_is_refused(copy: Path, damage: Any, said: str) -> None:
    damage(copy)
    with pytest.raises(RecordingError, match=said):
        check(copy)


def test_unspecified_elements_take_no_part_in_a_digest() -> None:
    x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 3.0]])
    mask = torch.tensor([True, False])
    assert digest(x, mask) == digest(y, mask) != digest(x)
    assert digest(x.t()) == digest(x.t().contiguous())


def test_all_nan_have_one_digest() -> None:
    """Which payload comes out is the hardware's choice; the class of exact ops says so as well."""
    x = torch.tensor([0x7FC00000, 0x7FFFFFFF, -1], dtype=torch.int32).view(torch.float32)
    assert len({digest(x[i : i + 1]) for i in range(3)}) == 1 != digest(torch.tensor([torch.inf]))


@pytest.mark.parametrize("folder", KEPT_HERE, ids=lambda path: path.name)
def test_the_reference_agrees_with_what_a_gpu_gave(folder: Path) -> None:
    """Exact ops bit for bit; the others in their class, by the GPU's own outputs."""
    found = check(folder)
    assert not found.findings, "\n".join(map(str, found.findings))
    compared = found.equal + found.within
    assert compared > 1000 and compared >= 9 * sum(found.passed_over.values()), found.passed_over


@pytest.mark.parametrize("folder", KEPT_HERE, ids=lambda path: path.name)
def test_faults_in_what_a_gpu_gave_are_seen(folder: Path, tmp_path: Path) -> None:
    """One wrong byte of an exact op, and one element of attention off by a tenth."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    facts, kept = recording.load(copy)
    exact, _ = first(facts, "quant_fp8")
    number = next(
        i for i, c in enumerate(facts["calls"]) if (c["op"], c["sample"]) == ("sparse_attention", "draft blocks")
    )
    spoilt = kept[f"{number}/o"].clone()
    place = int(spoilt.float().nan_to_num().abs().argmax())
    spoilt.view(-1)[place] *= 1.1
    save_file({**kept, f"{number}/o": spoilt}, copy / OUTPUTS)
    for call in (exact, number):
        edit(copy, lambda facts, call=call: facts["calls"][call]["outputs"][0].update(digest="0" * 64))
    found = check(copy, ["quant_fp8", "sparse_attention"]).findings
    assert {f.message.split(",")[0] for f in found} == {"quant_fp8", "sparse_attention"}
