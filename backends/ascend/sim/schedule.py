"""Schedules: in which order ready instructions, cores and threads go.

A correct kernel gives the same bits under all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....hal.errors import InvalidArgumentError

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
CORES = ("AIC", "AIV0", "AIV1")
KINDS = ("eager", "lazy", "last", "first", "random")


@dataclass(frozen=True)
class Schedule:
    """One schedule.

    Attributes:
        kind: "eager" runs an instruction as soon as it is issued and ready; "lazy" lets programs run ahead and takes
            pipes in turn; "last" and "first" hold one pipe back or prefer it; "random" picks by `seed`.
        pipe: of "last" and "first".
        seed: of "random".
        late: "AIC", "AIV0" or "AIV1": that core goes on only when no other can; "" for none.
        reverse_cores: cores and blocks get their turn in the opposite order.
        reverse_threads: the threads of a SIMT function go from the last to the first.
        overlap: copies of one pipe that stand next to each other may complete in another order.
    """

    kind: str = "eager"
    pipe: str = "S"
    seed: int = 0
    late: str = ""
    reverse_cores: bool = False
    reverse_threads: bool = False
    overlap: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidArgumentError("kind", self.kind, ", ".join(KINDS))
        if self.pipe not in PIPES:
            raise InvalidArgumentError("pipe", self.pipe, ", ".join(PIPES))
        if self.late not in ("", *CORES):
            raise InvalidArgumentError("late", self.late, ", ".join(CORES))
        if self.seed < 0:
            raise InvalidArgumentError("seed", self.seed, "0 or more")

    def __str__(self) -> str:
        text = self.kind
        if self.kind in ("last", "first"):
            text += f":{self.pipe}"
        if self.kind == "random":
            text += f":{self.seed}"
        marks = {"cores": self.reverse_cores, "threads": self.reverse_threads, "overlap": self.overlap}
        late = [f"late-{self.late}"] if self.late else []
        return "+".join([text, *late, *(name for name, on in marks.items() if on)])


def parse(text: str) -> Schedule:
    """The schedule of a name as printed: `lazy`, `last:MTE2`, `random:7+overlap`, `eager+cores+threads`.

    Raises:
        InvalidArgumentError: no such schedule.
    """
    head, *marks = text.split("+")
    kind, _, detail = head.partition(":")
    allowed = "eager, lazy, last:PIPE, first:PIPE, random:SEED, then any of +late-CORE, +cores, +threads, +overlap"
    late = [mark.removeprefix("late-") for mark in marks if mark.startswith("late-")]
    marks = [mark for mark in marks if not mark.startswith("late-")]
    if len(late) > 1 or not set(late) <= set(CORES):
        raise InvalidArgumentError("schedule", text, allowed)
    if not set(marks) <= {"cores", "threads", "overlap"} or bool(detail) != (kind in ("last", "first", "random")):
        raise InvalidArgumentError("schedule", text, allowed)
    seed = 0
    if kind == "random":
        if not detail.isdecimal():
            raise InvalidArgumentError("schedule", text, allowed)
        seed = int(detail)
    pipe = detail if kind in ("last", "first") else "S"
    return Schedule(kind, pipe, seed, "".join(late), "cores" in marks, "threads" in marks, "overlap" in marks)


def deterministic() -> list[Schedule]:
    """All that use no random numbers."""
    pipes = PIPES[1:]
    found = [Schedule(), Schedule("lazy")]
    found += [Schedule("last", pipe) for pipe in pipes]
    found += [Schedule("first", pipe) for pipe in pipes]
    found += [Schedule(kind, reverse_cores=True, reverse_threads=True) for kind in ("eager", "lazy")]
    found += [Schedule(kind, late=core) for core in CORES for kind in ("eager", "lazy")]
    # Pipe MTE2 is on cores of both kinds: held back on one of them alone, beside a late core.
    found += [Schedule("last", "MTE2", late=core) for core in CORES]
    found += [Schedule("lazy", overlap=True), Schedule("lazy", overlap=True, reverse_cores=True)]
    found += [Schedule("last", pipe, overlap=True, reverse_threads=True) for pipe in ("V", "M", "MTE2", "MTE3")]
    return found


def schedules(seeds: int = 4) -> list[Schedule]:
    """All deterministic schedules and `seeds` random ones, half of which let copies overlap."""
    return deterministic() + [
        Schedule("random", seed=seed, overlap=seed % 2 == 1, reverse_threads=seed % 4 >= 2) for seed in range(seeds)
    ]
