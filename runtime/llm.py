"""`LLM`: the offline entry point."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from ..hal.errors import DeepInferError, InvalidArgumentError
from .args import EngineArgs
from .engine import LLMEngine
from .image_workers import QueueFullError
from .images import FittedImages, fields_of
from .outputs import FinishReason, InvalidRequestsError, RequestFailedError, RequestOutput
from .params import SamplingParams

Prompt = Sequence[int]
FAILED = (str(FinishReason.ERROR), str(FinishReason.PREEMPTED))


class LLM:
    """A model ready to generate.

    Args:
        model: "tiny" or "kernel" (embedded checkpoints, made once per user), a Hugging Face directory, or a hub id.
            None is DEEPINFER_HF_MODEL_DIR where set, else "tiny".
        tokenizer: directory of another tokenizer; None takes the model's.
        trust_remote_code: must be False; code of a checkpoint is never run.
        expert_parallel_size: must be 1 until the parallel runtime is there.
        revision, tokenizer_revision: revision of a hub id.
        seed: makes the seeds of requests that have none, so that a program repeats from run to run; None draws them
            from the operating system. Every output carries the seed that was used.
        gpu_memory_utilization: in (0, 1]: part of the device's memory that weights and caches may fill.
        decode_sequence: `generate` returns strings; otherwise lists of `RequestOutput`.
        arguments: any other field of `EngineArgs`. Unlike there, `disable_log_stats` is True and
            `stop_preempted_request` False by default, and `offline_inference` is True.

    Raises:
        InvalidArgumentError, NotSupportedError: an argument or an environment variable.
        CheckpointError, ConfigError, TokenizerError: the model directory.
    """

    def __init__(
        self,
        model: str | None = None,
        tokenizer: str | None = None,
        trust_remote_code: bool = False,
        expert_parallel_size: int = 1,
        revision: str | None = None,
        tokenizer_revision: str | None = None,
        seed: int | None = 0,
        gpu_memory_utilization: float = 0.9,
        decode_sequence: bool = True,
        **arguments: Any,
    ) -> None:
        if not isinstance(decode_sequence, bool):
            raise InvalidArgumentError("decode_sequence", decode_sequence, "True or False")
        offline = arguments.pop("offline_inference", True)  # nothing follows from it: this class is what it means
        if offline is not True:
            raise InvalidArgumentError("offline_inference", offline, "True: LLM is offline")
        arguments.setdefault("disable_log_stats", True)
        arguments.setdefault("stop_preempted_request", False)
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self.args = EngineArgs.from_keywords(
            {
                "model": model,
                "tokenizer": tokenizer,
                "trust_remote_code": trust_remote_code,
                "expert_parallel_size": expert_parallel_size,
                "revision": revision,
                "tokenizer_revision": tokenizer_revision,
                "seed": seed,
                "gpu_memory_utilization": gpu_memory_utilization,
                **arguments,
            }
        )
        from .loader import load_engine

        loaded = load_engine(self.args)
        self._set_up(loaded.engine, loaded.tokenizer, decode_sequence)

    @classmethod
    def from_engine(cls, engine: LLMEngine, tokenizer: Any, *, decode_sequence: bool = True) -> LLM:
        """An `LLM` over an engine that exists."""
        llm = cls.__new__(cls)
        llm._set_up(engine, tokenizer, decode_sequence)
        return llm

    def _set_up(self, engine: LLMEngine, tokenizer: Any, decode_sequence: bool) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.decode_sequence = decode_sequence
        self._next_id = 0
        self._mail: dict[int, deque[RequestOutput]] = {}

    # ---- generation

    def generate(
        self,
        prompts: str | Sequence[str] | None = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        prompt_token_ids: Prompt | Sequence[Prompt] | None = None,
        use_tqdm: bool = True,
        multi_modal_data: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Run a batch of prompts to their ends.

        All requests are checked before the first is queued: with an invalid one, nothing runs. Of images the headers
        are: one whose pixels turn out to be broken when a worker decodes them fails its request alone.

        Args:
            prompts: texts (BOS is put in front as the tokenizer wants it), or
            prompt_token_ids: lists of ids. Both together must have equal lengths; then the ids are what runs and the
                texts say for the reader what they mean.
            sampling_params: one for all prompts or one per prompt; None is `SamplingParams()`.
            use_tqdm: progress bar on stderr.
            multi_modal_data: per prompt None or a dict with the lists `image_bytes`, encoded images (PNG, JPEG, GIF or
                WebP), one for each placeholder of the prompt, in order; and, if wanted, `image_sizes`, their (width,
                height) in pixels, which are checked. In a text of a prompt with images the spelling of the image token
                (`<｜image｜>`) is a placeholder; among ids the token is.

        Returns:
            One entry per prompt, in order. With `decode_sequence` the text, else a list with a `RequestOutput` per
            token. A prompt with n > 1 has a list of n of these.

        Raises:
            InvalidRequestsError: names every invalid prompt by its index.
            RequestFailedError: some requests failed while running; carries the results of the others.
        """
        ids, params, images = self._requests(prompts, sampling_params, prompt_token_ids, multi_modal_data)
        samples: list[list[list[RequestOutput]]] = [[[] for _ in range(one.n)] for one in params]
        with ExitStack() as stack:
            progress = stack.enter_context(closing(_Progress(sum(one.n for one in params)))) if use_tqdm else None
            for index, output in stack.enter_context(closing(self._run(ids, params, images))):
                samples[index][output.sample_index].append(output)
                if progress is not None:
                    progress.update(output)
        results = [self._entry(entry) for entry in samples]
        failures = {index: message for index, entry in enumerate(samples) if (message := _failure(entry))}
        if failures:
            raise RequestFailedError(failures, results)
        return results

    def stream(
        self,
        prompt: str | None = None,
        sampling_params: SamplingParams | None = None,
        prompt_token_ids: Prompt | None = None,
        multi_modal_data: Any = None,
    ) -> Iterator[RequestOutput]:
        """Outputs of one request as they come. Leaving the iterator aborts the request.

        The arguments are those of `generate`, for one prompt.

        Raises:
            InvalidArgumentError, NotSupportedError: before anything is queued.
        """
        try:
            ids, params, images = self._requests(
                None if prompt is None else [prompt],
                sampling_params,
                None if prompt_token_ids is None else [prompt_token_ids],
                [multi_modal_data],
            )
        except InvalidRequestsError as error:
            raise error.errors[0] from None
        return self._stream(ids, params, images)

    def close(self) -> None:
        """Abort what runs and release the model."""
        self.engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- requests

    def _requests(
        self, prompts: Any, sampling_params: Any, prompt_token_ids: Any, multi_modal_data: Any
    ) -> tuple[list[Any], list[SamplingParams], list[FittedImages]]:
        """Checked ids, parameters and images of every prompt."""
        if prompts is None and prompt_token_ids is None:
            raise InvalidArgumentError("prompts", None, "prompts or prompt_token_ids")
        texts: list[Any] | None = None
        if prompts is not None:
            texts = [prompts] if isinstance(prompts, str) else _list("prompts", prompts, "a text or a list of texts")
        lists: list[Any] | None = None
        if prompt_token_ids is not None:
            lists = _list("prompt_token_ids", prompt_token_ids, "a list of token ids or a list of such lists")
            if lists and all(isinstance(item, (int, np.integer)) for item in lists):
                lists = [lists]
        if multi_modal_data is not None:
            multi_modal_data = _list("multi_modal_data", multi_modal_data, "a list with None or a dict per prompt")
        total = len(texts if texts is not None else lists or [])
        for name, values in (("prompt_token_ids", lists), ("multi_modal_data", multi_modal_data)):
            if values is not None and len(values) != total:
                raise InvalidArgumentError(name, f"{len(values)} entries", f"one per prompt, {total}")
        params = _per_prompt(sampling_params, total)
        errors: dict[int, DeepInferError] = {}
        ids: list[Any] = []
        images: list[FittedImages] = []
        for index in range(total):
            try:
                data = None if multi_modal_data is None else multi_modal_data[index]
                one = lists[index] if lists is not None else self._encode((texts or [])[index], data)
                images.append(self.engine.check_request(params[index], one, data)[2])
                ids.append(one)
            except DeepInferError as error:
                errors[index] = error
        if errors:
            raise InvalidRequestsError(errors, total)
        return ids, params, images

    def _encode(self, text: Any, data: Any) -> list[int]:
        """Ids of a text. Beside images, and only there, the spelling of their placeholder stands for the token."""
        if not isinstance(text, str) or not text:
            raise InvalidArgumentError("prompt", text, "a text of at least one character")
        reader = self.engine.config.images
        parts = text.split(reader.spelling) if reader is not None and reader.spelling and fields_of(data)[0] else [text]
        ids: list[int] = self.tokenizer.encode(parts[0])
        for part in parts[1:]:
            assert reader is not None
            ids += [reader.config.image_token_id, *self.tokenizer.encode(part, bos=False)]
        return ids

    # ---- running

    def _stream(
        self, ids: list[Prompt], params: list[SamplingParams], images: list[FittedImages]
    ) -> Iterator[RequestOutput]:
        with closing(self._run(ids, params, images)) as run:
            for _, output in run:
                yield output

    def _run(
        self, ids: list[Prompt], params: list[SamplingParams], images: list[FittedImages]
    ) -> Generator[tuple[int, RequestOutput]]:
        """Queues the prompts and yields (prompt, output) until all have ended; leaving early aborts them.

        Iterators may be interleaved: a step gives outputs to all of them, which wait in the mail of their request.
        """
        left: dict[int, int] = {}
        order: dict[int, int] = {}
        later: deque[tuple[int, Prompt, SamplingParams, FittedImages]] = deque()
        try:
            for index, (prompt, one, media) in enumerate(zip(ids, params, images, strict=True)):
                key, self._next_id = self._next_id, self._next_id + 1
                order[key], left[key], self._mail[key] = index, one.n, deque()
                later.append((key, prompt, one, media))
            while left:
                self._queue(later)
                for key in [key for key in left if self._mail[key]]:
                    mail = self._mail[key]
                    while mail:
                        output = mail.popleft()
                        left[key] -= output.finished
                        yield order[key], output
                    if left[key] == 0:
                        del left[key]
                if left:
                    self._deliver(self.engine.step())
        finally:
            self.engine.abort_request(list(left))
            for key in order:
                del self._mail[key]

    def _queue(self, later: deque[tuple[int, Prompt, SamplingParams, FittedImages]]) -> None:
        """Queues prompts in their order, up to one for whose images there is no room: its turn comes behind a step."""
        while later:
            key, prompt, one, media = later[0]
            try:
                self.engine.add_request(None, key, one, prompt, media)
            except QueueFullError:
                if not self.engine.get_num_unfinished_requests():  # nobody is there whose images could make room
                    raise
                return
            later.popleft()

    def _deliver(self, outputs: Iterable[RequestOutput]) -> None:
        for output in outputs:
            mail = self._mail.get(output.request_id)
            if mail is not None:  # else its iterator was left, and this is the last word of an aborted request
                mail.append(output)

    def _entry(self, samples: list[list[RequestOutput]]) -> Any:
        entries: list[Any] = list(samples)
        if self.decode_sequence:
            entries = ["".join(output.text for output in outputs) for outputs in samples]
        return entries[0] if len(entries) == 1 else entries


