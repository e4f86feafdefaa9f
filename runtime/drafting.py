"""Speculative decoding: settings, and the drafter that is the model's own draft head.

A step verifies the drafts of the step before (`sampler`) and then drafts behind the tokens that came of it. What a
request verifies in a step is a function of that request alone: all of its drafts, but no more than could still be said.
A preempted request loses its drafts with its caches; when it comes back, all but its last token are computed and the
same drafts made again, so that preemption changes no token, whatever the temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..hal import env
from ..hal.errors import InvalidArgumentError, NotSupportedError
from ..model.draft import DraftPool, DraftRequest, DraftSampling
from .execute import Result, Work, wants_drafts
from .request import Proposal
from .sampler import RowParams

if TYPE_CHECKING:
    from ..model.caches import Caches
    from ..model.config import TextConfig
    from ..model.transformer import Model

DRAFTS = "DEEPINFER_USE_NEXTN_DECODE"
TEMPERATURES = "DEEPINFER_DFLASH_CONFIDENCE_HEAD_TEMPERATURE"


@dataclass(frozen=True)
class Speculation:
    """Settings of an engine.

    Attributes:
        drafts: most drafts per request and step; 0 is plain decoding.
        shared: drafter-invariant mode: the drafter draws with the target's random numbers, a draft is accepted if it is
            the target's own draw, and the text is that of plain decoding.
        confidence_temperatures: by which the arguments of the confidences are divided: one, or one per draft.
    """

    drafts: int = 0
    shared: bool = False
    confidence_temperatures: tuple[float, ...] = (1.0,)

    @classmethod
    def from_environment(cls, text: TextConfig, shared: bool) -> Speculation:
        """Settings for a model; without draft layers it decodes plainly unless drafts are asked for by name.

        Raises:
            NotSupportedError: drafts are asked for and the model has no draft layers.
            InvalidArgumentError: confidence temperatures are neither one nor one per draft.
        """
        drafts = env.get(DRAFTS)
        if drafts and not text.num_nextn_predict_layers:
            if env.is_set(DRAFTS):
                raise NotSupportedError(f"{DRAFTS}={drafts}", "the model has no draft layers; unset it, or set it to 0")
            drafts = 0
        temperatures = env.get(TEMPERATURES)
        if drafts and len(temperatures) not in (1, drafts):
            raise InvalidArgumentError(
                TEMPERATURES, f"{len(temperatures)} numbers", f"one number, or one per draft ({DRAFTS}={drafts})"
            )
        return cls(drafts, shared, temperatures)

    def backtrack(self) -> int:
        """Positions that rings keep beyond the window, so that rejected drafts can be taken back."""
        return max(self.drafts + 1, env.get("DEEPINFER_MAX_BACKTRACKING_TOKENS") or 0)

    def new_pool(self, slots: int, vocab_size: int, device: torch.device) -> DraftPool | None:
        """Memory of drafts for state slots 0 to slots - 1; None without drafting."""
        if not self.drafts:
            return None
        return DraftPool.new(slots, self.drafts, vocab_size, device, distributions=not self.shared)

    def pool_bytes(self, slots: int, vocab_size: int) -> int:
        """Bytes of `new_pool`."""
        return slots * self.drafts * (8 + (0 if self.shared else 4 * vocab_size))


class ModelDrafter:
    """Drafts with the model's draft layers.

    Args:
        model, caches: as they are.
        settings: with at least one draft.
        pool: where distributions are kept for the sampler, by state slot.
        force_top_k: candidates of a draw, 0 for all.
    """

    def __init__(
        self, model: Model, caches: Caches, settings: Speculation, pool: DraftPool, force_top_k: int = 0
    ) -> None:
        self.model = model
        self.caches = caches
        self.settings = settings
        self.pool = pool
        self.force_top_k = force_top_k
        temperatures = settings.confidence_temperatures
        if len(temperatures) == 1:
            temperatures *= settings.drafts
        self.inv_confidence = torch.tensor([1.0 / t for t in temperatures], device=pool.confidence.device)

    def propose(self, work: Sequence[Work], results: Sequence[Result]) -> None:
        """See `execute.ProposesDrafts.propose`."""
        chosen = [pair for pair in zip(work, results, strict=True) if wants_drafts(*pair)]
        if not chosen:
            return
        tokens, last, slots = [], [], []
        for item, result in chosen:
            request = item.request
            assert request.slot is not None
            drawn = result.drawn
            tokens.append(int(request.tokens[request.length - 1]) if drawn is None else drawn.token)
            last.append(item.known_end + result.accepted - 1)
            slots.append(request.slot.ids[0])
        params = RowParams.of([item.request for item, _ in chosen], self.pool.confidence)
        how = DraftSampling(
            params.inverse,
            params.seeds,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            force_top_k=self.force_top_k,
            shared=self.settings.shared,
            inv_confidence=self.inv_confidence,
        )
        pool = self.pool
        if all(item.request.params.temperature == 0 for item, _ in chosen):
            pool = replace(pool, log2q=None)  # nobody will ask
        starts = [item.request.valid_start for item, _ in chosen]
        request_ = DraftRequest.build(tokens, last, slots, self.pool.confidence.device, valid_start=starts)
        drafts = self.model.draft(request_, how, self.caches, self.settings.drafts, pool)
        rows = zip(chosen, drafts.tokens.tolist(), drafts.confidence.tolist(), strict=True)
        for (_, result), found, confidences in rows:
            result.proposal = Proposal(found, confidences)
