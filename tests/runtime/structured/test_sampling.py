"""Rows whose masks leave no token: the reason is the mask's, not the model's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deepinfer.hal.catalog import load_backend
from deepinfer.runtime.execute import Work
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.request import Request
from deepinfer.runtime.sampler import Sampler, SamplerConfig

VOCAB, EOS, DRAFT = 40, 1, 7


class Held:
    """A constraint that allows the drafts, and behind them some tokens."""

    def __init__(self, *may: int) -> None:
        self.may = list(may)

    def masks(self, output: Any, drafts: Any) -> Any:
        rows = np.zeros((len(drafts) + 1, 64), np.uint8)
        rows[:-1, DRAFT] = 1
        rows[-1, self.may] = 1
        return np.packbits(rows, axis=1, bitorder="little").view("<i4")


@pytest.mark.parametrize("drafts", [[], [DRAFT]], ids=["alone", "behind a draft"])
@pytest.mark.parametrize(
    ("may", "ban", "named"),
    [
        ([], 0, "no token of the vocabulary goes on with so_args['schema']"),
        ([5, 6], 0, "so_args['schema'] allows only tokens that DEEPINFER_DECODE_TOKEN_BLACKLIST bars"),
        ([EOS, 5], 9, "so_args['schema'] allows nothing but the end, which first_n_token_no_eos = 9 bars"),
        ([3], 9, None),
        ([EOS], 0, None),
    ],
)
def test_a_row_without_a_token_says_why(drafts: list[int], may: list[int], ban: int, named: str | None) -> None:
    load_backend("reference")
    request = Request(
        key=0, request_id=0, user_id=None, sample_index=0, params=SamplingParams(first_n_token_no_eos=ban), seed=0,
        eos_id=EOS, prompt_len=1, max_output_tokens=50, tokens=np.array([3], np.int32), arrival_time=0.0,
    )  # fmt: skip
    request.constraint = Held(*may)  # type: ignore[assignment]
    sampler = Sampler(VOCAB, SamplerConfig(blacklist=(range(5, 7),)), shared=True)
    for fill in (0.0, np.nan):
        logits = torch.full((len(drafts) + 1, VOCAB), fill)
        logits[: len(drafts)] = 0
        work = Work(request, 0, 1 + len(drafts), True, drafts=drafts)
        last = sampler.sample(logits, [work])[0].tokens[-1]
        assert last.barred == named and last.valid == (named is None and fill == 0)
