"""Fault injection: what of a kernel's text can be wrong without anybody noticing?

All mutants of a kernel are built at once: each place that a mutant changes asks at run time whether it is switched on.
A mutant is noticed by an error of the model, by wrong output, or by output that depends on the schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from . import source
from .errors import KernelFault, SourceError

_MOST_SITES = 8192  # kSites of include/ascsim/runtime.h
_SYNC = re.compile(
    r"^[ \t]*(asc_sync_(?:notify|wait)\((PIPE_\w+), (PIPE_\w+), .*\)"
    r"|asc_sync_(intra|inter)_(?:arrive|wait)\(PIPE_\w+, .*\)"
    r"|asc_(?:un)?lock\(.*\)"
    r"|asc_sync_pipe\(\w+\)"
    r"|asc_syncthreads\(\));[ \t]*$",
    re.M,
)


@dataclass(frozen=True)
class Change:
    """One operator: in calls of these functions this argument changes by so much."""

    operator: str
    functions: tuple[str, ...]
    argument: int
    delta: int


_COPIES_UB = ("asc_copy_gm2ub_align", "asc_copy_ub2gm_align")
_COPIES_L1 = ("asc_copy_gm2l1_nd2nz", "asc_copy_gm2l1_dn2nz")
_COPIES_L0 = tuple(f"asc_copy_l12l0{x}{t}" for x in "ab" for t in ("", "_transpose"))
_PRODUCTS = ("asc_mmad", "asc_mmad_mx")
CHANGES = (
    Change("bursts", (*_COPIES_UB, "asc_copy_ub2l1"), 2, -1),
    Change("length", _COPIES_UB, 3, -4),
    Change("length", ("asc_copy_ub2l1",), 3, -1),
    Change("stride", ("asc_copy_gm2ub_align",), 8, 32),
    Change("stride", ("asc_copy_ub2gm_align",), 5, 32),
    Change("stride", _COPIES_L1, 2, 32),
    Change("destination", (*_COPIES_UB, *_COPIES_L1, "asc_copy_l0c2gm", "asc_copy_l0c2ub"), 0, 32),
    Change("source", (*_COPIES_UB, *_COPIES_L1), 1, 32),
    Change("rows", _COPIES_L1, 4, -1),
    Change("columns", _COPIES_L1, 5, -1),
    Change("pitch", ("asc_set_gm2l1_nz_para",), 2, 1),
    Change("pitch", ("asc_copy_l0c2gm", "asc_copy_l0c2ub"), 4, 32),
    Change("pitch", ("asc_copy_l0c2gm", "asc_copy_l0c2ub"), 5, 16),
    Change("start", _COPIES_L0, 2, 1),
    Change("start", _COPIES_L0, 3, 1),
    Change("steps", _COPIES_L0, 4, -1),
    Change("steps", _COPIES_L0, 5, -1),
    Change("size", _PRODUCTS, 3, -1),
    Change("size", _PRODUCTS, 4, -16),
    Change("size", _PRODUCTS, 5, -1),
    Change("size", ("asc_copy_l0c2gm", "asc_copy_l0c2ub"), 2, -1),
    Change("size", ("asc_copy_l0c2gm", "asc_copy_l0c2ub"), 3, -1),
    Change("accumulate", _PRODUCTS, 9, -1),
    Change("accumulate", ("ascend_gemm_l1",), 3, -1),
)
# Operators on expressions: name, what is matched, what it becomes ({} is the site's number), change of the value.
_EXPRESSIONS = (
    ("clamp", re.compile(r"(?<![\w:])min\("), "ascsim::unclamped({}, ", 0),
    ("thread", re.compile(r"\(int32_t\)threadIdx\.x"), "ascsim::mutant({}, int32_t(threadIdx.x))", 1),
    ("block", re.compile(r"\(int32_t\)block_idx"), "ascsim::mutant({}, int32_t(block_idx))", 1),
)
_LOOP = re.compile(r"\bfor \(int32_t (\w+) = [^;]*; \1 < ")
_EVENT = re.compile(r"static_cast<event_t>\(")
OPERATORS = tuple(dict.fromkeys([c.operator for c in CHANGES] + [e[0] for e in _EXPRESSIONS] + ["loop", "event"]))
"""Index and size operators."""


@dataclass(frozen=True)
class Mutant:
    """Places to switch on together.

    Attributes:
        kind: "line" (one synchronisation), "pair" (all between two pipes, all of one kind), or an operator's name.
        sites: numbers of the places.
        delta: change of the value there.
        line: of the first place, in the kernel's text.
        text: what stands there.
        at: offset of the place in the kernel's text; -1 where a mutant has several.
    """

    kind: str
    sites: tuple[int, ...]
    delta: int
    line: int
    text: str
    at: int = -1


@dataclass(frozen=True)
class Schemata:
    """A text with all its mutants built in, and the mutants."""

    text: str
    mutants: tuple[Mutant, ...]


class _Edits:
    def __init__(self, text: str) -> None:
        self.text = text
        self.inserted: list[tuple[int, int, str]] = []  # place, order among those of one place, what
        self.sites = 0

    def site(self) -> int:
        self.sites += 1
        if self.sites > _MOST_SITES:
            raise SourceError(f"more than {_MOST_SITES} places to mutate")
        return self.sites - 1

    def wrap(self, start: int, end: int, before: str, after: str) -> None:
        self.inserted.append((start, -end, before))
        self.inserted.append((end, -start, after))

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def shown(self, at: int) -> str:
        start = self.text.rfind("\n", 0, at) + 1
        return self.text[start : self.text.find("\n", at)].strip()

    def result(self) -> str:
        # At one place: first the end of what is replaced, then what closes, inner before outer, then what opens, outer
        # before inner.
        def order(edit: tuple[int, int, str]) -> tuple[int, int, int]:
            place, among, what = edit
            return place, 0 if what == _DROP_CLOSE else 1 if what.startswith(")") else 2, among

        parts, last = [], 0
        for at, _, what in sorted(self.inserted, key=order):
            parts += [self.text[last:at], what]
            last = at
        return "".join([*parts, self.text[last:]])


def schemata(text: str) -> Schemata:
    """All mutants of a kernel's text.

    Raises:
        SourceError: the text has no kernel, or more places than fit.
    """
    source.signature(text)
    code = source.without_comments(text)
    edits = _Edits(text)
    mutants = _synchronisation(code, edits)
    for change in CHANGES:
        mutants += _arguments(code, edits, change)
    for operator, pattern, replacement, delta in _EXPRESSIONS:
        mutants += _expressions(code, edits, operator, pattern, replacement, delta)
    mutants += _loops(code, edits) + _events(code, edits)
    return Schemata(_replaced(edits), tuple(mutants))


def _replaced(edits: _Edits) -> str:
    text = edits.result()
    return text.replace(_DROP_OPEN, "/*").replace(_DROP_CLOSE, "*/")


_DROP_OPEN, _DROP_CLOSE = "\x01", "\x02"


def _synchronisation(code: str, edits: _Edits) -> list[Mutant]:
    lines: list[Mutant] = []
    groups: dict[str, list[Mutant]] = {}
    for m in _SYNC.finditer(code):
        site = edits.site()
        edits.inserted.append((m.start(1), 0, f"if (ascsim::keep({site})) "))
        mutant = Mutant("line", (site,), 0, edits.line(m.start(1)), edits.shown(m.start(1)))
        lines.append(mutant)
        name = m[1].split("(")[0].replace("unlock", "lock")
        groups.setdefault(f"{m[2]}->{m[3]}" if m[2] else f"{m[4]}-core" if m[4] else name, []).append(mutant)
    return lines + [
        Mutant("pair", tuple(s for m in group for s in m.sites), 0, group[0].line, name)
        for name, group in groups.items()
    ]


def _arguments(code: str, edits: _Edits, change: Change) -> list[Mutant]:
    found = []
    for m in re.finditer(rf"\b(?:{'|'.join(change.functions)})\s*(?:<[^;()]*>)?\(", code):
        spans = _spans(code, m.end() - 1)
        if change.argument >= len(spans):
            continue
        start, end = spans[change.argument]
        if code[start:end].strip() in ("0", "false") and change.delta < 0:
            continue
        site = edits.site()
        edits.wrap(start, end, f"ascsim::mutant({site}, ", ")")
        found.append(Mutant(change.operator, (site,), change.delta, edits.line(start), edits.shown(start), start))
    return found


def _spans(code: str, parenthesis: int) -> list[tuple[int, int]]:
    """Where the arguments of a call lie, without blanks around them."""
    end = source.closing(code, parenthesis)
    cuts, depth = [parenthesis], 0
    for i in range(parenthesis + 1, end):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            depth -= 1
        elif code[i] == "," and not depth:
            cuts.append(i)
    cuts.append(end)
    spans = []
    for a, b in zip(cuts, cuts[1:]):
        part = code[a + 1 : b]
        start = a + 1 + len(part) - len(part.lstrip())
        spans.append((start, start + len(part.strip())))
    return [span for span in spans if span[0] < span[1]]


def _expressions(
    code: str, edits: _Edits, operator: str, pattern: re.Pattern[str], replacement: str, delta: int
) -> list[Mutant]:
    found = []
    for m in pattern.finditer(code):
        site = edits.site()
        edits.inserted.append((m.start(), 1, replacement.format(site) + _DROP_OPEN))
        edits.inserted.append((m.end(), 0, _DROP_CLOSE))
        found.append(Mutant(operator, (site,), delta, edits.line(m.start()), edits.shown(m.start()), m.start()))
    return found


def _loops(code: str, edits: _Edits) -> list[Mutant]:
    found = []
    for m in _LOOP.finditer(code):
        end = code.index(";", m.end())
        site = edits.site()
        edits.wrap(m.end(), end, f"ascsim::mutant({site}, ", ")")
        found.append(Mutant("loop", (site,), -1, edits.line(m.start()), edits.shown(m.start()), m.start()))
    return found


def _events(code: str, edits: _Edits) -> list[Mutant]:
    found = []
    for m in _EVENT.finditer(code):
        end = source.closing(code, m.end() - 1)
        site = edits.site()
        edits.wrap(m.end(), end, f"ascsim::mutant({site}, int(", "))")
        found.append(Mutant("event", (site,), 1, edits.line(m.start()), edits.shown(m.start()), m.start()))
    return found


@dataclass(frozen=True)
class Verdict:
    """How a mutant was noticed: "error", "output" or "" for not at all; with the message."""

    mutant: Mutant
    noticed: str
    message: str


def judge(mutants: Iterable[Mutant], check: Callable[[Mutant], str]) -> list[Verdict]:
    """Try mutants one by one.

    Args:
        mutants: of the `schemata` whose text was built.
        check: runs the kernel with the mutant on; returns what is wrong with the outputs, or raises KernelFault.
    """
    found = []
    for mutant in mutants:
        try:
            message = check(mutant)
            found.append(Verdict(mutant, "output" if message else "", message))
        except KernelFault as error:
            found.append(Verdict(mutant, "error", str(error)))
    return found


# Rules by which a mutant changes nothing: name, what it says, and whether it holds for a mutant of a text.
_COPY = re.compile(r"\basc_copy_(gm2ub_align|ub2gm_align|gm2l1_nd2nz)\(")
# Which argument is the number of bursts (rows), and which are strides between them.
_STRIDES = {"gm2ub_align": (2, (8, 9)), "ub2gm_align": (2, (5, 6)), "gm2l1_nd2nz": (4, (2,))}
_LEADER = re.compile(r"\(int32_t\)threadIdx\.x\) % (\d+)\) == 0\)")
_WITHIN = re.compile(r"\(int32_t\)threadIdx\.x\) >> (\d+)\)")
_GROUP = re.compile(r"max\((?:\(int64_t\))?1, $")


def rule(mutant: Mutant, text: str) -> str:
    """The rule by which a mutant that nothing noticed is redundant, or "" for none.

    * "single burst": a copy of one burst (one row) has no second one for a stride to place, so whatever stands in its
      stride arguments is read by nobody.
    * "tile group": tilelang numbers tile x of T as (x / G) G + x % G with G = max(1, min(8, T)); the clamp gives
      something else than 8 only for T < 8, and then x < T has quotient 0 and remainder x with 8 as well. Where x >= T,
      the test before the tile stays false with 8 as factor or divisor of the remainder, and a loop bound only grows, by
      steps that this test skips. (The quotient's divisor in that test is no such place, and data shows it.)
    * "group leader": under `threadIdx.x % G == 0` the next thread has the same `threadIdx.x >> k`, 2^k <= G; and which
      of the G threads of a reduced value stores it changes nothing, as all of them hold it.
    * "race-free": between the barriers around an `asc_syncthreads` no two threads touch one byte, one of them changing
      it; the model checks this in every run, so one without the barrier that raises nothing proves it for its input.
    * "all-core barrier": the program waits for all cores between the same two pipes.
    """
    if _in_single_burst(mutant, text):
        return "single burst"
    if mutant.kind == "clamp" and mutant.at >= 0 and _GROUP.search(text[max(0, mutant.at - 20) : mutant.at]):
        return "tile group"
    if mutant.kind == "thread" and _of_a_leader(mutant, text):
        return "group leader"
    if "asc_syncthreads" in mutant.text:
        return "race-free"
    barrier = {m[1] for m in re.finditer(r"asc_sync_inter_(?:arrive|wait)\((PIPE_\w+)", text)}
    if mutant.kind in ("line", "pair") and barrier and barrier == set(re.findall(r"PIPE_\w+", mutant.text)):
        return "all-core barrier"
    return ""


def _of_a_leader(mutant: Mutant, text: str) -> bool:
    """Whether the place is the test that chooses one of G threads, or a number of the group under that test."""
    if mutant.at < 0:
        return False
    if _LEADER.match(text, mutant.at):
        return True
    code = source.without_comments(text)
    within = _WITHIN.match(code, mutant.at)
    tests = list(_LEADER.finditer(code, 0, mutant.at))
    if not within or not tests or (opening := code.find("{", tests[-1].end())) < 0:
        return False
    return opening < mutant.at < source.closing(code, opening) and 1 << int(within[1]) <= int(tests[-1][1])


def _in_single_burst(mutant: Mutant, text: str) -> bool:
    """Whether the place is inside a stride of a copy of one burst."""
    if mutant.at < 0:
        return False
    code = source.without_comments(text)
    start = code.rfind("\n", 0, mutant.at) + 1
    end = code.find("\n", mutant.at)
    for call in _COPY.finditer(code, start, end if end >= 0 else len(code)):
        spans = _spans(code, call.end() - 1)
        bursts, strides = _STRIDES[call[1]]
        if len(spans) <= max(bursts, *strides) or code[slice(*spans[bursts])].strip() != "1":
            continue
        if any(spans[i][0] <= mutant.at < spans[i][1] for i in strides):
            return True
    return False


def survivors(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those that nothing noticed."""
    return [v for v in verdicts if not v.noticed]
