"""Kernels made of one statement each: `program` puts named statements into one kernel, `what` chooses among them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from deepinfer.backends.ascend.sim import Kernel, Report, Schedule, parse

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
        self.names = list(statements)
        functions = parts.pop("functions", "")
        self.text = program(kind, parameters, statements, **parts).replace("{functions}", functions)

    def __call__(self, name: str, schedule: str = "", blocks: int = 1, **arguments: Any) -> Report:
        chosen = parse(schedule) if schedule else Schedule()
        return built(self.text, blocks)(chosen, what=self.names.index(name), **arguments)
