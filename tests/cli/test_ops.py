"""`deepinfer ops`: what it prints, as text and as JSON, and that the generated page is up to date."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deepinfer.cli.main import main
from deepinfer.hal import env
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.null import NullBackend
from deepinfer.hal.registry import REGISTRY, Kernel
from deepinfer.ops import describe
from deepinfer.ops.spec import SPECS


@pytest.fixture(autouse=True)
def cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DEEPINFER_ACCELERATOR", "cpu")
    env.rearm("DEEPINFER_ACCELERATOR")
    yield
    env.rearm("DEEPINFER_ACCELERATOR")
    REGISTRY.activate("reference")


@pytest.fixture
def partial() -> Iterator[None]:
    """A backend with an own kernel, a wrapper over torch, and a fast kernel, for three ops."""

    class Partial(NullBackend):
        name = "partial"

        def load(self) -> None:
            no = "head width 128 only"
            for op, source, fast in (
                ("rope", "triton", False),
                ("rms_norm", "torch", False),
                ("quant_fp8", "cuda", True),
            ):
                REGISTRY.add(Kernel(op, 0, self.name, print, source=source, fast=fast, priority=3))  # type: ignore[arg-type]
            REGISTRY.add(Kernel("rope", 0, self.name, print, "wide", 9, "cuda", supports=lambda signature: no))

    others = [kernel for kernel in REGISTRY.kernels() if kernel.backend != "reference"]
    for kernel in others:  # what other tests of the process have loaded
        REGISTRY.remove(kernel)
    CATALOG.add(Partial())
    yield
    del CATALOG.entries()["partial"]
    CATALOG._loaded.discard("partial")
    for kernel in REGISTRY.kernels():
        if kernel.backend == "partial":
            REGISTRY.remove(kernel)
    for kernel in others:
        REGISTRY.add(kernel)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["ops", *arguments])


def data(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_list_has_a_line_per_op() -> None:
    lines = run("list").output.splitlines()
    assert lines[0].split() == ["op", "family", "version", "numerics"]
    assert {line.split()[0] for line in lines[1:]} == set(SPECS)
    assert {"name": "rms_norm", "family": "norm", "version": 0, "numerics": "rounded"} in data("list")


@pytest.mark.parametrize("name", sorted(SPECS))
def test_show_says_everything_of_every_op(name: str) -> None:
    spec, found = SPECS[name], data("show", name)
    assert found["semantics"] == spec.semantics and found["dynamic"] == list(spec.dynamic)
    assert [a["name"] for a in found["args"]] == [a.name for a in spec.args]
    assert [o["name"] for o in found["outs"]] == [o.name for o in spec.outs]
    assert found["samples"] and all(s["bytes"] >= 0 and s["flops"] >= 0 for s in found["samples"])
    text = run("show", name).output
    assert spec.semantics.split()[0] in text and all(a.name in text for a in spec.args)


def test_show_describes_prepared_weights_by_their_parts() -> None:
    weight = next(a for a in data("show", "linear_fp8")["args"] if a["kind"] == "prepared weight")
    assert [(p["name"], p["dims"], p["dtypes"]) for p in weight["parts"]] == [
        ("weight", ["N", "K"], ["float8_e4m3fn"]),
        ("scale", ["ceil(N,32)", "K//32"], ["uint8"]),
    ]


def test_the_cost_of_a_sample_follows_its_dims() -> None:
    sample = next(s for s in data("show", "linear_fp8")["samples"] if s["dims"]["T"] > 1)
    assert sample["flops"] == 2 * sample["dims"]["T"] * sample["dims"]["N"] * sample["dims"]["K"]


def test_an_unknown_op_is_one_message_and_exit_status_2() -> None:
    for command in ("show", "explain"):
        result = run(command, "rms_norms")
        assert result.exit_code == 2 and "op: got 'rms_norms'; allowed:" in result.output
        assert "rms_norm" in result.output and "Traceback" not in result.output


def test_status_of_the_reference_covers_the_contract() -> None:
    found = data("status")
    assert found["backend"] == "reference" and found["chosen_by"] == "DEEPINFER_ACCELERATOR"
    assert {row["name"]: row["status"] for row in found["ops"]} == dict.fromkeys(SPECS, "reference")
    assert found["graphs"].startswith("no graphs on cpu") and found["device"]["memory_total"]
    assert f"{len(SPECS)} ops: {len(SPECS)} reference" in run("status").output


def test_status_tells_own_kernels_from_wrappers_and_gaps(partial: None) -> None:
    found = {row["name"]: row for row in data("status", "--backend", "partial")["ops"]}
    assert found["rope"]["status"] == "own"
    assert [k["id"] for k in found["rope"]["kernels"]] == ["partial:wide", "partial"]
    assert found["rms_norm"]["status"] == "fallback", "a wrapper over torch is no kernel of the backend's own"
    assert found["quant_fp8"]["status"] == "missing", "a kernel that breaks batch invariance does not keep the contract"
    assert found["linear_fp8"]["status"] == "missing" and found["linear_fp8"]["kernels"] == []
    text = run("status", "--backend", "partial").output
    assert "partial:wide (cuda, priority 9)" in text and "runs on the reference" in text


def test_status_of_an_unknown_backend_lists_the_known_ones() -> None:
    result = run("status", "--backend", "tpu")
    assert result.exit_code == 2 and "known: " in result.output and "reference" in result.output


def test_explain_says_what_is_chosen_and_why_not_the_others(partial: None) -> None:
    for row in data("explain", "rope", "--backend", "partial"):
        assert row["chosen"] == "partial"
        assert {v["kernel"]: v["reason"] for v in row["verdicts"]} == {
            "partial:wide": "head width 128 only",
            "partial": "chosen",
            "reference": "able, but comes later in order",
        }
    (row, *_) = data("explain", "quant_fp8", "--backend", "partial")
    assert row["chosen"] == "reference" and "DEEPINFER_BATCH_INVARIANT=0" in str(row["verdicts"])
    text = run("explain", "rope", "--backend", "partial").output
    assert "-> partial (own): chosen" in text and "partial:wide (own): head width 128 only" in text


def test_explain_follows_a_pin() -> None:
    with REGISTRY.pin("rope", "nobody"):
        text = run("explain", "rope").output
    assert "the op is pinned to 'nobody'" in text and "nothing can run it" in text


def test_the_page_of_ops_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "ops.md"
    result = run("docs", "--check", str(page))
    assert result.exit_code == 0, result.output


def test_conventions_are_shown_and_on_the_page() -> None:
    text = run("conventions").output
    assert "row_seq -1 is padding" in text.replace("\n", " ") and "docs/numerics.md" in text
    assert "deepinfer ops conventions" in run("show", "rope").output
    page = describe.markdown()
    assert "- **Rows.** A step has T rows" in page and "[Numerics](numerics.md)" in page


def test_a_stale_page_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "ops.md"
    assert run("docs", "--check", str(page)).exit_code == 2
    assert run("docs", str(page)).exit_code == 0
    assert run("docs", "--check", str(page)).exit_code == 0
    page.write_text(page.read_text().replace("rms_norm", "rmsnorm", 1))
    assert run("docs", "--check", str(page)).exit_code == 2


def test_formulas_survive_markdown() -> None:
    assert describe._escape("a * b | `c * d` [x] <y>") == r"a \* b \| `c * d` \[x\] \<y>"
