"""Parameters of logit rows, masks on some rows, values of candidate lists."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.sampling import FIXED_ONE
from ...ops.spec import SPECS
from .common import check_index, finish


@kernel("expand_params", version=0, backend="reference")
def expand_params(
    request: Tensor,
    offset: Tensor,
    inv_temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seeds: Tensor,
    base: Tensor,
    out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:
    row = torch.nonzero(request != -1).squeeze(1)
    owner = check_index("expand_params", "request", request[row], seeds.shape[0])

    def spread(value: Tensor, padding: float | int) -> Tensor:
        whole = torch.full(request.shape, padding, dtype=value.dtype, device=value.device)
        whole[row] = value[owner]
        return whole

    positions = spread(base, 0)
    positions[row] += offset[row]
    parts = ((inv_temperature, torch.inf), (top_k, 0), (top_p, FIXED_ONE), (min_p, 0), (seeds, 0))
    return finish((*(spread(value, padding) for value, padding in parts), positions), out)


@kernel("mask_rows", version=0, backend="reference")
def mask_rows(logits: Tensor, words: Tensor, request: Tensor, offset: Tensor, first_row: Tensor, out: None) -> None:
    op, requests = "mask_rows", max(first_row.shape[0] - 1, 0)
    check_index(op, "first_row", first_row, logits.shape[0] + 1)
    if bool((first_row[1:] < first_row[:-1]).any()):
        raise SPECS[op].error("first_row must not descend")
    check_index(op, "request (past -1)", request.long() + 1, requests + 1)
    named = torch.nonzero((request >= 0) & (offset >= 0)).squeeze(1)
    bounds = first_row.long()
    row = bounds[request[named].long()] + offset[named]
    inside = row < bounds[request[named].long() + 1]
    shift = torch.arange(32, device=words.device, dtype=torch.int32)
    for mask, target in zip(named[inside].tolist(), row[inside].tolist(), strict=True):
        allowed = ((words[mask].unsqueeze(1) >> shift) & 1).flatten()[: logits.shape[1]]
        logits[target].masked_fill_(allowed == 0, -torch.inf)


@kernel("lookup_candidates", version=0, backend="reference")
def lookup_candidates(ids: Tensor, values: Tensor, wanted: Tensor, out: Tensor | None) -> Tensor:
    found = torch.full(wanted.shape, -torch.inf, dtype=torch.float32, device=values.device)
    if ids.shape[1]:
        # Sorted lists, and a search: J x K comparisons a row would not fit the memory of long lists.
        order = ids.long().sort(dim=1)
        place = torch.searchsorted(order.values, wanted.long()).clamp(max=ids.shape[1] - 1)
        hit = (order.values.gather(1, place) == wanted) & (wanted >= 0)
        found = torch.where(hit, values.gather(1, order.indices.gather(1, place)), found)
    return finish(found, out)
