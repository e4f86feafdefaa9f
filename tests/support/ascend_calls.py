"""Kernels made of one statement each: `program` puts named statements into one kernel, `what` chooses among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from deepinfer.backends.ascend.sim import Kernel, Report, Schedule, build, parse, source

# Conversions and the two fused forms keep the names that the device compiler has for its own.
CALL = r"\b(asc_[a-z0-9_]+|vcvt|vmadd|vmula)"

HEAD = """#include "c_api/asc_simd.h"
#include "simt_api/asc_simt.h"
#define LOAD static_cast<asc_load_l2_cache_mode>(0)
#define STORE static_cast<asc_store_l2_cache_mode>(0)
#define UNIT static_cast<asc_unit_flag_mode>
#define QUANT static_cast<asc_quant_mode>
#define RELU static_cast<asc_relu_pre_mode>
#define DUAL static_cast<asc_dual_dst_mode>
#define EVENT static_cast<event_t>
#define FLAG(from, to, id) asc_sync_notify(from, to, EVENT(id)); asc_sync_wait(from, to, EVENT(id))
"""


def program(kind: str, parameters: str, statements: Mapping[str, str], before: str = "", after: str = "") -> str:
    """Text of a kernel: `before`, the statement of number `what`, `after`."""
    cases = "\n".join(f"    case {i}: {{ {text} }} break;" for i, text in enumerate(statements.values()))
    return f"""{HEAD}{{functions}}
extern "C" __global__ {kind} void calls({parameters}, int32_t what) {{
  asc_init();
  {before}
  switch (what) {{
{cases}
  }}
  {after}
}}
"""


@cache
def built(text: str, blocks: int = 1) -> Kernel:
    return Kernel(text, blocks)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor as bytes."""
    return tensor.contiguous().view(torch.uint8).flatten()


class Calls:
    """Statements of one subject, in one kernel."""

    def __init__(self, kind: str, parameters: str, statements: Mapping[str, str], **parts: str) -> None:
        self.names, self.statements = list(statements), dict(statements)
        functions = parts.pop("functions", "")
        self.text = program(kind, parameters, statements, **parts).replace("{functions}", functions)

    def __call__(self, name: str, schedule: str = "", blocks: int = 1, **arguments: Any) -> Report:
        chosen = parse(schedule) if schedule else Schedule()
        return built(self.text, blocks)(chosen, what=self.names.index(name), **arguments)


def named(text: str) -> set[str]:
    """Names of calls in a text."""
    return set(re.findall(CALL + r"(?=[(<])", text))


def emitted(text: str) -> set[str]:
    """Calls that a lowered kernel makes: in its text, and in what it calls of the wheel's templates."""
    sources = build.wheel()[1]
    assert sources is not None
    headers = (Path(sources) / "tl_templates" / "ascend").glob("*.h")
    bodies = _bodies(tuple(path.read_text(encoding="utf-8") for path in sorted(headers)))
    todo, seen, found = text, set[str](), set[str]()
    while todo:
        called = set(re.findall(r"\b(\w+)\s*(?:<[^;{}()]*>)?\s*\(", todo)) - seen
        seen |= called
        found |= named(todo)
        todo = "\n".join(body for name in called for body in bodies.get(name, ()))
    return found


@cache
def _bodies(headers: tuple[str, ...]) -> dict[str, list[str]]:
    """By name, the bodies of the functions that headers define."""
    found: dict[str, list[str]] = {}
    for header in headers:
        code = source.without_comments(header)
        for name, call in re.findall(r"^[A-Z_]+\((\w+), (asc_\w+)\)", code, re.M):  # a macro that defines `name`
            found.setdefault(name, []).append(f"{call}(")
        for m in re.finditer(r"\b(?!(?:if|for|while|switch|return)\b)(\w+)\s*\(", code):
            try:
                opening = re.compile(r"\s*(?:const\s*)?\{").match(code, source.closing(code, m.end() - 1) + 1)
                if opening:
                    body = code[opening.end() : source.closing(code, opening.end() - 1)]
                    found.setdefault(m[1], []).append(body)
            except source.SourceError:
                continue
    return found
