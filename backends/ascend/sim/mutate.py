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
from .operators import (
    ADDRESS,
    ARRAY,
    CHANGES,
    EVENT,
    EXPRESSIONS,
    FILL,
    FILLED,
    LOOP,
    MIN,
    STEP,
    SUBSCRIPT,
    Change,
    Expression,
    pointers,
)
from .operators import OPERATORS as OPERATORS

_MOST_SITES = 8192  # kSites of include/ascsim/runtime.h
_SYNC = re.compile(
    r"^[ \t]*(?:(?:if|for) \([^{}\n]*\) )?(asc_sync_(?:notify|wait)\((PIPE_\w+), (PIPE_\w+), .*\)"
    r"|asc_sync_(intra|inter)_(?:arrive|wait)\(PIPE_\w+, .*\)"
    r"|asc_(?:un)?lock\(.*\)"
    r"|asc_sync_pipe\(\w+\)"
    r"|asc_syncthreads\(\));[ \t]*$",
    re.M,
)


_FUNCTION = re.compile(r"^\S[^\n]*[\w*&>] (\w+)\((?=[^;{}]*\{)", re.M)


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
        column: offset of the place in `text`; -1 likewise.
        function: name of the function that the place stands in, "" where a mutant has several places.
    """

    kind: str
    sites: tuple[int, ...]
    delta: int
    line: int
    text: str
    at: int = -1
    column: int = -1
    function: str = ""


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

    def changed(self, operator: str, span: tuple[int, int], delta: int, *, at: int = -1, kind: str = "") -> Mutant:
        """The mutant that changes the expression in `span`, taken as a `kind`; its place is `at`."""
        site, (start, end) = self.site(), span
        self.wrap(start, end, f"ascsim::mutant({site}, {kind}(", "))")
        at = start if at < 0 else at
        return Mutant(operator, (site,), delta, *self.where(at))

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def shown(self, at: int) -> str:
        start = self.text.rfind("\n", 0, at) + 1
        return self.text[start : self.text.find("\n", at)].strip()

    def where(self, at: int) -> tuple[int, str, int, int, str]:
        """Line, what stands there, offset in the text, offset in that, the function's name."""
        before = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        names = _FUNCTION.findall(self.text[:at])
        return self.line(at), self.shown(at), at, len(before.lstrip()), names[-1] if names else ""

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
    for expression in EXPRESSIONS:
        mutants += _expressions(code, edits, expression)
    for find in (_clamps, _loops, _events, _fills, _subscripts):
        mutants += find(code, edits)
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
        spans = source.arguments(code, m.end() - 1)
        if len(spans) < max(change.argument + 1, change.least):
            continue
        start, end = spans[change.argument]
        if code[start:end].strip() in ("0", "false") and change.delta < 0:
            continue
        found.append(edits.changed(change.operator, (start, end), change.delta))
    return found


def _expressions(code: str, edits: _Edits, expression: Expression) -> list[Mutant]:
    return [
        edits.changed(expression.operator, m.span("place"), expression.delta, at=m.start())
        for m in expression.pattern.finditer(code)
    ]


def _clamps(code: str, edits: _Edits) -> list[Mutant]:
    found = []
    for m in MIN.finditer(code):
        site = edits.site()
        edits.inserted.append((m.start(), 1, f"ascsim::unclamped({site}, {_DROP_OPEN}"))
        edits.inserted.append((m.end(), 0, _DROP_CLOSE))
        found.append(Mutant("clamp", (site,), 0, *edits.where(m.start())))
    return found


def _loops(code: str, edits: _Edits) -> list[Mutant]:
    found = []
    for m in LOOP.finditer(code):
        end = code.index(";", m.end())
        step = STEP.match(code, end)
        found.append(edits.changed("loop", (m.end(), end), -_number(code, step[1]) if step else -1, at=m.start()))
    return found


def _number(code: str, name: str) -> int:
    """A number, or the constant of that name; 1 for what is known at run time only."""
    constant = re.search(rf"\bconstexpr \w+ [^;]*?\b{name} = (\d+)[,;]", code)
    return int(name) if name.isdecimal() else int(constant[1]) if constant else 1


def _events(code: str, edits: _Edits) -> list[Mutant]:
    return [
        edits.changed("event", (m.end(), source.closing(code, m.end() - 1)), 1, at=m.start(), kind="int")
        for m in EVENT.finditer(code)
    ]


def _fills(code: str, edits: _Edits) -> list[Mutant]:
    found = []
    for opening in dict.fromkeys(source.fill_list(code, m.end() - 1) for m in FILL.finditer(code)):
        for (_, delta), (start, end) in zip(FILLED, source.arguments(code, opening)):
            start = code.find("=", start, end) + 1 or start  # behind a field's name
            found.append(edits.changed("fill", (start, end), delta, at=start, kind="uint64_t"))
    return found


def _subscripts(code: str, edits: _Edits) -> list[Mutant]:
    names, found = pointers(code), []
    for m in SUBSCRIPT.finditer(code):
        if ARRAY.search(code[max(code.rfind(x, 0, m.start()) for x in ";{}") + 1 : m.start()]):
            continue
        of = code[source.opening(code, m.start()) : m.start()] if m[1] is None else ""
        if m[1] in names or re.search(r"__(?:gm|ubuf)__", of):
            found.append(edits.changed("subscript", (m.end(), source.closing(code, m.end() - 1)), 1))
    for m in ADDRESS.finditer(code):
        found.append(edits.changed("subscript", (m.end(), source.closing(code, m.end() - 1)), 1))
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


def survivors(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those that nothing noticed."""
    return [v for v in verdicts if not v.noticed]
