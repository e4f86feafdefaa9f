"""Bad calls that no size or dtype shows: what the specs forbid in words, and the public functions check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .. import ops
from ..hal.errors import ContractError, DeepInferError
from ..ops.layouts import entries_per_page

Given = dict[str, Any]


@dataclass(frozen=True)
class Misuse:
    """A call that must be refused by an op's public function.

    Attributes:
        about: what is wrong, in words.
        sample: the valid call to start from, by a part of its label.
        change: spoils the arguments, by name; returns what the message must say.
        call: the public function on arguments by name.
        error: the exact class of the error.
    """

    about: str
    sample: str
    change: Callable[[Given], tuple[str, ...]]
    call: Callable[[Given], Any]
    error: type[DeepInferError] = ContractError


def _wide_scores(given: Given) -> tuple[str, ...]:
    width = given["block_table"].shape[1]
    most = width * entries_per_page(given["ratio"])
    given["entries"] = most + 1
    return str(most + 1), str(width), str(most)


def _block_scores(given: Given) -> tuple[str, ...]:
    given["block_size"] += 1
    lanes = given["blocks"].shape[1] * given["block_size"]
    return str(given["scores"].shape[1]), str(lanes)


def _without_indices(given: Given) -> tuple[str, ...]:
    given["indices"] = None
    return "pages", "block_table", "indices"


def _short_ring(given: Given) -> tuple[str, ...]:
    given["window"] = given["ring"].shape[1] + 2
    return "window", str(given["window"]), str(given["ring"].shape[1])


def _other_page_size(given: Given) -> tuple[str, ...]:
    """Pages of 32 tokens instead of 128."""
    pages = given["pages"]
    given["pages"] = pages[:, : pages.shape[1] // 4]
    return "pages", str(pages.shape[1] // 4), str(pages.shape[1])


def _other_record(given: Given) -> tuple[str, ...]:
    given["record"] = "fp8_32" if given["record"] == "fp4_16" else "fp4_16"
    return "pages", str(given["pages"].shape[1]), given["record"]


def _odd_ratio(given: Given) -> tuple[str, ...]:
    given["ratio"] = 3
    return "ratio", "3", "1"


def _no_limit(given: Given) -> tuple[str, ...]:
    given["limit"] = 0.0
    return "limit", "0.0", "positive"


def _narrow_out(given: Given) -> tuple[str, ...]:
    x, weight = given["xq"], given["weight"]
    given["out"] = torch.empty((x.shape[0] + 1, weight.dims["N"]), dtype=torch.bfloat16, device=x.device)
    return "out", str(x.shape[0]), str(x.shape[0] + 1)


def _half_a_group(given: Given) -> tuple[str, ...]:
    given["stat_ids"] = None
    return "penalties", "stat_"


def _filter(given: Given) -> Any:
    return ops.sampling.adjust_logits(**given)


def _attend(given: Given) -> Any:
    return ops.sparse_attention(**given)


MISUSES: dict[str, tuple[Misuse, ...]] = {
    "adjust_logits": (Misuse("half of a group", "8x37, penalties", _half_a_group, _filter),),
    "compressed_store": (
        Misuse("another page size", "mixed batch", _other_page_size, lambda g: ops.compressed_store(**g)),
        Misuse("another record", "mixed batch", _other_record, lambda g: ops.compressed_store(**g)),
    ),
    "grouped_linear": (
        Misuse("more outputs than rows", "one row, packed", _narrow_out, lambda g: ops.grouped_linear(**g)),
    ),
    "index_key_store": (
        Misuse("another page size", "mixed batch", _other_page_size, lambda g: ops.index_key_store(**g)),
    ),
    "index_score": (
        Misuse("scores wider than the block table", "mixed batch", _wide_scores, lambda g: ops.index_score(**g)),
        Misuse("another page size", "mixed batch", _other_page_size, lambda g: ops.index_score(**g)),
    ),
    "index_score_blocks": (
        Misuse("another page size", "mixed batch", _other_page_size, lambda g: ops.index_score_blocks(**g)),
    ),
    "sparse_attention": (
        Misuse("pages without indices", "mixed batch, ratio 1", _without_indices, _attend),
        Misuse("a window longer than the ring", "mixed batch, window only", _short_ring, _attend),
        Misuse("another page size", "mixed batch, ratio 2", _other_page_size, _attend),
        Misuse("another record", "mixed batch, ratio 2", _other_record, _attend),
        Misuse("a ratio that pages do not have", "mixed batch, ratio 2", _odd_ratio, _attend),
    ),
    "swiglu_quant": (Misuse("a limit of zero", "37 rows", _no_limit, lambda g: ops.swiglu_quant(**g)),),
    "topk_select": (
        Misuse("scores not as wide as the blocks", "candidate blocks", _block_scores, lambda g: ops.topk_select(**g)),
    ),
}
