"""Recordings: what a backend gave on a machine, kept, so that other machines can be held against it.

A recording is a folder. `recording.json` has a header (format, where and with what it was made) and a line of facts for
each call: op, sample, kernel, a digest of the arguments, and of each output its form and a digest. The outputs
themselves lie in `outputs.safetensors` under 'call/output', those of ops that are not exact and of up to `KEPT` bytes;
of the others a digest says all that is worth saying. `recording_format.py` has the files.

Calls are the plain ones of `quick`: arguments are made from a fixed seed, so a recording holds none.
"""

from __future__ import annotations

import datetime
import hashlib
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..hal.backend import Backend
from ..hal.catalog import CATALOG
from ..hal.contract import CONTRACT_VERSION
from ..hal.device import Device
from ..hal.registry import REFERENCE, REGISTRY
from ..ops.numerics import Exact
from ..ops.required import PLAIN, calls
from ..ops.rows import restride
from ..ops.spec import SPECS, OpSpec, Sample, WeightHandle
from .calls import Unsupported, call, kernel_of, samples, to_target
from .case import Finding, Target
from .compare.classes import compare
from .compare.exact import bits
from .recording_format import read, write

KEPT = 32 << 10
"""Bytes of an output that is kept as it is."""
SEED = 0
"""Of the samples that are recorded."""


@dataclass(frozen=True)
class Checked:
    """What came of holding a recording against the reference on this machine.

    Attributes:
        findings: of calls whose outputs lie outside the op's class.
        equal, within: outputs of equal bits, and kept ones that lie in the class.
        passed_over: why outputs could not be compared, and how many: 'other version' of the op, 'other
            arguments', 'no kernel', 'not kept'.
    """

    findings: tuple[Finding, ...]
    equal: int
    within: int
    passed_over: dict[str, int]


def record(
    backend: Backend,
    device: Device,
    ops: Sequence[OpSpec],
    folder: Path,
    report: Callable[[str], None] = lambda op: None,
    *,
    commit: str | None = None,
    exact: bool = False,
) -> dict[str, Any]:
    """Run the calls on an active backend, and write a recording; its facts.

    Args:
        report: called with each op before its calls.
        commit: of the code that runs; None for what git says of this tree.
        exact: keep outputs of exact ops as well, so that a comparison can say which element differs.
    """
    target = Target(backend.name, device.torch)
    made: list[dict[str, Any]] = []
    kept: dict[str, Tensor] = {}
    for spec in ops:
        report(spec.name)
        for sample in chosen(spec):
            try:
                kernel = kernel_of(spec, to_target(spec, sample.args, target), target).id
                outs = results(spec, sample, target)
            except Unsupported:
                continue
            facts = {"op": spec.name, "version": spec.version, "sample": sample.label, "kernel": kernel}
            stated = []
            for name, out, mask in zip(written_by(spec, sample), outs, masks(spec, sample), strict=True):
                keep = (exact or not isinstance(spec.numerics, Exact)) and 0 < out.nbytes <= KEPT
                if keep:
                    kept[f"{len(made)}/{name}"] = _specified(out, mask)
                form = {"name": name, "dtype": str(out.dtype).removeprefix("torch."), "shape": list(out.shape)}
                stated.append({**form, "digest": digest(out, mask), "kept": keep})
            made.append({**facts, "arguments": of_arguments(sample.args), "outputs": stated})
    head = {**header(backend, device), "commit": commit if commit is not None else here()}
    write(folder, head, made, kept)
    return {**head, "calls": made}


def chosen(spec: OpSpec) -> list[Sample]:
    """The samples whose calls are recorded."""
    return [c.sample for c in calls(spec, "quick", list(samples(spec, SEED))) if c.variant == PLAIN]


def masks(spec: OpSpec, sample: Sample) -> list[Tensor | None]:
    """What is defined of each output, then of each argument that is written."""
    defined = spec.defined(*sample.args)
    return [*defined, *[None] * (len(written_by(spec, sample)) - len(defined))]


def written_by(spec: OpSpec, sample: Sample) -> list[str]:
    """Names of a call's outputs, then of the arguments that it writes."""
    given = zip(spec.args, sample.args, strict=True)
    return [out.name for out in spec.outs] + [
        a.name for a, v in given if getattr(a, "mutable", False) and v is not None
    ]


def results(spec: OpSpec, sample: Sample, target: Target) -> list[Tensor]:
    """Outputs of a call, then the arguments it writes, on the CPU."""
    args = to_target(spec, sample.args, target)
    outs = call(spec, args, target)
    written = [v for a, v in zip(spec.args, args, strict=True) if getattr(a, "mutable", False) and v is not None]
    return [t.cpu() if t.is_contiguous() else restride(t).cpu() for t in (*outs, *written)]


def _specified(value: Tensor, defined: Tensor | None) -> Tensor:
    """A copy in order, unspecified elements as zero bytes."""
    copy = value.clone(memory_format=torch.contiguous_format)
    if defined is not None and copy.numel():
        copy.view(-1).view(torch.uint8).view(-1, copy.element_size())[~defined.expand(copy.shape).reshape(-1)] = 0
    return copy


