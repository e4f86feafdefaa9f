"""The cache of binaries: named by content, whole or absent, and made anew where it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

import cuda_children
import cuda_resources

pytest.importorskip("triton")

CASES = cuda_children.SUPPORT / "cuda_jit_cases.py"


def test_a_damaged_entry_is_made_anew_with_a_warning(tmp_path: Path) -> None:
    said = cuda_children.run(CASES, "damaged", cache=tmp_path)
    name, entries = said.pop("entry")
    assert entries == [name]
    assert set(said) == {"flipped", "cut", "edited", "empty", "another shape", "lost"}
    for compilations, (message,) in said.values():
        assert compilations == 1
        assert name in message and "damaged" in message


def test_an_entry_is_named_by_what_the_kernel_is_made_of(tmp_path: Path) -> None:
    text = CASES.read_text()
    changes = {
        "moved": ("SCALE:", "# other lines\n\n\nSCALE:"),
        "constant": ("tl.constexpr(2.0)", "tl.constexpr(3.0)"),
        "helper": ("    return x * SCALE\n", "    return SCALE * x\n"),
        "kernel": ("    y = double(", "    y = 1 * double("),
    }
    paths = [CASES]
    for name, (old, new) in changes.items():
        assert text.count(old) == 1
        paths.append(tmp_path / name / "cases.py")
        paths[-1].parent.mkdir()
        paths[-1].write_text(text.replace(old, new))
    files, changed = cuda_children.run(CASES, "keys", *map(str, paths), cache=tmp_path / "cache")
    assert files[0] == files[1], "lines and places take no part"
    assert len(set(files[1:])) == 4
    assert len({files[0], *changed}) == 7, "types, constants (True is not 1), options and the chip do"


@pytest.mark.parametrize("triton", [None, *cuda_resources.OTHER])
def test_a_name_does_not_depend_on_what_was_looked_at_before(triton: str | None, tmp_path: Path) -> None:
    """Triton 3.6 merges a helper's constants only if it met the helper before."""
    first = cuda_resources.OTHER.get(triton or "")
    if first is not None and not (first / "triton").is_dir():
        pytest.skip(f"Triton {triton} is not in {first}: .ci/triton36.sh installs it")
    one, other = cuda_children.run(CASES, "order", cache=tmp_path, first=first)
    assert one == other


def test_a_cache_that_cannot_be_written_is_warned_of(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    found = cuda_children.run(CASES, "warm", cache=blocked)
    assert found["compilations"] == 1 and found["loaded"] == 1
    (message,) = found["warnings"]
    assert "set DEEPINFER_JIT_CACHE_DIR" in message
