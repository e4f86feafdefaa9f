"""Launch choices: equal bits for every candidate, tables by shape and chip, and the script that makes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from deepinfer.backends.cuda import launch, tune, tuning
from deepinfer.backends.cuda.jit import INTERPRETED
from deepinfer.backends.cuda.register import ARCHS
from deepinfer.backends.cuda.tuning import Launch, Trial, Tunable
from deepinfer.hal.errors import BackendError

if not INTERPRETED and not torch.cuda.is_available():
    pytest.skip("needs the interpreter or a GPU", allow_module_level=True)
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
CPU = torch.device("cpu")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """An empty place for tables."""
    monkeypatch.setattr(tuning, "FOLDER", tmp_path)
    tuning.table.cache_clear()
    yield tmp_path
    tuning.table.cache_clear()


def fake() -> Trial:
    tunable = Tunable(
        "fake", ("K", "H"), lambda shape: {"warps": 4}, lambda shape: [{"warps": w} for w in (1, 2, 4, 8)]
    )

    def run(inputs: Any) -> list[torch.Tensor]:
        return [inputs * 2 if tunable.choose(CPU, 64, 1)["warps"] < 8 else inputs * 2 + 1]

    return Trial(
        tunable,
        shapes=[(64, 1), (128, 2)],
        small=((64, 1), 3),
        inputs=lambda shape, rows, device: torch.arange(rows * shape[0], dtype=torch.float32, device=device),
        run=run,
        rows=(1, 3),
    )


def put(folder: Path, arch: str, shapes: dict[str, Launch]) -> None:
    (folder / f"tuning_{arch}.json").write_text(json.dumps({"launches": {"fake": shapes}}))


# ---- the kernels ------------------------------------------------------------------------------------------------


def blocks(candidates: list[Launch]) -> list[Launch]:
    """Candidates that differ in more than warps: the interpreter has none; the script tries all on the chip."""
    alike = [{**c, "num_warps": 4} for c in candidates]
    return [c for i, c in enumerate(alike) if c not in alike[:i]]


@pytest.mark.parametrize("name", sorted(tune.trials()))
def test_every_candidate_gives_the_same_bits(name: str) -> None:
    trial = tune.trials()[name]
    shape, rows = trial.small
    candidates = trial.tunable.candidates(shape)
    assert trial.tunable.default(shape) in candidates and len(blocks(candidates)) > 1
    assert tune.equal_bits(trial, shape, [rows], DEVICE, blocks(candidates)) == blocks(candidates)


@pytest.mark.parametrize("name", sorted(tune.trials()))
def test_the_tables_of_the_package_are_of_these_kernels(name: str) -> None:
    trial = tune.trials()[name]
    for arch in ARCHS:
        for shape in trial.shapes:
            assert trial.tunable.default(shape) in trial.tunable.candidates(shape)
            assert trial.tunable.on_chip(arch, *shape).keys() == trial.tunable.default(shape).keys()
        wanted = {trial.tunable.key(shape) for shape in trial.shapes}
        assert set(tuning.table(arch).get(name, wanted)) == wanted
        assert set(tuning.table(arch)) <= set(tune.trials())


def test_sm100_has_no_table_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert tune.main(["--list"]) == 0
    said = capsys.readouterr().out
    assert "sm_100: nothing was measured on this chip; the defaults hold" in said
    assert "sm_90: nothing" not in said
    assert all(f"{name} " in said for name in tune.trials())


# ---- the script -------------------------------------------------------------------------------------------------


def test_a_candidate_with_other_bits_is_refused(folder: Path) -> None:
    trial = fake()
    times = iter([10.0, 8.0, 1.0, 10.0, 8.0, 1.0] * 2)  # of the default, 1 and 2 warps; two row counts, two shapes

    def time(call: Any) -> float:
        call()
        return next(times)

    said = list(tune.tune([trial], "sm_90", CPU, time))
    assert said[:2] == [
        "fake K=64,H=1: warps=2, 0.10 of the default's time",
        "  warps=8 gives other bits and is refused",
    ]
    made = json.loads((folder / "tuning_sm_90.json").read_text())
    assert made["launches"] == {"fake": {"K=64,H=1": {"warps": 2}, "K=128,H=2": {"warps": 2}}}
    assert trial.tunable.on_chip("sm_90", 64, 1) == {"warps": 2}, "the new table holds at once"


def test_what_another_run_measured_stays(folder: Path) -> None:
    (folder / "tuning_sm_90.json").write_text(json.dumps({"launches": {"other": {"D=1": {"warps": 1}}}}))
    tuning.table.cache_clear()
    list(tune.tune([fake()], "sm_90", CPU, lambda call: 1.0))
    assert set(tuning.table("sm_90")) == {"fake", "other"}
    before = (folder / "tuning_sm_90.json").read_bytes()
    list(tune.tune([fake()], "sm_90", CPU, lambda call: 1.0, write=False))
    assert (folder / "tuning_sm_90.json").read_bytes() == before


def test_a_candidate_that_writes_nothing_is_refused() -> None:
    """The outputs are the same tensors each time, and hold the default's results."""
    trial = fake()

    def run(inputs: Any) -> list[torch.Tensor]:
        if trial.tunable.choose(CPU, 64, 1)["warps"] != 2:
            inputs[1].copy_(inputs[0])
        return [inputs[1]]

    lazy = replace(trial, run=run, inputs=lambda shape, rows, device: (torch.ones(4), torch.zeros(4)))
    candidates = trial.tunable.candidates((64, 1))
    assert tune.equal_bits(lazy, (64, 1), [1], CPU, candidates) == [{"warps": w} for w in (1, 4, 8)]


