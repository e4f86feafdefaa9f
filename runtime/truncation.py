"""Bounded replay in the engine: where its settings come from, and what they exclude."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hal import env
from ..hal.errors import NotSupportedError
from ..model.truncation import Truncation

if TYPE_CHECKING:
    from ..model.topology import Topology
    from .args import EngineArgs
    from .params import SamplingParams

MODE = "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE"
KEEP_TOKENS = "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS"
INVARIANT = "DEEPINFER_BATCH_INVARIANT"


def resolve_truncation(args: EngineArgs, topology: Topology, ring_slots: int) -> Truncation:
    """How the engine computes prompts: the arguments, else the environment, else the exact model.

    Args:
        args: of the engine.
        topology: of the model.
        ring_slots: positions that a window ring holds.

    Raises:
        InvalidArgumentError: fewer kept tokens than a window ring holds.
        NotSupportedError: "compact" with a model that needs the dropped rows; or a mode other than "off" where batch
            invariance is asked for by name, since results are then those of another function than the exact model.
    """
    mode, keep = args.yoco_prefill_truncation_mode, args.yoco_prefill_keep_tokens
    mode_name = MODE if mode is None else "yoco_prefill_truncation_mode"
    keep_name = KEEP_TOKENS if keep is None else "yoco_prefill_keep_tokens"
    found = Truncation(env.get(MODE) if mode is None else mode, env.get(KEEP_TOKENS) if keep is None else keep)
    found.check(ring_slots, topology, mode=mode_name, keep_tokens=keep_name)
    if found.on and env.is_set(INVARIANT) and env.get(INVARIANT):
        raise NotSupportedError(
            f"{mode_name}={found.mode} with {INVARIANT}=1",
            f"truncated prompts give other results than the exact model; unset {INVARIANT} or turn truncation off",
        )
    return found


def check_prompt_logprobs(truncation: Truncation, params: SamplingParams) -> None:
    """Raises NotSupportedError where a request asks for log-probabilities of a prompt that is truncated."""
    if truncation.on and params.prompt_logprobs:
        raise NotSupportedError(
            "prompt_logprobs=True",
            f"prompts are truncated ({MODE}={truncation.mode}), and only their last rows are computed as far as logits",
        )
