"""What a benchmark asks of an engine: synthetic requests, a recorded run, or a file of requests.

A seed decides everything that is drawn, and each kind of draw has a generator of its own: another arrival rate changes
no length, and another distribution of lengths no token. Arrivals of different rates are the same draws, scaled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...hal.errors import DeepInferError, InvalidArgumentError
from ..trace import Trace

Ints = npt.NDArray[np.int64]

LENGTHS = "N, fixed:N, uniform:LOW:HIGH, normal:MEAN:DEVIATION, lognormal:MEDIAN:SIGMA or geometric:MEAN"
ARRIVALS = "burst, poisson:RATE, constant:RATE or closed:CONCURRENCY"
LONGEST = 1 << 24


class WorkloadError(DeepInferError):
    """A file of requests that cannot be used. Names the file and the line."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        self.path, self.line, self.what = path, line, what
        super().__init__(f"{path}, line {line}: {what}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.line, self.what))


@dataclass(frozen=True)
class Job:
    """One request.

    Attributes:
        arrival: seconds from the beginning; has no meaning in a closed loop.
        prompt: token ids. output: tokens that it says, whatever these are.
    """

    arrival: float
    prompt: Sequence[int]
    output: int
    priority: int = 0
    tenant: str | None = None


@dataclass(frozen=True)
class Lengths:
    """A distribution of lengths, at least 1 each: a draw below is drawn again, no other is changed."""

    spec: str
    kind: str
    first: float
    second: float = 0.0

    @classmethod
    def parse(cls, name: str, spec: str) -> Lengths:
        """From its spelling, see `LENGTHS`. Raises InvalidArgumentError, naming the option."""
        kind, *numbers = str(spec).split(":")
        try:
            if not numbers:
                kind, numbers = "fixed", [kind]
            values = [float(number) for number in numbers]
        except ValueError:
            raise InvalidArgumentError(name, spec, LENGTHS) from None
        first, second = (*values, 0.0, 0.0)[:2]
        whole = first == int(first) and second == int(second) if all(map(math.isfinite, values)) else False
        good = {
            "fixed": len(values) == 1 and whole and first >= 1,
            "uniform": len(values) == 2 and whole and 1 <= first <= second,
            "normal": len(values) == 2 and first >= 1 and second >= 0,
            "lognormal": len(values) == 2 and first >= 1 and 0 <= second <= 5,
            "geometric": len(values) == 1 and first >= 1,
        }.get(kind, False)
        if not good or not all(0 <= value <= LONGEST for value in values):
            raise InvalidArgumentError(name, spec, f"{LENGTHS}; lengths from 1 to {LONGEST}")
        return cls(str(spec), kind, first, second)

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """`count` lengths."""
        found = self._draw(rng, count)
        while (low := found < 1).any():
            found[low] = self._draw(rng, int(low.sum()))
        return found

    def _draw(self, rng: np.random.Generator, count: int) -> Ints:
        if self.kind == "fixed":
            return np.full(count, int(self.first), np.int64)
        if self.kind == "uniform":
            return rng.integers(int(self.first), int(self.second), count, endpoint=True)
        if self.kind == "geometric":
            return rng.geometric(1 / self.first, count)
        if self.kind == "normal":
            return np.rint(rng.normal(self.first, self.second, count)).astype(np.int64)
        return np.rint(self.first * np.exp(self.second * rng.standard_normal(count))).astype(np.int64)


@dataclass(frozen=True)
class Arrivals:
    """When requests come: all at once, at random or even intervals, or each when another has ended.

    Attributes:
        rate: requests per second of the open kinds. concurrency: requests at a time of the closed one.
    """

    spec: str
    kind: str
    rate: float = 0.0
    concurrency: int = 0

    @classmethod
    def parse(cls, name: str, spec: str) -> Arrivals:
        """From its spelling, see `ARRIVALS`. Raises InvalidArgumentError, naming the option."""
        kind, *numbers = str(spec).split(":")
        try:
            if kind == "burst" and not numbers:
                return cls(spec, kind)
            (number,) = numbers
            if kind == "closed" and int(number) >= 1:
                return cls(spec, kind, concurrency=int(number))
            if kind in ("poisson", "constant") and 0 < float(number) < math.inf:
                return cls(spec, kind, rate=float(number))
        except ValueError:
            pass
        raise InvalidArgumentError(name, spec, ARRIVALS)

    def draw(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """Moments at which `count` requests come, ascending, in seconds."""
        if self.kind == "poisson":
            return np.cumsum(rng.standard_exponential(count)) / self.rate
        if self.kind == "constant":
            return np.arange(count) / self.rate
        return np.zeros(count)


@dataclass(frozen=True)
class Vocabulary:
    """Ids that prompts of a benchmark are made of: low..size - 1, but those that mean something else."""

    size: int
    low: int = 3
    reserved: frozenset[int] = frozenset()

    def draw(self, rng: np.random.Generator, count: int) -> list[int]:
        """`count` ids."""
        ids: list[int] = rng.integers(min(self.low, self.size - 1), self.size, count).tolist()
        return [self.low if one in self.reserved else one for one in ids] if self.reserved else ids


@dataclass(frozen=True)
class Synthetic:
    """Requests drawn from distributions.

    Attributes:
        shared: tokens that all prompts begin with, in place of as many of their own.
    """

    count: int
    inputs: Lengths
    outputs: Lengths
    arrivals: Arrivals
    seed: int
    shared: int = 0

    def jobs(self, vocabulary: Vocabulary, stream: int = 0) -> list[Job]:
        """The requests, in order of arrival. Another `stream` of the same seed gives others of the same kind."""
        seeds = np.random.SeedSequence([self.seed, stream]).spawn(4)
        lengths, outputs, arrivals, tokens = (np.random.Generator(np.random.PCG64(seed)) for seed in seeds)
        prompts = self.inputs.draw(lengths, self.count).tolist()
        said = self.outputs.draw(outputs, self.count).tolist()
        when = self.arrivals.draw(arrivals, self.count).tolist()
        common = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, 1 << 20])))
        prefix = vocabulary.draw(common, self.shared)
        found = []
        for at, length, output in zip(when, prompts, said, strict=True):
            own = vocabulary.draw(tokens, length)
            found.append(Job(at, [*prefix[:length], *own[min(self.shared, length) :]], output))
        return found

    def describe(self) -> dict[str, Any]:
        """What decides the requests, for a record."""
        return {
            "kind": "synthetic",
            "requests": self.count,
            "input": self.inputs.spec,
            "output": self.outputs.spec,
            "shared_prefix": self.shared,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Recorded:
    """Requests of a file. Their arrivals hold unless the run is a closed loop or a burst."""

    kind: str
    source: str
    sizes: Sequence[tuple[float, int | Sequence[int], int, int, str | None]]
    seed: int
    notes: dict[str, Any] = field(default_factory=dict)

    def jobs(self, vocabulary: Vocabulary, stream: int = 0) -> list[Job]:
        """The requests, in order of arrival; prompts of which only the length is known are drawn."""
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, stream])))
        found = []
        for at, prompt, output, priority, tenant in sorted(self.sizes, key=lambda one: one[0]):
            ids = vocabulary.draw(rng, prompt) if isinstance(prompt, int) else prompt
            found.append(Job(at, ids, output, priority, tenant))
        return found

    def describe(self) -> dict[str, Any]:
        """What decides the requests, for a record."""
        return {"kind": self.kind, "source": self.source, "requests": len(self.sizes), "seed": self.seed, **self.notes}