@pytest.mark.parametrize(
    ("one", "three"),
    [
        ([10.0, 9.8, 9.9], [10.0, 9.8, 9.9]),  # too small a gain
        ([10.0, 5.0, 10.0], [10.0, 10.5, 10.0]),  # slower for one of the row counts
    ],
)
def test_what_is_no_clear_gain_leaves_the_default(folder: Path, one: list[float], three: list[float]) -> None:
    times = iter([*one, *three] * 2)
    said = list(tune.tune([fake()], "sm_90", CPU, lambda call: next(times)))
    assert said[0] == "fake K=64,H=1: warps=4, the default"
    assert tuning.table("sm_90")["fake"]["K=64,H=1"] == {"warps": 4}, "measured all the same"


# ---- the tables -------------------------------------------------------------------------------------------------


def test_tables_are_by_shape_and_chip(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, "sm_90", {"K=64,H=1": {"warps": 2}})
    tunable = fake().tunable
    assert tunable.on_chip("sm_90", 64, 1) == {"warps": 2}
    assert tunable.on_chip("sm_100", 64, 1) == {"warps": 4}
    assert tunable.on_chip("sm_90", 64, 2) == {"warps": 4}
    assert tunable.launches(64, 1) == [(("sm_90",), {"warps": 2}), (("sm_100",), {"warps": 4})]
    assert tunable.launches(8, 1) == [(ARCHS, {"warps": 4})]
    monkeypatch.setattr(launch, "arch", lambda device: {0: 90, 1: 100}[device])
    for _ in range(2):
        assert tunable.choose(torch.device("cuda", 0), 64, 1) == {"warps": 2}
        assert tunable.choose(torch.device("cuda", 1), 64, 1) == {"warps": 4}
        assert tunable.choose(CPU, 64, 1) == {"warps": 4}
        with tunable.pinned({"warps": 8}):
            assert tunable.choose(torch.device("cuda", 0), 64, 1) == {"warps": 8}


def test_a_label_names_the_chip_where_chips_differ() -> None:
    assert [tuning.label(text, archs) for text in ("", "a") for archs in (ARCHS, ("sm_90",))] == [
        "",
        "sm_90",
        "a",
        "a, sm_90",
    ]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"launches": 3}', '{"launches": {"fake": 3}}'])
def test_a_broken_table_is_an_error(folder: Path, text: str) -> None:
    (folder / "tuning_sm_90.json").write_text(text)
    with pytest.raises(BackendError, match="tuning_sm_90.json cannot be read"):
        fake().tunable.on_chip("sm_90", 64, 1)


def test_a_launch_that_is_no_candidate_is_an_error(folder: Path) -> None:
    put(folder, "sm_90", {"K=64,H=1": {"warps": 3}})
    with pytest.raises(BackendError, match="no candidate; python -m deepinfer.backends.cuda.tune --only fake"):
        fake().tunable.on_chip("sm_90", 64, 1)


def test_the_command_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert tune.main(["--only", "nothing"]) == 2
    assert "only: got 'nothing'; allowed: compress_pool, " in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert tune.main(["--only", "quant_fp8"]) == 2
        assert "tuning without a GPU is not supported" in capsys.readouterr().err
