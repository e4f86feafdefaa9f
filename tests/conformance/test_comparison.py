"""Two recordings held against each other: what agrees, what differs most, who is nearer, what cannot be compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from deepinfer.cli.conformance_tables import comparison_text
from deepinfer.cli.main import main
from deepinfer.conformance.agreement import FORMAT, Agreement, Comparison
from deepinfer.conformance.comparison import compare_recordings, distance
from deepinfer.conformance.oracle.expected import FLOATS
from deepinfer.conformance.recording import chosen, record
from deepinfer.conformance.recording_format import RecordingError, read
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REFERENCE, REGISTRY
from deepinfer.ops.spec import SPECS
from recordings import edit, first

OPS = ("quant_fp8", "rms_norm", "window_pack")
"""One each that is exact, that rounds, and that decides."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording") / "a"
    backend = CATALOG.load(REFERENCE)
    with REGISTRY.using(REFERENCE):
        record(backend, backend.devices()[0], [SPECS[op] for op in OPS], folder, exact=True)
    return folder


@pytest.fixture
def other(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "b"))


def of(found: Comparison, op: str) -> Agreement:
    return next(each for each in found.ops if each.op == op)


def change(folder: Path, op: str, output: int, how: Any) -> str:
    """Change one kept output of the first call of an op; the call's sample."""
    number, call = first(read(folder)[0], op)
    out = call["outputs"][output]["name"]

    def kept(values: dict[str, Tensor]) -> dict[str, Tensor]:
        value = values[f"{number}/{out}"].clone()
        how(value.view(-1))
        return {**values, f"{number}/{out}": value}

    edit(folder, lambda facts: facts["calls"][number]["outputs"][output].update(digest="1" * 64), kept)
    return str(call["sample"])


def up(steps: int) -> Any:
    """Move an element of bf16 by some steps of its bits."""

    def how(value: Tensor) -> None:
        place = int(value.float().nan_to_num().abs().argmax())
        value.view(torch.int16)[place] += steps

    return how


def test_a_recording_agrees_with_itself(made: Path) -> None:
    found = compare_recordings(made, made, oracle=True)
    assert not found.findings and found.counts()["within"] == found.counts()["passed_over"] == 0
    assert found.counts()["equal"] == sum(len(call["outputs"]) for call in read(made)[0]["calls"])
    norm = of(found, "rms_norm")
    assert norm.verdict == "equal" and norm.worst is None and norm.nearer == {"a": 0, "b": 0, "both": norm.calls}
    assert norm.rms("a") == norm.rms("b") and 0 < norm.rms("a") < norm.share["a"] <= 1


def over_the_oracle(made: Path) -> Any:
    """Move the element of `rms_norm` that is furthest from the oracle to the other of the numbers it lies between."""
    number, call = first(read(made)[0], "rms_norm")
    args = next(sample.args for sample in chosen(SPECS["rms_norm"]) if sample.label == call["sample"])
    want, got = FLOATS["rms_norm"](*args)[0].want.view(-1), read(made)[1][f"{number}/y"].view(-1).double()
    place = int(((want - got) / got).abs().nan_to_num(0).argmax())

    def how(value: Tensor) -> None:
        value.view(torch.int16)[place] += 1 if abs(float(want[place])) > abs(float(got[place])) else -1

    return how


def test_a_step_of_a_rounded_op_is_within_and_further_off(made: Path, other: Path) -> None:
    sample = change(other, "rms_norm", 0, over_the_oracle(made))
    found = of(compare_recordings(made, other, ["rms_*"]), "rms_norm")
    assert (found.verdict, found.within, found.outside) == ("within", 1, 0)
    assert found.worst is not None and found.worst.apart == 1 and found.worst.place.startswith(f"{sample}: y[")
    assert float(found.worst.b) / float(found.worst.a) == pytest.approx(1, rel=2**-6)
    found = of(compare_recordings(made, other, ["rms_norm"], oracle=True), "rms_norm")
    assert found.nearer["a"] == 1 and found.nearer["b"] == 0 and found.rms("a") < found.rms("b")
    assert found.nearer["both"] == found.calls - 1