def digest(value: Tensor, defined: Tensor | None = None) -> str:
    """SHA-256 of a tensor's elements in order; unspecified ones count as zero bytes, and all NaN as one."""
    raw = bits(value).clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
    if defined is not None and raw.numel():
        raw = raw.view(-1, value.element_size()) * defined.expand(value.shape).reshape(-1, 1)
    return hashlib.sha256(raw.numpy().tobytes()).hexdigest()


def of_arguments(args: Sequence[Any]) -> str:
    """SHA-256 of a call's arguments: dtypes, shapes and elements of tensors, the words of all else."""
    parts = hashlib.sha256()
    for value in args:
        tensors = value.tensors if isinstance(value, WeightHandle) else (value,) if isinstance(value, Tensor) else ()
        for tensor in tensors:
            parts.update(f"{tensor.dtype} {tuple(tensor.shape)} {digest(tensor)}".encode())
        if not tensors:
            parts.update(repr(value).encode())
    return parts.hexdigest()


def header(backend: Backend, device: Device) -> dict[str, Any]:
    """Where and with what a recording is made."""
    found = backend.capability(device).as_dict()
    return {
        "deepinfer": __version__,
        "contract": CONTRACT_VERSION,
        "backend": backend.name,
        "device": found["name"],
        "arch": found["arch"],
        "level": backend.level(device),
        "about": str(getattr(backend.probe(), "detail", "")),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seed": SEED,
        "date": datetime.date.today().isoformat(),
    }


def here() -> str:
    """The commit of the tree that this code lies in, with a plus sign where files differ from it; '' outside of git."""
    root = Path(__file__).resolve().parents[1]
    asked = (("rev-parse", "--show-toplevel"), ("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "-uno"))
    try:
        found = [
            subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, timeout=20, check=True).stdout
            for words in asked
        ]
    except (OSError, subprocess.SubprocessError):
        return ""
    ours = Path(found[0].strip()) == root  # not of an environment that lies in another tree
    return found[1].strip() + "+" * bool(found[2].strip()) if ours else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


ON_THIS_CPU = Target(REFERENCE, torch.device("cpu"))


def check(folder: Path, ops: Sequence[str] = (), target: Target = ON_THIS_CPU) -> Checked:
    """Hold a recording against a backend of this machine: exact ops by digest, others by the op's class.

    Args:
        ops: only these; all that were recorded by default.
        target: whose kernels run the calls; it must be the active backend unless it is the reference.

    Raises:
        RecordingError: see `recording_format.read`.
    """
    facts, kept = read(folder)
    CATALOG.load(REFERENCE)
    findings: list[Finding] = []
    counts = {"equal": 0, "within": 0}
    passed_over: dict[str, int] = {}
    for number, each, spec, sample in recorded(facts, ops):
        where = f"{each['op']}, {each['sample']}"
        if spec is None:
            passed_over["other version"] = passed_over.get("other version", 0) + len(each["outputs"])
            continue
        if sample is None or of_arguments(sample.args) != each["arguments"]:
            passed_over["other arguments"] = passed_over.get("other arguments", 0) + len(each["outputs"])
            continue
        try:
            with REGISTRY.using(REFERENCE) if target.backend == REFERENCE else nullcontext():
                want = results(spec, sample, target)
        except Unsupported:
            passed_over["no kernel"] = passed_over.get("no kernel", 0) + len(each["outputs"])
            continue
        stated = each["outputs"]
        if [s["name"] for s in stated] != written_by(spec, sample):
            there = ", ".join(s["name"] for s in stated)
            findings.append(
                Finding("outputs", f"{where}: recorded are {there}, of {', '.join(written_by(spec, sample))}")
            )
            continue
        same = [digest(w, m) == s["digest"] for w, m, s in zip(want, masks(spec, sample), stated, strict=True)]
        if all(same):
            counts["equal"] += len(stated)
        elif isinstance(spec.numerics, Exact):
            wrong = ", ".join(s["name"] for s, equal in zip(stated, same, strict=True) if not equal)
            findings.append(Finding("bits", f"{where}: {wrong} of {target.backend} differ from the recorded"))
        elif all(s["kept"] or equal for s, equal in zip(stated, same, strict=True)):
            got = [kept[f"{number}/{s['name']}"] if s["kept"] else w for s, w in zip(stated, want, strict=True)]
            found = compare(spec, sample.args, got, want).findings
            findings += [Finding(f.check, f"{where}: {f.message}") for f in found]
            counts["within"] += 0 if found else len(stated)
        else:
            passed_over["not kept"] = passed_over.get("not kept", 0) + len(stated)
    return Checked(tuple(findings), counts["equal"], counts["within"], passed_over)


def recorded(
    facts: dict[str, Any], ops: Sequence[str]
) -> Iterator[tuple[int, dict[str, Any], OpSpec | None, Sample | None]]:
    """The recorded calls, each with its op if there is one of that version, and with the sample of that name."""
    known: dict[str, dict[str, Sample]] = {}
    for number, each in enumerate(facts["calls"]):
        op = each["op"]
        if ops and op not in ops:
            continue
        if op not in SPECS or SPECS[op].version != each["version"]:
            yield number, each, None, None
            continue
        if op not in known:
            known[op] = {sample.label: sample for sample in chosen(SPECS[op])}
        yield number, each, SPECS[op], known[op].get(each["sample"])
