"""The files of a recording: written, read, and refused where they are damaged or of another make.

`docs/conformance.md` describes them. Two digests say that a recording is whole: `recording.json` holds one of itself
and one of `outputs.safetensors`. So damage is an error that says so, and never a finding about a backend.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ..hal.errors import DeepInferError

FORMAT = 3
FACTS, OUTPUTS = "recording.json", "outputs.safetensors"
KIND = "deepinfer recording"

TEXTS = (
    "deepinfer",
    "backend",
    "device",
    "arch",
    "level",
    "about",
    "commit",
    "torch",
    "triton",
    "python",
    "platform",
    "date",
)
"""What the header says in words; '' where nothing is known."""


class RecordingError(DeepInferError):
    """A folder that is no recording, or one of another format, or damaged."""


def write(folder: Path, head: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], kept: dict[str, Tensor]) -> None:
    """Write a recording.

    Args:
        head: the header. calls: facts of each call. kept: outputs under 'call/output'.
    """
    folder.mkdir(parents=True, exist_ok=True)
    raw = save(kept)
    facts: dict[str, Any] = {"kind": KIND, "format": FORMAT, **head, "outputs": _of_bytes(raw)}
    facts["digest"] = digest_of({**facts, "calls": calls})
    (folder / OUTPUTS).write_bytes(raw)
    lines = ",\n".join(f"  {json.dumps(each)}" for each in calls)
    text = json.dumps(facts, indent=1).removesuffix("\n}")
    (folder / FACTS).write_text(f'{text},\n "calls": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def digest_of(facts: Mapping[str, Any]) -> str:
    """SHA-256 of all that the facts say but this."""
    said = {key: value for key, value in facts.items() if key != "digest"}
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _of_bytes(raw: bytes) -> dict[str, Any]:
    return {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Facts and kept outputs of a recording.

    Raises:
        RecordingError: there is none, it is of another format, or damaged; says which file, and what is wrong.
    """
    facts = _facts(folder / FACTS)
    path = folder / OUTPUTS
    raw = _bytes(path)
    if len(raw) != facts["outputs"]["bytes"]:
        _damaged(path, f"it has {len(raw)} bytes, {facts['outputs']['bytes']} were recorded")
    if _of_bytes(raw) != facts["outputs"]:
        _damaged(path, "its bytes are not those that were recorded")
    try:
        kept = load(raw)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        _damaged(path, f"{type(error).__name__}: {error}")
    wanted = {
        f"{n}/{out['name']}": out for n, each in enumerate(facts["calls"]) for out in each["outputs"] if out["kept"]
    }
    if odd := sorted(wanted.keys() ^ kept.keys()):
        _damaged(path, f"{odd[0]} is {'missing' if odd[0] in wanted else 'of no call'}")
    for name, out in wanted.items():
        there = [str(kept[name].dtype).removeprefix("torch."), list(kept[name].shape)]
        if there != [out["dtype"], out["shape"]]:
            _damaged(path, f"{name} is {there[0]} {there[1]}, recorded as {out['dtype']} {out['shape']}")
    return facts, kept


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise RecordingError(f"{path.parent} is no whole recording: {path.name} is missing")
        return path.read_bytes()
    except OSError as error:
        raise RecordingError(f"{path.parent} is no whole recording: {error}") from error


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(_bytes(path))
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path} is damaged: no JSON: {error}") from error
    if not isinstance(facts, dict) or not isinstance(facts.get("format"), int) or "calls" not in facts:
        raise RecordingError(f"{path} is not a recording's: no object with 'format' and 'calls'")
    if facts["format"] != FORMAT:
        raise RecordingError(f"{path} has format {facts['format']}; this version reads {FORMAT}")
    if facts.get("kind") != KIND:
        raise RecordingError(f"{path} is of another kind: 'kind' must be {KIND!r}")
    _header(path, facts)
    known: set[tuple[str, str]] = set()
    for number, each in enumerate(facts["calls"]):
        _call(path, f"calls[{number}]", each)
        if (name := (each["op"], each["sample"])) in known:
            _damaged(path, f"calls[{number}]: {name[0]}, {name[1]} is there twice")
        known.add(name)
    try:
        whole = digest_of(facts) == facts["digest"]
    except (ValueError, RecursionError, UnicodeEncodeError):
        whole = False
    if not whole:
        _damaged(path, "its content is not what was recorded")
    return facts


def _header(path: Path, facts: dict[str, Any]) -> None:
    for name in TEXTS:
        _want(path, name, isinstance(facts.get(name), str), "a text")
    _want(path, "contract", _is_count(facts.get("contract")), "a number")
    _want(path, "seed", _is_count(facts.get("seed")), "a number")
    _want(path, "digest", _is_digest(facts.get("digest")), "64 hexadecimal digits")
    outputs = facts.get("outputs")
    _want(path, "outputs", isinstance(outputs, dict) and outputs.keys() == {"bytes", "sha256"}, "bytes and sha256")
    _want(path, "outputs.bytes", _is_count(facts["outputs"]["bytes"]), "a number")
    _want(path, "outputs.sha256", _is_digest(facts["outputs"]["sha256"]), "64 hexadecimal digits")
    _want(path, "calls", isinstance(facts["calls"], list), "a list")


def _call(path: Path, where: str, each: Any) -> None:
    _want(path, where, isinstance(each, dict), "an object")
    for name in ("op", "sample", "kernel"):
        _want(path, f"{where}.{name}", isinstance(each.get(name), str), "a text")
    _want(path, f"{where}.version", _is_count(each.get("version")), "a number")
    _want(path, f"{where}.arguments", _is_digest(each.get("arguments")), "64 hexadecimal digits")
    outs = each.get("outputs")
    _want(path, f"{where}.outputs", isinstance(outs, list), "a list")
    for out in outs:
        _want(path, f"{where}.outputs", isinstance(out, dict), "a list of objects")
        place = f"{where}.outputs.{out.get('name')}"
        _want(path, place, isinstance(out.get("name"), str), "an object with a name")
        dtype = getattr(torch, out["dtype"], None) if isinstance(out.get("dtype"), str) else None
        _want(path, f"{place}.dtype", isinstance(dtype, torch.dtype), "a dtype of torch")
        shape = out.get("shape")
        _want(path, f"{place}.shape", isinstance(shape, list) and all(map(_is_count, shape)), "a list of sizes")
        _want(path, f"{place}.digest", _is_digest(out.get("digest")), "64 hexadecimal digits")
        _want(path, f"{place}.kept", isinstance(out.get("kept"), bool), "true or false")
    names = [out["name"] for out in outs]
    _want(path, f"{where}.outputs", len(names) == len(set(names)), "a list of outputs of distinct names")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _want(path: Path, what: str, right: bool, allowed: str) -> None:
    if not right:
        _damaged(path, f"{what} must be {allowed}")


def _damaged(path: Path, why: str) -> NoReturn:
    raise RecordingError(f"{path} is damaged: {why}")
