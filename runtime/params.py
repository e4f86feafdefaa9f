"""Sampling parameters of one request."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from ..hal.errors import InvalidArgumentError
from .checks import INT32_MAX, check_bool, check_float, check_ids, check_in_vocabulary, check_int
from .structured.args import Structure, parse_so_args

MAX_TOP_LOGPROBS = 1000
MAX_SAMPLES = 1024
MAX_STOP_STRINGS = 64
MAX_NAME = 1024
MAX_PRIORITY = 100
SEED_MAX = 2**64 - 1
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-5, 1e5


@dataclass(kw_only=True)
class SamplingParams:
    """How the tokens of one request are chosen and when it ends.

    All fields are checked when the object is made and again when it is submitted; a value outside its range raises
    `InvalidArgumentError`, a feature of a schema that output cannot be held to `NotSupportedError`. The engine works on
    a copy. A schema that has not changed since is not read again.

    Attributes:
        temperature: 0 is a true argmax (lowest id among equals); otherwise 1e-5 to 1e5.
        top_p: in (0, 1]; the smallest most likely set whose mass reaches top_p. At least one token always survives.
        top_k: -1 (off) or 1 to 2**31 - 1.
        min_p: in [0, 1]; tokens less likely than min_p times the most likely one are dropped. 0 is off.
        max_tokens: 1 to 2**31 - 1. The limit in force is min(max_tokens, max_model_len - prompt length); outputs carry
            it as `max_output_tokens`.
        n: number of independent samples; sample j draws with seed `seq_seed + j` (mod 2**64).
        seq_seed: 0 to 2**64 - 1, or None: drawn when the request is submitted. Outputs always carry the seed used.
        repetition_penalty: in (0, 100]; logits of tokens of the prompt or the output are divided by it when positive
            and multiplied when negative. 1 is off.
        frequency_penalty: in [-2, 2]; subtracted once per occurrence in the output.
        presence_penalty: in [-2, 2]; subtracted when the token occurs in the output.
        logit_bias: token id to a number in [-100, 100], added to the logits.
        stop: strings that end the request; the text ends before the match.
        stop_token_ids: ids that end the request; the id is in the output, its text is not.
        ignore_eos: keep going after the end-of-sequence token.
        eos_id: end-of-sequence id of this request; None takes the tokenizer's.
        first_n_token_no_eos: the end-of-sequence token cannot be drawn for the first so many output tokens.
        logprobs: None, or 0 to 1000: also return raw log-probabilities (of the model, before penalties, temperature and
            filters) of the chosen token and of so many most likely ones.
        top_logprobs: 0 to 1000 most likely tokens of the processed distribution per token. The processed
            log-probability of the chosen token is always returned.
        prompt_logprobs: return the log-probability of every prompt token but the first.
        golden_token_ids: teacher forcing: output token i is entry i where there is one. At most max_tokens entries.
        so_args: what the output has to be, see `structured.args.parse_so_args`; None is free text.
        priority: -100 to 100; higher ones begin first and give way last. Waiting for ten seconds counts as one more.
            Among requests of one priority and tenant, first come, first served. Changes no token.
        tenant: on whose behalf the request is made, at most 1024 characters, or None. Rows are shared evenly among the
            tenants of one priority that have requests waiting. Changes no token.
        cache_salt: requests share prefixes in the prefix cache only with those of the same salt; None is a salt of its
            own. At most 1024 characters. Changes no token.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    max_tokens: int = 16
    n: int = 1
    seq_seed: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    eos_id: int | None = None
    first_n_token_no_eos: int = 0
    logprobs: int | None = None
    top_logprobs: int = 0
    prompt_logprobs: bool = False
    golden_token_ids: list[int] | None = None
    so_args: dict[str, Any] | None = None
    priority: int = 0
    tenant: str | None = None
    cache_salt: str | None = None

    def __post_init__(self) -> None:
        self._structure: Structure | None = None
        self.validate()

    def validate(self) -> None:
        """Check every field and bring it to its canonical type.

        Raises:
            InvalidArgumentError: a value outside its range.
            NotSupportedError: a feature of the schema in `so_args`.
        """
        if not _is_number(self.temperature, 0):
            self.temperature = check_float(
                "temperature", self.temperature, MIN_TEMPERATURE, MAX_TEMPERATURE, also="0 for greedy"
            )
        self.temperature = abs(float(self.temperature))  # -0.0 is greedy as well
        self.top_p = check_float("top_p", self.top_p, 0.0, 1.0, open_low=True)
        self.min_p = check_float("min_p", self.min_p, 0.0, 1.0)
        if not (isinstance(self.top_k, Integral) and self.top_k == -1):
            self.top_k = check_int("top_k", self.top_k, 1, INT32_MAX, also="-1 for all tokens")
        self.top_k = int(self.top_k)
        self.max_tokens = check_int("max_tokens", self.max_tokens, 1, INT32_MAX)
        self.n = check_int("n", self.n, 1, MAX_SAMPLES)
        if self.seq_seed is not None:
            self.seq_seed = check_int("seq_seed", self.seq_seed, 0, SEED_MAX, also="None for a fresh seed")
        self._validate_logits()
        self._validate_stops()
        self._validate_reports()
        self._structure = None if self.so_args is None else parse_so_args(self.so_args, self._structure)
        self.priority = check_int("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        for name in ("tenant", "cache_salt"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and len(value) <= MAX_NAME):
                raise InvalidArgumentError(name, value, f"a string of at most {MAX_NAME} characters, or None")

    def _validate_logits(self) -> None:
        self.repetition_penalty = check_float("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True)
        self.frequency_penalty = check_float("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        self.presence_penalty = check_float("presence_penalty", self.presence_penalty, -2.0, 2.0)
        if self.logit_bias is not None:
            if not isinstance(self.logit_bias, dict):
                raise InvalidArgumentError("logit_bias", self.logit_bias, "a dict of token id to a number")
            self.logit_bias = {
                check_int("logit_bias key", token, 0, INT32_MAX): check_float(
                    f"logit_bias[{token!r}]", bias, -100.0, 100.0
                )
                for token, bias in self.logit_bias.items()
            }
        if self.golden_token_ids is not None:
            self.golden_token_ids = check_ids("golden_token_ids", self.golden_token_ids)
            if len(self.golden_token_ids) > self.max_tokens:
                raise InvalidArgumentError(
                    "golden_token_ids",
                    f"{len(self.golden_token_ids)} entries",
                    f"at most max_tokens = {self.max_tokens} entries",
                )

    def _validate_stops(self) -> None:
        if self.stop is not None:
            stops = [self.stop] if isinstance(self.stop, str) else self.stop
            allowed = f"a string or a list of at most {MAX_STOP_STRINGS} strings, none of them empty"
            if not isinstance(stops, (list, tuple)) or len(stops) > MAX_STOP_STRINGS:
                raise InvalidArgumentError("stop", self.stop, allowed)
            if not all(isinstance(s, str) and s for s in stops):
                raise InvalidArgumentError("stop", self.stop, allowed)
            if any("\ud800" <= c <= "\udfff" for s in stops for c in s):  # no text holds one, so it would never act
                raise InvalidArgumentError("stop", self.stop, "strings without lone surrogates (U+D800 to U+DFFF)")
            self.stop = list(stops)
        if self.stop_token_ids is not None:
            self.stop_token_ids = check_ids("stop_token_ids", self.stop_token_ids)
        self.ignore_eos = check_bool("ignore_eos", self.ignore_eos)
        if self.eos_id is not None:
            self.eos_id = check_int("eos_id", self.eos_id, 0, INT32_MAX, also="None for the tokenizer's")
        self.first_n_token_no_eos = check_int("first_n_token_no_eos", self.first_n_token_no_eos, 0, INT32_MAX)

    def _validate_reports(self) -> None:
        if self.logprobs is not None:
            self.logprobs = check_int("logprobs", self.logprobs, 0, MAX_TOP_LOGPROBS, also="None")
        self.top_logprobs = check_int("top_logprobs", self.top_logprobs, 0, MAX_TOP_LOGPROBS)
        self.prompt_logprobs = check_bool("prompt_logprobs", self.prompt_logprobs)

    def validate_for_model(self, vocab_size: int) -> None:
        """Check every token id against the vocabulary, and list lengths against it.

        Raises:
            InvalidArgumentError: an id outside [0, vocab_size) or a top list longer than the vocabulary.
        """
        check_in_vocabulary("logit_bias", self.logit_bias or (), vocab_size)
        check_in_vocabulary("golden_token_ids", self.golden_token_ids or (), vocab_size)
        check_in_vocabulary("stop_token_ids", self.stop_token_ids or (), vocab_size)
        if self._structure is not None:
            self._structure.validate_for_model(vocab_size)
        if self.eos_id is not None:
            check_int("eos_id", self.eos_id, 0, vocab_size - 1)
        for name in ("logprobs", "top_logprobs"):
            if (getattr(self, name) or 0) > vocab_size:
                raise InvalidArgumentError(name, getattr(self, name), f"at most the vocabulary, {vocab_size}")

    def copy(self) -> SamplingParams:
        """An independent copy, validated again (fields may have been assigned since)."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = list(value)
            elif isinstance(value, dict):
                values[name] = dict(value)
        made = object.__new__(SamplingParams)
        # With what has been read of the schema: the engine's thread copies as well, and must not read it again.
        made.__dict__.update(values, _structure=self._structure)
        made.validate()
        return made

    @property
    def structure(self) -> Structure | None:
        """What `so_args` say, as of the last check."""
        return self._structure

    @property
    def stop_strings(self) -> list[str]:
        return [] if self.stop is None else [self.stop] if isinstance(self.stop, str) else self.stop


def _is_number(value: Any, wanted: int) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and value == wanted


def fresh_seed() -> int:
    """A 64-bit seed from the operating system."""
    return secrets.randbits(64)


def sample_seed(seed: int, sample_index: int) -> int:
    """Seed of sample j of n: seed + j modulo 2**64."""
    return (seed + sample_index) & SEED_MAX
