from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deepinfer.cli.main import main
from deepinfer.model.inspect import inspect
from released import GOLDEN_CHECKPOINT


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["checkpoint", "inspect", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_golden_checkpoint() -> None:
    result = inspect(GOLDEN_CHECKPOINT)
    assert (result.tensors, result.stored, result.parameters, result.nbytes) == (962, 962, 4_273_128, 4_643_442)
    assert result.findings == () and result.ignored == ()
    kinds = {k.kind: k for k in result.kinds}
    assert kinds["expert"].dtypes == {"I8": 264, "F8_E8M0": 264}
    assert kinds["engram_table"].parameters == (1618 + 1824) * 32
    packed = sum(s.nbytes for s in _inventory() if s.dtype == "I8")
    assert result.values_checked == result.nbytes - packed


def _inventory() -> list[Any]:
    from deepinfer.model.config import load_config
    from deepinfer.model.names import inventory

    return list(inventory(load_config(GOLDEN_CHECKPOINT)).values())


def test_text_shows_roles_sizes_and_problems(directory: Any) -> None:
    directory.edit_config(lambda values: values.update(novelty=1))
    directory.add("mtp.0.embed.weight", "BF16", [2], bytes(4))
    text = inspect(directory.path, values=False).render()
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["layers.8"] == ["layers.8", "1", "6", "6", "own", "restricted", "-", "consumer", "#1"]
    assert rows["layers.4"] == ["layers.4", "2", "own", "own", "own", "-", "#1", "producer", "-"]
    assert rows["mtp.1"][-2:] == ["draft", "-"]
    assert "DeepseekV41ForCausalLM" in text and "962 tensors, 4,273,128 parameters" in text
    assert "unknown configuration keys: novelty" in text
    assert "passed over: mtp.0.embed.weight" in text
    assert "headers only" in text and "problems: none" in text


def test_progress_ends_at_the_total(dummy_original: Path) -> None:
    seen: list[tuple[int, int]] = []
    result = inspect(dummy_original, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (result.values_checked, result.values_checked)
    assert all(a[0] < b[0] for a, b in zip(seen, seen[1:], strict=False))


def test_cli_describes_a_sound_checkpoint(dummy_original: Path) -> None:
    code, out, err = run(str(dummy_original))
    assert (code, err) == (0, "")
    assert "problems: none" in out
    code, out, _ = run("--json", "--headers-only", str(dummy_original))
    values = json.loads(out)
    assert (code, values["tensors"], values["values_checked_bytes"], values["findings"]) == (0, 962, 0, [])
    assert values["layers"][8]["candidate"] == "restricted"


def spoil_scale(directory: Any) -> None:
    name = "layers.2.ffn.experts.1.w2.scale"
    shard = directory.shard_of(name)
    shard.data[shard.bytes_of(name).start + 9] = 255
    shard.save()


def spoil_header_field(field: str, value: Any) -> Callable[[Any], None]:
    def change(directory: Any) -> None:
        shard = directory.shard_of("layers.5.attn.wkv.weight")
        shard.header["layers.5.attn.wkv.weight"][field] = value
        shard.save()

    return change


def corrupt(directory: Any) -> None:
    path = directory.shard_of("norm.weight").path
    path.write_bytes(path.read_bytes()[:8] + b"\xff" * 100)


def truncate(directory: Any) -> None:
    path = directory.shard_of("norm.weight").path
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 5)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: d.drop("layers.3.attn.attn_sink"), "missing: 1\n    layers.3.attn.attn_sink: F32 [4] in no shard"),
        (lambda d: d.drop("layers.0.attn.wkv.scale"), "missing scale: 1\n    layers.0.attn.wkv.scale: F8_E8M0 [2, 4]"),
        (spoil_header_field("shape", [128, 64]), "shape: 1\n    layers.5.attn.wkv.weight: [128, 64] in model-"),
        (spoil_header_field("dtype", "I8"), "dtype: 1\n    layers.5.attn.wkv.weight: I8 in model-"),
        (lambda d: d.edit_config(lambda c: c.update(architectures=["X"])), "config key 'architectures' is ['X']: must"),
        (lambda d: d.edit_config(lambda c: c.update(model_type="x")), "config key 'model_type' is 'x': must be"),
        (lambda d: d.edit_config(lambda c: c["text_config"].update(head_dim=7)), "key 'text_config.head_dim' is 7"),
        (spoil_scale, "values: 1\n    layers.2.ffn.experts.1.w2.scale: element 9 (flat index) is scale byte 255 (NaN)"),
        (corrupt, "unreadable shard: 1\n    model-0000"),
        (truncate, "truncated: 1\n"),
        (lambda d: d.shard_of("norm.weight").path.unlink(), "missing shard: 1\n    model-0000"),
        (lambda d: (d.path / "config.json").unlink(), "config.json: no such file"),
    ],
)  # fmt: skip
def test_cli_refuses_each_wrong_checkpoint(directory: Any, spoil: Callable[[Any], None], said: str) -> None:
    """One clear message on stderr, no traceback, exit status 2."""
    spoil(directory)
    code, _, err = run(str(directory.path))
    assert code == 2
    assert said in err and "Traceback" not in err
    assert len(err.splitlines()) <= 4


def test_cli_without_a_directory(tmp_path: Path) -> None:
    code, out, err = run(str(tmp_path / "nothing"))
    assert (code, out) == (2, "") and "not a directory" in err


def test_json_output_carries_the_findings(directory: Any) -> None:
    directory.drop("norm.weight")
    code, out, err = run("--json", str(directory.path))
    assert code == 2 and "norm.weight" in err
    (finding,) = json.loads(out)["findings"]
    assert (finding["problem"], finding["name"]) == ("missing", "norm.weight")