def _list(name: str, values: Any, allowed: str) -> list[Any]:
    """Entries in order. Neither a dict, whose keys would be taken, nor text or bytes, whose characters would be."""
    if not isinstance(values, (str, bytes, bytearray, dict)):
        try:
            return list(values)
        except TypeError:
            pass
    raise InvalidArgumentError(name, values, allowed)


def _per_prompt(sampling_params: Any, total: int) -> list[SamplingParams]:
    if sampling_params is None:
        return [SamplingParams() for _ in range(total)]
    if isinstance(sampling_params, SamplingParams):
        return [sampling_params] * total
    params = _list("sampling_params", sampling_params, "a SamplingParams or a list of them")
    if len(params) != total:
        raise InvalidArgumentError("sampling_params", f"{len(params)} entries", f"one, or one per prompt ({total})")
    return params


def _failure(samples: list[list[RequestOutput]]) -> str | None:
    for outputs in samples:
        last = outputs[-1]
        if last.finish_reason in FAILED:
            return last.error or str(last.finish_reason)
    return None


class _Progress:
    """Progress bar over samples, with the rate of output tokens."""

    def __init__(self, total: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=total, desc="samples", dynamic_ncols=True)
        self._tokens = 0

    def update(self, output: RequestOutput) -> None:
        self._tokens += output.token_id >= 0
        if output.finished:
            elapsed = max(self._bar.format_dict["elapsed"], 1e-9)
            self._bar.set_postfix_str(f"{self._tokens / elapsed:.1f} tokens/s", refresh=False)
            self._bar.update(1)

    def close(self) -> None:
        self._bar.close()
