"""Recordings: what they hold, what differs on another machine, damage, and the one of a GPU that is kept here."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deepinfer.conformance import recording
from deepinfer.conformance.recording import check, digest, record
from deepinfer.conformance.recording_format import FACTS, read
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REFERENCE, REGISTRY
from deepinfer.ops.spec import SPECS
from recordings import edit, first

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


def test_the_machine_that_made_it_agrees_in_every_bit(made: Path) -> None:
    facts, kept = read(made)
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
    number, _ = first(read(copy)[0], "rms_norm")
    name = f"{number}/y"
    edit(
        copy,
        lambda facts: facts["calls"][number]["outputs"][0].update(digest="0" * 64),
        lambda kept: {**kept, name: (kept[name].float() * factor).bfloat16()},
    )
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

    gone = f"{first(read(copy)[0], 'rms_norm')[0]}/y"
    edit(copy, change, lambda kept: {name: value for name, value in kept.items() if name != gone})
    assert check(copy).passed_over == {"other arguments": 3, "other version": 1, "not kept": 1}


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
    facts, kept = read(copy)
    exact, _ = first(facts, "quant_fp8")
    number = next(
        i for i, c in enumerate(facts["calls"]) if (c["op"], c["sample"]) == ("sparse_attention", "draft blocks")
    )
    spoilt = kept[f"{number}/o"].clone()
    place = int(spoilt.float().nan_to_num().abs().argmax())
    spoilt.view(-1)[place] *= 1.1

    def change(facts: dict[str, Any]) -> None:
        for call in (exact, number):
            facts["calls"][call]["outputs"][0].update(digest="0" * 64)

    edit(copy, change, lambda kept: {**kept, f"{number}/o": spoilt})
    found = check(copy, ["quant_fp8", "sparse_attention"]).findings
    assert {f.message.split(",")[0] for f in found} == {"quant_fp8", "sparse_attention"}


def test_recordings_are_small_and_say_where_they_come_from() -> None:
    for folder in KEPT_HERE:
        assert sum(path.stat().st_size for path in folder.iterdir()) <= 10 << 20
        head = read(folder)[0]
        assert all(head[name] for name in ("backend", "device", "arch", "about", "commit", "torch", "date"))


def test_what_is_unspecified_is_kept_as_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.full((2, 3), 7.0, dtype=torch.bfloat16)
    kept = recording._specified(x.t(), torch.tensor([[True], [False], [True]]))
    assert kept.tolist() == [[7, 7], [0, 0], [7, 7]] and kept.is_contiguous()


def test_the_commit_is_that_of_the_tree_that_the_code_lies_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = {"rev-parse --show-toplevel": str(Path(recording.__file__).resolve().parents[1]), "status": " M x"}

    def git(words: list[Any], **_: Any) -> SimpleNamespace:
        asked = " ".join(map(str, words[3:]))
        return SimpleNamespace(stdout=said.get(asked, said["status"] if "status" in asked else "abc"))

    monkeypatch.setattr(recording.subprocess, "run", git)
    assert recording.here() == "abc+"
    said["status"] = ""
    assert recording.here() == "abc"
    said["rev-parse --show-toplevel"] = str(tmp_path)
    assert recording.here() == ""