def test_a_value_beyond_its_limit_is_a_finding_that_says_whose(made: Path, other: Path) -> None:
    sample = change(other, "rms_norm", 0, up(9))
    (finding,) = compare_recordings(other, made).findings
    assert finding.check == "limit" and finding.message.startswith(f"A: rms_norm, {sample}: y[")
    (finding,) = compare_recordings(made, other).findings
    assert finding.message.startswith("B: ")


def test_where_both_are_wrong_alike_only_an_oracle_sees_it(made: Path, other: Path) -> None:
    change(other, "rms_norm", 0, up(9))
    assert not compare_recordings(other, other).findings
    assert {f.message[:2] for f in compare_recordings(other, other, oracle=True).findings} == {"A:", "B:"}


def test_codes_of_a_decided_op_are_held_against_its_class(made: Path, other: Path) -> None:
    change(other, "window_pack", 0, lambda value: value.__setitem__(3, value[3] ^ 0x40))
    found = of(compare_recordings(made, other), "window_pack")
    assert found.verdict == "outside" and found.findings[0].check in ("decision", "nonfinite")
    assert found.worst is not None and found.worst.apart == 64 and found.worst.place.endswith(f"[{0}, 3]")


def test_every_bit_of_an_exact_op_counts(made: Path, other: Path) -> None:
    sample = change(other, "quant_fp8", 1, lambda value: value.__setitem__(0, value[0] + 1))
    found = compare_recordings(made, other)
    (finding,) = found.findings
    assert str(finding) == f"bits: quant_fp8, {sample}: scale of A and of B differ"
    worst = of(found, "quant_fp8").worst
    assert worst is not None and worst.apart == 1 and int(worst.b) == int(worst.a) + 1
    (finding,) = compare_recordings(made, other, oracle=True).findings
    assert finding.message.endswith("; A has the reference's")
    (finding, *more) = compare_recordings(other, other, oracle=True).findings
    assert finding.message.endswith("of A and B agree, and differ from the reference's") and not more


def test_what_cannot_be_compared_is_counted(made: Path, other: Path) -> None:
    def facts(facts: dict[str, Any]) -> None:
        first(facts, "quant_fp8")[1]["arguments"] = "0" * 64
        first(facts, "window_pack")[1]["version"] = 99
        call = first(facts, "rms_norm")[1]
        call["sample"] = "gone"

    edit(other, facts)
    found = compare_recordings(made, other, oracle=True)
    assert not found.findings
    assert of(found, "quant_fp8").passed_over == {"other arguments": 2}
    assert of(found, "window_pack").passed_over == {"another version of the op": 1}
    assert of(found, "rms_norm").passed_over == {"only in A": 1, "only in B": 1}


def test_outputs_that_were_not_kept_are_counted_where_they_differ(made: Path, other: Path) -> None:
    number, call = first(read(other)[0], "rms_norm")
    edit(
        other,
        lambda facts: facts["calls"][number]["outputs"][0].update(kept=False, digest="0" * 64),
        lambda kept: {name: value for name, value in kept.items() if name != f"{number}/y"},
    )
    assert of(compare_recordings(made, other), "rms_norm").passed_over == {"not kept": 1}


def test_other_outputs_are_a_finding(made: Path, other: Path) -> None:
    number, call = first(read(other)[0], "quant_fp8")
    name = call["outputs"][0]["name"]

    def renamed(kept: dict[str, Tensor]) -> dict[str, Tensor]:
        return {f"{number}/p" if key == f"{number}/{name}" else key: v for key, v in kept.items()}

    edit(other, lambda facts: facts["calls"][number]["outputs"][0].update(name="p"), renamed)
    (finding,) = compare_recordings(made, other).findings
    assert finding.check == "outputs" and f"A has {name} " in finding.message and "B has p " in finding.message


def test_nothing_in_common_is_an_error(made: Path) -> None:
    with pytest.raises(RecordingError, match="have no call in common of ops topk_select"):
        compare_recordings(made, made, ["topk_select"])


