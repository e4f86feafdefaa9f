"""What is compiled ahead of the sampling families' kernels: their argument types, and cases of one vocabulary."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from .compile_list import CompileCase

VOCABULARY = 129280

_I32 = (
    "last_ptr", "count_ptr", "max_id_ptr", "top_k_ptr", "token_ptr", "draft_ptr", "draft_row_ptr", "slot_ptr",
    "mask_ptr", "stat_offset_ptr", "stat_id_ptr", "stat_count_ptr", "bias_offset_ptr", "bias_id_ptr", "list_ptr",
    "golden_ptr", "begin_ptr", "rows_ptr", "stop_ptr", "emitted_ptr", "row_ptr", "request_ptr", "offset_ptr",
    "word_ptr", "first_ptr", "out_top_k_ptr", "ids_ptr", "wanted_ptr", "query_ptr", "key_ptr", "valid_ptr", "ratio_ptr",
    "row_seq_ptr", "start_ptr", "end_ptr", "visible_ptr", "fresh_ptr", "fresh_begin_ptr", "history_ptr", "skip_ptr",
    "ngram_ptr",
)  # fmt: skip
_I64 = (
    "top_p_ptr", "min_p_ptr", "stats_ptr", "head_ptr", "sums_ptr", "mass_ptr", "best_ptr", "seed_ptr", "position_ptr",
    "part_ptr", "picked_ptr", "base_ptr", "out_top_p_ptr", "out_min_p_ptr", "out_seed_ptr", "out_position_ptr",
)  # fmt: skip
_F32 = (
    "z_ptr", "inverse_ptr", "threshold_ptr", "max_ptr", "largest_ptr", "penalty_ptr", "bias_ptr", "out_ptr", "sum_ptr",
    "value_ptr", "pool_ptr", "log2q_ptr", "out_inverse_ptr",
)  # fmt: skip
TYPES = {
    **dict.fromkeys(_I32, "*i32"),
    **dict.fromkeys(_I64, "*i64"),
    **dict.fromkeys(_F32, "*fp32"),
    **dict.fromkeys(("accepted_ptr", "stopped_ptr", "image_ptr"), "*i1"),
}
"""Triton's type of an argument by its name; other arguments are integers, as they are annotated."""


def case(
    kernel: Any, label: str = "", *, absent: Iterable[str] = (), types: dict[str, str] | None = None,
    num_warps: int = 8, slow: bool = False, **constexprs: Any,
) -> CompileCase:  # fmt: skip
    """A case of a kernel.

    Args:
        absent: names, without `_ptr`, of tensors that are None. types: of arguments that differ from TYPES.
        slow: as in `CompileCase`.
    """
    gone = {f"{name}_ptr" for name in absent}
    signature: dict[str, str | None] = {}
    for name, parameter in inspect.signature(kernel.fn).parameters.items():
        if "constexpr" in str(parameter.annotation):
            continue
        kind = (types or {}).get(name) or TYPES.get(name) or ("i64" if "int64" in str(parameter.annotation) else "i32")
        signature[name] = None if name in gone else kind
    return CompileCase(kernel, signature, constexprs, num_warps=num_warps, label=label, slow=slow)


def filters() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Label, and the filters that no row has: the sampler gives those that some row of the batch has."""
    names = {"top_k": "top-k", "top_p": "top-p", "min_p": "min-p"}
    for count in range(4):
        for given in itertools.combinations(names, count):
            label = " and ".join(names[name] for name in given) if count < 3 else "all filters"
            yield label or "no filters", tuple(name for name in names if name not in given)
