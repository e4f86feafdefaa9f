"""From what a caller submits to the samples that are queued: checks, seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..hal.errors import InvalidArgumentError, NotSupportedError, short
from .checks import check_in_vocabulary, check_int
from .config import EngineConfig
from .images import FittedImages, PromptImage, refuse_images
from .params import SamplingParams, fresh_seed, sample_seed
from .request import Request, TextDecoder
from .stop import StopStrings
from .structured.vocabulary import check_installed
from .truncation import check_prompt_logprobs

Prompt = np.ndarray[Any, np.dtype[np.int32]]


class Admission:
    """Checks requests and makes their samples.

    Args:
        config: of the engine.
        decoder: makes an incremental detokenizer; None refuses stop strings.
    """

    def __init__(self, config: EngineConfig, decoder: Callable[[], TextDecoder] | None) -> None:
        self.config = config
        self._make_decoder = decoder
        self._next_key = 0
        self._seeds_drawn = 0

    def check(
        self, sampling_params: Any, prompt_token_ids: Any, multi_modal_data: Any
    ) -> tuple[SamplingParams, Prompt, FittedImages]:
        """A checked copy of the parameters, the prompt as int32 with its placeholders, and its images.

        Images are left to be decoded by the workers, where there are any; their headers are looked at here.

        Raises:
            InvalidArgumentError, NotSupportedError: see `LLMEngine.add_request`.
        """
        params = self.check_params(sampling_params)
        prompt = self._check_prompt(prompt_token_ids)
        images = self._check_images(prompt, multi_modal_data)
        if images.images:
            self._expand(prompt, images)
        return params, prompt, images

    def check_params(self, sampling_params: Any) -> SamplingParams:
        """A checked copy. Raises as `check`."""
        if not isinstance(sampling_params, SamplingParams):
            raise InvalidArgumentError("sampling_params", sampling_params, "a SamplingParams")
        params = sampling_params.copy()
        params.validate_for_model(self.config.vocab_size)
        most = self.config.force_top_k
        if most and params.top_logprobs > most:
            raise InvalidArgumentError(
                "top_logprobs", params.top_logprobs, f"at most DEEPINFER_SAMPLER_FORCE_TOPK = {most}"
            )
        check_prompt_logprobs(self.config.truncation, params)
        if params.structure is not None:
            if self.config.grammars is None:
                raise InvalidArgumentError("so_args", params.so_args, "None: this engine has no tokenizer")
            check_installed()
        if params.stop_strings and self._make_decoder is None:
            raise InvalidArgumentError("stop", params.stop, "None: this engine has no tokenizer")
        return params

    def fork(
        self, source: Request, request_id: Any, user_id: Any, params: SamplingParams, last_token: int | None, now: float
    ) -> list[Request]:
        """The n samples of a request whose prompt is the text of another one so far.

        Args:
            source: the other one. params: checked.
            last_token: replaces the last one of the text; None keeps it.

        Raises:
            InvalidArgumentError: the text leaves no room for a token, or the last token is none of the vocabulary, or
                the text ends in an image and is to end in a token.
        """
        limit = self.config.max_model_len - 1
        if source.length > limit:
            raise InvalidArgumentError(
                "request_id",
                f"{source.request_id!r} with {source.length} tokens",
                f"a request of at most {limit} tokens (max_model_len = {limit + 1})",
            )
        prompt = source.tokens[: source.length].copy()
        if last_token is not None:
            prompt[-1] = check_int("last_token", last_token, 0, self.config.vocab_size - 1)
            if any(image.lies_in(source.length - 1, source.length) for image in source.images):
                raise InvalidArgumentError("last_token", last_token, "None where the text ends in an image")
        seed = self._default_seed() if params.seq_seed is None else params.seq_seed
        return [self._sample(request_id, user_id, j, params, prompt, source.images, seed, now) for j in range(params.n)]

    def samples(
        self,
        request_id: Any,
        user_id: Any,
        params: SamplingParams,
        prompt: Prompt,
        images: FittedImages,
        arrival_time: float,
    ) -> list[Request]:
        """The n samples of a checked request.

        Raises:
            QueueFullError: it has images or a grammar, and no more can wait to be decoded or compiled.
        """
        placed: list[PromptImage] = []
        if images.images:
            prompt, placed = self._expand(prompt, images)
        reader = self.config.images
        if images.encoded and reader is not None and reader.workers is not None:
            reader.workers.check_room()
        if params.structure is not None and self.config.grammars is not None:
            self.config.grammars.ask(params.structure)
        # Last, so that a request that is refused has drawn none.
        seed = self._default_seed() if params.seq_seed is None else params.seq_seed
        return [
            self._sample(request_id, user_id, j, params, prompt, placed, seed, arrival_time) for j in range(params.n)
        ]

    def _check_images(self, prompt: Prompt, data: Any) -> FittedImages:
        """The images of a prompt, as they come from here; decoded where there are no workers for that."""
        reader = self.config.images
        if reader is None:
            refuse_images(data)
            return FittedImages(())
        count = reader.placeholders(prompt)
        found = data if isinstance(data, FittedImages) else reader.look(data, count)
        if len(found.images) != count:
            raise reader.mismatch(len(found.images), count)
        return reader.decode(found) if found.encoded and reader.workers is None else found

    def _expand(self, prompt: Prompt, images: FittedImages) -> tuple[Prompt, list[PromptImage]]:
        assert self.config.images is not None
        expanded, placed = self.config.images.expand(prompt, images)
        limit = self.config.max_model_len - 1
        if len(expanded) > limit:
            tokens = sum(image.end - image.start for image in placed)
            raise InvalidArgumentError(
                "prompt_token_ids",
                f"{len(expanded)} ids, {tokens} of them of {len(placed)} images",
                f"1 to {limit} token ids (max_model_len = {limit + 1} holds the prompt and at least one token)",
            )
        return expanded, placed

    def _check_prompt(self, ids: Sequence[int] | np.ndarray[Any, Any]) -> Prompt:
        limit = self.config.max_model_len - 1
        allowed = f"1 to {limit} token ids (max_model_len = {limit + 1} holds the prompt and at least one token)"
        try:
            array = np.asarray(ids)
        except Exception:  # arrays of other libraries raise what they like
            raise InvalidArgumentError("prompt_token_ids", ids, allowed) from None
        # In a list of both, numpy takes True for 1 without a word.
        mixed = isinstance(ids, (list, tuple)) and any(isinstance(one, (bool, np.bool_)) for one in ids)
        if mixed or array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise InvalidArgumentError("prompt_token_ids", ids, allowed)
        if not 1 <= array.size <= limit:
            raise InvalidArgumentError("prompt_token_ids", f"{array.size} ids", allowed)
        outside = np.flatnonzero((array < 0) | (array >= self.config.vocab_size))
        if outside.size:
            check_in_vocabulary("prompt_token_ids", array.tolist(), self.config.vocab_size)
        return array.astype(np.int32)

    def _default_seed(self) -> int:
        if self.config.seed is None:
            return fresh_seed()
        text = f"{self.config.seed}:{self._seeds_drawn}".encode()
        self._seeds_drawn += 1
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def _sample(
        self,
        request_id: Any,
        user_id: Any,
        index: int,
        params: SamplingParams,
        prompt: Prompt,
        images: Sequence[PromptImage],
        seed: int,
        arrival_time: float,
    ) -> Request:
        key, self._next_key = self._next_key, self._next_key + 1
        return Request(
            key=key,
            request_id=request_id,
            user_id=user_id,
            sample_index=index,
            params=params,
            seed=sample_seed(seed, index),
            eos_id=self.config.eos_id if params.eos_id is None else params.eos_id,
            prompt_len=len(prompt),
            max_output_tokens=min(params.max_tokens, self.config.max_model_len - len(prompt)),
            tokens=prompt,
            arrival_time=arrival_time,
            max_drafts=self.config.limits.max_drafts,
            decoder=None if self._make_decoder is None else self._make_decoder(),
            stops=StopStrings(params.stop_strings),
            images=images,
        )


def check_defaults(**arguments: tuple[Any, Any]) -> None:
    """Raises NotSupportedError for an argument, given as (value, default), that has not its default."""
    for name, (value, default) in arguments.items():
        if value is not default:
            raise NotSupportedError(f"{name}={short(value)}", "it comes with the disaggregated engines")


def ids_to_abort(request_id: Any, known: Callable[[Any], bool]) -> list[Any]:
    """The unfinished requests that an argument of `LLMEngine.abort_request` names.

    Args:
        request_id: one id, or a list, tuple or set of them.
        known: whether an id is that of an unfinished request; raises InvalidArgumentError for what cannot be hashed.
    """
    if isinstance(request_id, (list, set)):
        several = True
    else:
        # Whoever names requests by tuples passes such a name here.
        several = isinstance(request_id, (tuple, frozenset)) and not (_is_hashable(request_id) and known(request_id))
    ids = list(request_id) if several else [request_id]
    return [one for one in ids if known(one)]


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
