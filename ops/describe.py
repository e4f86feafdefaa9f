"""The contract as plain data: what the command line and the generated documentation show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from ..hal.errors import InvalidArgumentError
from ..hal.registry import OWN_SOURCES, REFERENCE, REGISTRY, Kernel
from .spec import SPECS, Arg, HandleArg, OpSpec, ScalarArg, TensorArg

CONVENTIONS = (
    "Rows. A step has T rows, those of a sequence consecutive and at ascending positions. A row with row_seq -1 "
    "is padding: it belongs to no sequence, has no key and sees no entry, whatever its first_key, last_key, "
    "visible and indices say. Its position and other integers are valid where an op uses them; its floats and "
    "bytes may be NaN. An op that stores writes nothing for it. An op without row_seq computes it like any other "
    "row.",
    "Rows alone. A row's bits depend on that row alone, not on how many rows there are, on their order, or on "
    "what others and padding hold. The order of every sum depends on the signature at most. Every dim that varies "
    "may be 0.",
    "Indices. -1 is none. All others lie in range unless the op says otherwise; where one does not, the caller is "
    "wrong: the reference refuses it, a kernel need not look. Offsets into pools, tables and weights pass 2^31 "
    "bytes.",
    "Blocks. Entry j of sequence s lies in page block_table[s, j // E] at slot j % E, E = 128/ratio. Columns of "
    "entries that no row sees may be -1. Pages, ring slots and entries that no row asks for may hold anything.",
    "Arithmetic. bf16(...) and fp32(...) round once, to nearest even. In exact ops every operation written rounds "
    "once and nothing is contracted; elsewhere a fused multiply-add is allowed. A NaN is a NaN: its sign and "
    "payload do not count, except where an op copies bit for bit.",
    "Algorithms. `docs/numerics.md` has, bit by bit and with vectors: exp2, log2, random numbers (2, 3), sampling "
    "and verification (4), top-k (5), dispatch and mirror layouts (7), number formats, quantisers Q8, Q4p and "
    "Q4e, records and pages (8); and the limits of the classes (6).",
    "Calls. A kernel takes the arguments in this order, then `out` (None, or the tensor or tuple to fill). One "
    "that states a size of scratch memory gets it as a last argument from callers that have some, holding "
    "anything, and makes its own where it gets none. It allocates outputs only where out is None, uses the "
    "current stream, reads no device memory on the host, and keeps nothing from call to call.",
    "Aliasing. `out` overlaps no argument and no other output, except that it may be an argument itself where its "
    "row says so; a mutable argument overlaps no other argument. A tensor counts from its first byte to its last, "
    "gaps between strided rows included. `out` is checked whenever it is given, mutable arguments when a "
    "signature is first seen.",
)
"""What holds for every op, in paragraphs."""

# How a kernel counts: 'own' is launched from a kernel language, 'fallback' wraps torch, 'reference' is the oracle.
OWN, FALLBACK, ORACLE, MISSING = "own", "fallback", "reference", "missing"


def find(name: str) -> OpSpec:
    """The spec of a name.

    Raises:
        InvalidArgumentError: no such op; lists those there are.
    """
    spec = SPECS.get(name)
    if spec is None:
        raise InvalidArgumentError("op", name, ", ".join(sorted(SPECS)))
    return spec


def ordered() -> list[OpSpec]:
    """All specs, by family and name."""
    return sorted(SPECS.values(), key=lambda spec: (spec.family, spec.name))


def summary(spec: OpSpec) -> dict[str, Any]:
    """One row of the list of ops."""
    return {"name": spec.name, "family": spec.family, "version": spec.version, "numerics": spec.numerics.label}


def details(spec: OpSpec, samples: bool = True) -> dict[str, Any]:
    """The whole spec. `samples` adds label, dims, floating-point operations and bytes of each sample."""
    numerics = {f.name: getattr(spec.numerics, f.name) for f in fields(spec.numerics)}
    found = summary(spec) | {
        "semantics": spec.semantics,
        "numerics": {"class": spec.numerics.label, **numerics},
        "dynamic": list(spec.dynamic),
        "args": [_describe_arg(arg) for arg in spec.args],
        "outs": [
            {
                "name": o.name,
                "dims": _dims(o.dims),
                "dtypes": _dtypes(o.dtypes),
                "in_place": o.in_place,
                "unspecified": o.unspecified,
            }
            for o in spec.outs
        ],
    }
    if samples:
        found["samples"] = [_describe_sample(spec, sample) for sample in _samples(spec)]
    return found


def kind(kernel: Kernel) -> str:
    """How a kernel counts: 'reference', 'own' or 'fallback'."""
    if kernel.backend == REFERENCE:
        return ORACLE
    return OWN if kernel.source in OWN_SOURCES else FALLBACK


def status(backend: str) -> list[dict[str, Any]]:
    """Per op, what a backend brings: its kernels, and what counts for it.

    An op whose best kernel is 'own' is the backend's; one that only wraps torch is a 'fallback'; one without any runs
    on the reference, visibly, and is 'missing'.
    """
    rows = []
    for spec in ordered():
        kernels = sorted(
            (k for k in REGISTRY.kernels(spec.name) if k.backend == backend and k.version == spec.version),
            key=lambda k: (-k.priority, k.name),
        )
        kinds = [kind(k) for k in kernels if not k.fast]
        mark = next((m for m in (OWN, ORACLE, FALLBACK) if m in kinds), MISSING)
        rows.append(summary(spec) | {"status": mark, "kernels": [_describe_kernel(k) for k in kernels]})
    return rows


def explain(spec: OpSpec) -> list[dict[str, Any]]:
    """Per distinct signature of the samples: the kernel that is chosen, and why each other was not."""
    found: dict[str, dict[str, Any]] = {}
    for sample in _samples(spec):
        signature = spec.signature(*sample.args)
        row = found.get(str(signature))
        if row is not None:
            row["samples"].append(sample.label)
            continue
        verdicts = REGISTRY.explain(signature)
        found[str(signature)] = {
            "signature": str(signature),
            "samples": [sample.label],
            "chosen": next((v.kernel.id for v in verdicts if v.chosen), None),
            "verdicts": [
                {"kernel": v.kernel.id, "kind": kind(v.kernel), "chosen": v.chosen, "reason": v.reason}
                for v in verdicts
            ],
        }
    return list(found.values())


def markdown() -> str:
    """The reference page of the contract, `docs/ops.md`."""
    lines = [
        "# Ops",
        "",
        "Generated by `deepinfer ops docs`; edit the specs in `ops/` instead. A dim in *italics* may vary from call to",
        "call; every other one is static and part of the signature that kernels are selected by.",
        "",
        "## Conventions",
        "",
        *(f"- {_titled(text)}" for text in CONVENTIONS),
        "",
        "## List",
        "",
        "| op | family | version | numerics |",
        "|---|---|---|---|",
    ]
    lines += [f"| [`{s.name}`](#{s.name}) | {s.family} | {s.version} | {s.numerics.label} |" for s in ordered()]
    family = ""
    for spec in ordered():
        if spec.family != family:
            family = spec.family
            lines += ["", f"## Family: {family}"]
        lines += ["", *_markdown_op(details(spec, samples=False))]
    return "\n".join(lines) + "\n"


def _titled(text: str) -> str:
    """A paragraph with its first sentence, which is its title, in bold; the page of algorithms becomes a link."""
    title, _, rest = text.partition(". ")
    return f"**{title}.** {_escape(rest)}".replace("`docs/numerics.md`", "[Numerics](numerics.md)")


def _markdown_op(op: dict[str, Any]) -> list[str]:
    lines = [f"### {op['name']}", "", _escape(op["semantics"]), ""]
    lines += ["| argument | kind | shape | dtypes | notes |", "|---|---|---|---|---|"]
    for arg in op["args"]:
        for part in arg.get("parts", [arg]):
            name = arg["name"] if part is arg else f"{arg['name']}.{part['name']}"
            shape = " ".join(f"*{d}*" if d in op["dynamic"] else d for d in part.get("dims", []))
            lines.append(f"| `{name}` | {arg['kind']} | {shape} | {', '.join(part['dtypes'])} | {notes(part)} |")
    for out in op["outs"]:
        shape = " ".join(f"*{d}*" if d in op["dynamic"] else d for d in out["dims"])
        lines.append(f"| → `{out['name']}` | output | {shape} | {', '.join(out['dtypes'])} | {notes(out)} |")
    limits = ", ".join(f"{k}: {v}" for k, v in op["numerics"].items() if k != "class")
    lines += ["", f"Numerics: {op['numerics']['class']}{f' ({limits})' if limits else ''}."]
    return lines


def _escape(text: str) -> str:
    """Keep Markdown from reading formulas as emphasis or tags; code between backticks stays as it is."""
    parts = text.split("`")
    plain = [re.sub(r"([*<|\[\]])", r"\\\1", part) if i % 2 == 0 else part for i, part in enumerate(parts)]
    return "`".join(plain)


def notes(arg: dict[str, Any]) -> str:
    """What else is said of an argument or output, as a table's last column shows it."""
    words = [word for word in ("optional", "mutable", "host") if arg.get(word)]
    if arg.get("layout") == "rows":
        words.append("rows may be strided")
    if arg.get("choices"):
        words.append("one of " + ", ".join(map(str, arg["choices"])))
    if arg.get("range"):
        words.append(arg["range"])
    if arg.get("in_place"):
        words.append(f"may be {arg['in_place']} itself")
    if arg.get("unspecified"):
        words.append(f"unspecified: {arg['unspecified']}")
    if arg.get("static") is False and arg["kind"] == "scalar":
        words.append("not part of the signature")
    return ", ".join(words)