def test_calls_of_which_nothing_can_be_compared_are_an_error_and_no_agreement(made: Path, other: Path) -> None:
    def others(facts: dict[str, Any]) -> None:
        for call in facts["calls"]:
            call["arguments"] = "0" * 64

    edit(other, others)
    outputs = sum(len(call["outputs"]) for call in read(made)[0]["calls"])
    for oracle in (False, True):
        with pytest.raises(RecordingError, match=rf"can be compared: other arguments \({outputs} outputs\)$"):
            compare_recordings(made, other, oracle=oracle)
    with pytest.raises(RecordingError, match=r" of ops rms_norm can be compared: "):
        compare_recordings(made, other, ["rms_norm"])
    done = CliRunner().invoke(main, ["conformance", "compare", str(made), str(other)])
    assert done.exit_code == 2 and "can be compared: other arguments" in done.output
    edit(other, lambda facts: facts["calls"][0].update(arguments=read(made)[0]["calls"][0]["arguments"]))
    assert compare_recordings(made, other).counts()["equal"] == len(read(made)[0]["calls"][0]["outputs"])


def test_equal_outputs_without_an_oracle_are_compared_all_the_same(made: Path, other: Path) -> None:
    """Arguments that this version does not make, and outputs that were not kept: their bits are equal."""
    number, call = first(read(other)[0], "rms_norm")

    def facts(facts: dict[str, Any]) -> None:
        for op in ("quant_fp8", "window_pack"):
            first(facts, op)[1]["arguments"] = "0" * 64
        facts["calls"][number]["outputs"][0].update(kept=False, digest="0" * 64)

    edit(other, facts, lambda kept: {name: value for name, value in kept.items() if name != f"{number}/y"})
    found = compare_recordings(other, other, oracle=True)
    counts = found.counts()
    assert counts["equal"] == sum(len(call["outputs"]) for call in read(other)[0]["calls"])
    assert counts["passed_over"] == counts["outside"] == counts["within"] == 0
    assert of(found, "quant_fp8").unjudged == {"this version makes other arguments": 2}
    assert of(found, "window_pack").unjudged == {"this version makes other arguments": 1}
    assert of(found, "rms_norm").unjudged == {"not kept": 1} and counts["unjudged"] == 4
    assert "compared without an oracle, 3 outputs: this version makes other arguments" in comparison_text(found)
    assert not any(each.unjudged for each in compare_recordings(other, other).ops)


def test_the_lines_of_the_file_are_numbered_and_whole(made: Path, other: Path, tmp_path: Path) -> None:
    change(other, "rms_norm", 0, lambda value: value.fill_(torch.nan))
    path = compare_recordings(made, other).write(tmp_path / "out")
    lines = [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in path.read_text().splitlines()]
    assert [line["record"] for line in lines] == ["header", "op", "op", "op", "verdict"]
    assert lines[0]["format"] == FORMAT and lines[0]["a"]["backend"] == REFERENCE and lines[-1]["agree"] is False
    norm = next(line for line in lines if line.get("op") == "rms_norm")
    assert norm["worst"]["apart"] == "inf" and norm["worst"]["b"] == "nan" and norm["findings"]


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        (1.0, 1.0 + 2**-7, 1.0),
        (-0.0, 0.0, 0.0),
        (1.0, torch.nan, torch.inf),
        (torch.inf, torch.inf, 0.0),
        (torch.inf, -torch.inf, torch.inf),
        (torch.nan, torch.nan, 0.0),
        (1e38, -1e38, 2 * 1e38 / 2**119),
    ],
)
def test_distances_of_floats_are_units_in_the_last_place(a: float, b: float, apart: float) -> None:
    x, y = (torch.tensor([v], dtype=torch.bfloat16) for v in (a, b))
    assert distance(x, y).item() == pytest.approx(apart, rel=0.01)


def test_distances_of_integers_do_not_wrap() -> None:
    low, high = torch.tensor([-(2**31)], dtype=torch.int32), torch.tensor([2**31 - 1], dtype=torch.int32)
    assert distance(low, high).item() == 2**32 - 1
    assert distance(torch.tensor([0], dtype=torch.uint8), torch.tensor([255], dtype=torch.uint8)).item() == 255
