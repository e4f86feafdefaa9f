"""Damaged and foreign recordings: one clear error, whatever happened to the files."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from deepinfer.conformance.recording_format import FACTS, FORMAT, OUTPUTS, RecordingError, digest_of, read, write

HEAD = {
    **dict.fromkeys(("deepinfer", "backend", "device", "arch", "level", "about", "commit", "torch", "triton"), "x"),
    **dict.fromkeys(("python", "platform", "date"), "y"),
    "contract": 0,
    "seed": 0,
}


def call(op: str, *outs: tuple[str, torch.Tensor, bool]) -> dict[str, Any]:
    forms = [
        {"name": n, "dtype": str(t.dtype)[6:], "shape": list(t.shape), "digest": "a" * 64, "kept": k}
        for n, t, k in outs
    ]
    return {"op": op, "version": 1, "sample": "s", "kernel": "k", "arguments": "b" * 64, "outputs": forms}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A recording of two calls."""
    x, y = torch.arange(6.0).view(2, 3), torch.ones(4, dtype=torch.bfloat16)
    calls = [call("first", ("x", x, True), ("y", y, True)), call("second", ("x", x, False))]
    write(tmp_path / "whole", HEAD, calls, {"0/x": x, "0/y": y})
    return tmp_path / "whole"


def test_what_is_written_is_read(whole: Path) -> None:
    facts, kept = read(whole)
    assert {name: facts[name] for name in HEAD} == HEAD and facts["format"] == FORMAT
    assert [each["op"] for each in facts["calls"]] == ["first", "second"]
    assert kept["0/x"].tolist() == [[0, 1, 2], [3, 4, 5]] and kept["0/y"].dtype == torch.bfloat16


def signed(folder: Path, change: Any) -> None:
    """Change the facts and give them the digest that fits: what another program could write."""
    facts = json.loads((folder / FACTS).read_text())
    change(facts)
    facts["digest"] = digest_of(facts)
    (folder / FACTS).write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / OUTPUTS).unlink(), "outputs.safetensors is missing"),
        (lambda f: (f / FACTS).unlink(), "recording.json is missing"),
        (lambda f: shutil.rmtree(f), "is no whole recording: recording.json is missing"),
        (lambda f: (f / OUTPUTS).write_bytes((f / OUTPUTS).read_bytes()[:-5]), "were recorded"),
        (lambda f: save_file({}, f / OUTPUTS), "were recorded"),
        (lambda f: (f / FACTS).write_text("{"), "no JSON"),
        (lambda f: (f / FACTS).write_bytes(b"\xff\xfe\x00"), "no JSON"),
        (lambda f: (f / FACTS).write_text("[" * 100_000), "no JSON"),
        (lambda f: (f / FACTS).write_text("[]"), "not a recording's"),
        (lambda f: (f / FACTS).write_text('{"format": "3", "calls": []}'), "not a recording's"),
        (lambda f: (f / FACTS).write_text('{"format": 3, "calls": []}'), "of another kind"),
        (lambda f: signed(f, lambda facts: facts.update(format=2)), f"format 2; this version reads {FORMAT}"),
        (lambda f: signed(f, lambda facts: facts.update(device=None)), "device must be a text"),
        (lambda f: signed(f, lambda facts: facts.update(calls={})), "calls must be a list"),
        (lambda f: signed(f, lambda facts: facts["calls"].append(facts["calls"][0])), "first, s is there twice"),
        (lambda f: signed(f, lambda facts: facts["calls"][0].update(version=True)), r"calls\[0\].version must be"),
        (lambda f: signed(f, lambda facts: facts["calls"][1]["outputs"][0].update(shape=[-1])), "x.shape must be"),
        (lambda f: signed(f, lambda facts: facts["calls"][1]["outputs"][0].update(dtype="load")), "dtype of torch"),
        (lambda f: signed(f, lambda facts: facts["calls"][1]["outputs"][0].update(kept=True)), "1/x is missing"),
        (lambda f: signed(f, lambda facts: facts["calls"][0]["outputs"][0].update(kept=False)), "0/x is of no call"),
        (lambda f: signed(f, lambda facts: facts["calls"][0]["outputs"][0].update(shape=[6])), "recorded as float32"),
        (lambda f: signed(f, lambda facts: facts["calls"][0]["outputs"][1].update(name="x")), "distinct names"),
    ],
)
def test_what_is_no_whole_recording_is_refused(whole: Path, damage: Any, said: str) -> None:
    damage(whole)
    with pytest.raises(RecordingError, match=said):
        read(whole)


@pytest.mark.parametrize("name", [FACTS, OUTPUTS])
def test_no_damage_to_a_byte_goes_unseen(whole: Path, name: str) -> None:
    """Bytes changed, cut out, doubled, the end cut off, at drawn places: refused, or nothing changed."""
    rng = random.Random(7)
    raw, before = (whole / name).read_bytes(), read(whole)
    for number in range(120):
        at, length = rng.randrange(len(raw)), rng.choice((1, 1, 1, 7, 64))
        part = raw[at : at + length]
        new = (bytes(b ^ rng.randrange(1, 256) for b in part), b"", part + part, rng.randbytes(length))[number % 4]
        damaged = raw[:at] if number % 10 == 9 else raw[:at] + new + raw[at + length :]
        (whole / name).write_bytes(damaged)
        try:
            facts, kept = read(whole)
        except RecordingError as error:
            assert str(whole) in str(error)
        else:
            assert name == FACTS and facts == before[0] and kept.keys() == before[1].keys()  # white space


OTHERS = (None, -1, 1 << 60, "x", [], {}, [None], [[]], 0.5, True, "Tensor", "int8")


@pytest.mark.parametrize("place", ["header", "call", "output"])
def test_values_of_other_types_are_refused_or_read(whole: Path, place: str) -> None:
    """Under a digest that fits: nothing but the one error, and what is let through is what is written."""
    text = (whole / FACTS).read_text()
    taken = 0

    def within(facts: Any) -> Any:
        return {"header": facts, "call": facts["calls"][1], "output": facts["calls"][0]["outputs"][0]}[place]

    for key in sorted(within(json.loads(text))):
        for value in OTHERS:
            facts = json.loads(text)
            within(facts)[key] = value
            facts.update({} if key == "digest" and place == "header" else {"digest": digest_of(facts)})
            (whole / FACTS).write_text(json.dumps(facts))
            try:
                assert within(read(whole)[0])[key] == value, key
                taken += 1
            except RecordingError as error:
                assert str(whole) in str(error)
    assert taken < 40