def _describe_arg(arg: Arg) -> dict[str, Any]:
    if isinstance(arg, TensorArg):
        return {
            "name": arg.name,
            "kind": "tensor",
            "dims": _dims(arg.dims),
            "dtypes": _dtypes(arg.dtypes),
            "optional": arg.optional,
            "mutable": arg.mutable,
            "layout": arg.layout,
            "host": arg.host,
        }
    if isinstance(arg, HandleArg):
        return {"name": arg.name, "kind": "prepared weight", "parts": [_describe_arg(part) for part in arg.parts]}
    assert isinstance(arg, ScalarArg)
    return {
        "name": arg.name,
        "kind": "scalar",
        "dtypes": [arg.type.__name__],
        "optional": arg.optional,
        "static": arg.static,
        "choices": list(arg.choices),
        "range": _range(arg),
    }


def _range(arg: ScalarArg) -> str:
    """Bounds of a number that say more than its type."""
    if arg.type not in (int, float) or arg.choices:
        return ""
    low = arg.low is not None and (arg.low != 0 or arg.type is float)
    return " ".join(filter(None, (f"from {arg.low}" if low else "", f"to {arg.most.text}" if arg.most else "")))


def _describe_kernel(kernel: Kernel) -> dict[str, Any]:
    return {
        "id": kernel.id,
        "kind": kind(kernel),
        "source": kernel.source,
        "priority": kernel.priority,
        "device_types": list(kernel.device_types),
        "archs": list(kernel.archs),
        "layout": kernel.layout,
        "fast": kernel.fast,
    }


def _describe_sample(spec: OpSpec, sample: Any) -> dict[str, Any]:
    dims, cost = spec.dims(*sample.args), spec.work(*sample.args)
    return {"label": sample.label, "dims": dims, "flops": int(cost.flops), "bytes": int(cost.bytes)}


def _samples(spec: OpSpec) -> Sequence[Any]:
    return list(spec.samples(np.random.default_rng(0), torch.device("cpu")))


def _dims(dims: Sequence[Any]) -> list[str]:
    return [dim.text for dim in dims]


def _dtypes(dtypes: Sequence[torch.dtype]) -> list[str]:
    return [str(dtype).removeprefix("torch.") for dtype in dtypes]