def from_trace(trace: Trace, seed: int) -> Recorded:
    """The requests of a recorded run, as far as its steps tell them.

    A request came when a step first saw it, which in a long queue is later than it was: a trace holds no more of the
    waiting than could begin. It said what it had grown by when it was last seen, and one token more, in its last step,
    but no more than it was allowed to. Where steps overlap and a request stopped before that, this may count tokens
    that its last steps would have said: one, and their drafts.

    Raises:
        WorkloadError: no request is in it.
    """
    first: dict[int, tuple[float, int]] = {}
    last: dict[int, int] = {}
    for step in trace.steps:
        for view in (*step.state.running, *step.state.waiting):
            first.setdefault(view.key, (step.at, view.length))
            # Seen with its step before still under way, it may end with that one, or have grown less than it could.
            last[view.key] = 1 + (min(view.length, view.most) if view.most else view.length)
    sizes = [(at, length, last[key] - length, 0, None) for key, (at, length) in first.items()]
    if not sizes:
        raise WorkloadError(trace.path, 1, "no step of this trace has a request")
    return Recorded("trace", str(trace.path), sizes, seed)


_KEYS = {"arrival", "prompt_tokens", "prompt_token_ids", "output_tokens", "priority", "tenant"}


def read_requests(path: str | Path, seed: int) -> Recorded:
    """A file with a JSON object per line: `output_tokens`; `prompt_tokens`, a number, or `prompt_token_ids`; and, where
    wanted, `arrival` in seconds (0), `priority` (0), `tenant`. Empty lines are passed over.

    Raises:
        WorkloadError: it cannot be read, a line is none of these, or there is none.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(path, 1, f"cannot be read: {error}") from None
    sizes = list(_requests(path, lines))
    if not sizes:
        raise WorkloadError(path, 1, "no request is in this file")
    return Recorded("requests", str(path), sizes, seed)


def _requests(path: Path, lines: Sequence[str]) -> Iterator[tuple[float, int | Sequence[int], int, int, str | None]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue

        def bad(what: str, number: int = number) -> WorkloadError:
            return WorkloadError(path, number, what)

        try:
            one = json.loads(line)
        except ValueError:
            raise bad("not JSON") from None
        if not isinstance(one, dict) or set(one) - _KEYS:
            names = sorted(set(one) - _KEYS) if isinstance(one, dict) else type(one).__name__
            raise bad(f"got {names}; allowed: an object with {', '.join(sorted(_KEYS))}")
        prompt = one.get("prompt_tokens", one.get("prompt_token_ids"))
        if ("prompt_tokens" in one) == ("prompt_token_ids" in one):
            raise bad("either prompt_tokens or prompt_token_ids, and not both")
        if isinstance(prompt, list):
            if not prompt or not all(type(token) is int and token >= 0 for token in prompt):
                raise bad("prompt_token_ids: a list of at least one token id")
        elif "prompt_token_ids" in one or type(prompt) is not int or not 1 <= prompt <= LONGEST:
            raise bad(f"prompt_tokens: a number from 1 to {LONGEST}; prompt_token_ids: a list")
        output = one.get("output_tokens")
        if type(output) is not int or not 1 <= output <= LONGEST:
            raise bad(f"output_tokens: a number from 1 to {LONGEST}")
        arrival = one.get("arrival", 0.0)
        if type(arrival) not in (int, float) or not 0 <= arrival < math.inf:
            raise bad("arrival: seconds, from 0")
        priority, tenant = one.get("priority", 0), one.get("tenant")
        if type(priority) is not int or not (tenant is None or isinstance(tenant, str)):
            raise bad("priority: a whole number; tenant: a text")
        yield float(arrival), prompt, output, priority, tenant
