"""What an engine is told about its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..model.truncation import EXACT, Truncation
from .flops import FlopModel
from .images import ImageReader
from .offload import HostSettings
from .plan import Limits
from .prefix import PrefixSettings

if TYPE_CHECKING:
    from .structured.service import GrammarService


@dataclass(frozen=True)
class EngineConfig:
    """What the engine needs to know beside its executor.

    Attributes:
        vocab_size: token ids are 0..vocab_size - 1.
        eos_id: end-of-sequence id of the tokenizer.
        max_model_len: most tokens of prompt and output together.
        limits: limits of a step.
        num_pages: pages that can be handed out (the reserved page 0 not counted).
        num_slots: state slots that can be handed out (the reserved slot 0 not counted).
        stop_preempted_request: end preempted requests instead of recomputing them.
        seed: base of the seeds of requests that have none; None draws them from the operating system.
        force_top_k: candidates that sampling keeps at most, 0 for all; bounds `top_logprobs`.
        log_interval: steps between records of the log; 0 is off.
        flops: what a row of the model takes, for the log; None where that is not known.
        peak_flops: of the device, FP8-equivalent per second; None where that is not known.
        truncation: bounded replay of prompts, which leaves no prompt log-probabilities.
        prefix: requests that begin alike share what was computed; None turns that off.
        host: memory of the host for preempted requests; None has them computed again.
        slack: positions before the last one written at which a state slot still serves: what samples need to fork. 0
            computes every sample by itself.
        near_keys: keys that sparse attention looks at per row, for the prediction of a step's time.
        trace: file that every planned step is recorded in; None is none.
        async_scheduling: launch a step before the results of the one before are looked at, where the executor can.
        images: reads the images of prompts; None refuses images, and placeholders of images are ordinary tokens.
        grammars: compiles what outputs have to be; None refuses `so_args`.

    Drafts per request and step are `limits.max_drafts`.
    """

    vocab_size: int
    eos_id: int
    max_model_len: int
    limits: Limits
    num_pages: int
    num_slots: int
    stop_preempted_request: bool = False
    seed: int | None = None
    force_top_k: int = 0
    log_interval: int = 0
    truncation: Truncation = EXACT
    images: ImageReader | None = None
    grammars: GrammarService | None = None
    prefix: PrefixSettings | None = None
    host: HostSettings | None = None
    slack: int = 0
    near_keys: int = 1 << 30
    async_scheduling: bool = False
    trace: str | None = None
    flops: FlopModel | None = None
    peak_flops: float | None = None
