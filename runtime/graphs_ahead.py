"""A captured step that begins where only the device knows: behind a step whose results nobody has looked at.

Lengths, last tokens, drafts and history come from the device's tables (`slots.SlotState`); the host gives bounds. A
sequence that has ended has no rows. The step writes the tables, so that the next one can follow at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..model.decode import DecodeShape, DecodeStep, Known
from ..model.draft import DraftRequest
from ..ops import sampling, verify
from .slots import ENDED, HISTORY, LAST, LENGTH, LIMIT, OWNER, SlotState


class AheadStep(DecodeStep):
    """See above. Inputs `slot`: the sequence's own number where the device knows it, else -1; `owner`: whose line of
    the tables is expected. Output `stale`: 1 where it was another's; such a sequence has no rows."""

    def __init__(
        self, model: Any, caches: Any, shape: DecodeShape, settings: Any, streams: Any, logits: Any, state: SlotState
    ) -> None:
        per_sequence = (shape.sequences,)
        super().__init__(
            model, caches, shape, settings, streams, logits,
            [("owner", per_sequence, np.int32, 0)], [("stale", per_sequence, np.int32, 0)],
        )  # fmt: skip
        self.state = state
        self._nothing = torch.zeros((shape.sequences, 1), dtype=torch.int32, device=model.device)
        self._slots = self._lines = self._limit = self._after = self._nothing

    def known(self) -> Known:
        """As far as the device knows; see `DecodeStep.known`."""
        given, state = self.inputs.device, self.state
        slots = self._slots = given["state_slot"].long()
        lines = self._lines = state.moving[slots]
        self._limit = state.fixed[slots, LIMIT].to(torch.int32)
        ahead = given["slot"] >= 0
        stale = (lines[:, OWNER] != given["owner"]) & (given["owner"] > 0)
        self.outputs.device["stale"].copy_(stale)
        # Of a request that goes on, the rows are its last token and the drafts that could still be said.
        left = (self._limit - lines[:, LENGTH] - 1).clamp(min=0)
        going = 1 + torch.minimum(given["query_len"] - 1, left)
        rows = torch.where((lines[:, ENDED] != 0) | stale, 0, going)
        query_len = torch.where(ahead, rows, given["query_len"])
        key_len = torch.where(ahead, lines[:, LENGTH] - 1 + rows, given["key_len"]).clamp(min=0)
        pool = self.settings.pool
        return Known(
            query_len,
            torch.maximum(key_len, query_len),
            lines[:, LAST].contiguous(),
            self._nothing if pool is None else pool.tokens[slots],
            torch.where(ahead.unsqueeze(1), lines[:, HISTORY:], given["history"]),
        )

    def stop_ids(self) -> torch.Tensor | None:
        return self.state.stop_ids[self._slots]

    def commit(self, known: Known, emitted: verify.Emitted, kept: sampling.Filter) -> None:
        """Bring the tables up to what the step gave."""
        lines = self._lines
        gained = torch.where(known.query_len > 0, emitted.accepted + 1, 0)
        last_row = emitted.row.clamp(min=0).long()
        ended = emitted.stop | (kept.count[last_row] == 0) | (lines[:, LENGTH] + gained >= self._limit)
        self._after = self.state.advance(self._slots, lines, gained, emitted.tokens, emitted.last, ended)

    @property
    def drawn(self) -> Any:
        return self._after

    @drawn.setter
    def drawn(self, value: Any) -> None:
        self._after = value

    def draft_request(self) -> DraftRequest:
        """Sequences that go on."""
        lines, given = self._after, self.inputs.device
        goes_on = (lines[:, ENDED] == 0) & (self._limit - lines[:, LENGTH] >= 2)
        return DraftRequest(
            tokens=lines[:, LAST].contiguous(),
            base=torch.where(goes_on, lines[:, LENGTH] - 2, -1),
            accepted=torch.zeros_like(given["query_len"]),
            valid_start=given["valid_start"],
            state_slot=given["state_slot"],
            pool_slot=torch.where(goes_on, given["state_slot"], -1),
        )
