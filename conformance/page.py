"""A report as one HTML page that needs nothing else: the matrix, worst cases, histograms, timing."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from ..hal.backend import LEVELS
from ..ops.spec import SPECS
from .evidence import CaseResult, Run
from .matrix import EDGES, Cell, Matrix
from .page_parts import SCRIPT, STYLE

SHORT = {
    "cross-compiled": "compiled",
    "device": "on chip",
}
"""Levels as chips of the table show them."""


def page(found: Matrix, made: str) -> str:
    """The page.

    Args:
        made: a line that says when and by what.
    """
    body = [
        "<header><h1>Conformance</h1>",
        f'<p class="sub">{escape(made)}</p><button id="theme" type="button">Dark or light</button></header>',
        _tiles(found),
        _runs(found.runs),
        _legend(),
        _filter(found),
        _table(found),
        _whole(found),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Conformance</title>'
        f"<style>{STYLE}</style></head>\n<body><main>\n{chr(10).join(body)}\n</main><script>{SCRIPT}</script></body></html>\n"
    )


def _tiles(found: Matrix) -> str:
    tiles = []
    for backend in found.backends:
        counts = found.counts(backend)
        total = sum(counts.values())
        bar = "".join(
            f'<span class="{_css(level)}" style="flex:{n}" title="{n} {level}"></span>' for level, n in counts.items()
        )
        parts = "".join(
            f'<li><i class="{_css(level)}"></i>{n} {escape(_words(found, backend, level))}</li>'
            for level, n in reversed(counts.items())
        )
        cases = [case for op in SPECS for case in found.cells[op, backend].cases] + list(found.whole.get(backend, ()))
        failed = sum(case.status == "failed" for case in cases)
        where = ", ".join(_places(found, backend))
        told = f"{len(cases):,} cases ({escape(where)}), {failed} failed" if cases else "no run given"
        tiles.append(
            f'<section class="tile"><h2>{escape(backend)}</h2><p class="sub{" bad" if failed else ""}">{told}</p>'
            f'<div class="bar" role="img" aria-label="{total} ops by level">{bar}</div><ul>{parts}</ul></section>'
        )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _runs(runs: Iterable[Run]) -> str:
    rows = []
    for run in runs:
        about = run.about if run.whole else f"{run.about}; broken off"
        when = run.date[:16].replace("T", " ")
        texts = (run.backend, run.kind, run.where, when, about, _count(run))
        rows.append(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>")
    if not rows:
        return "<p>No run or recording was given: levels are those that the project's own tests hold.</p>"
    head = "".join(f"<th>{name}</th>" for name in ("backend", "what", "level", "when", "with", "holds"))
    title = f"{len(rows)} runs and recordings behind this page" if len(rows) > 1 else "What is behind this page"
    table = f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<details><summary>{title}</summary><div class="scroll">{table}</div></details>'


def _count(run: Run) -> str:
    return f"{len(run.cases):,} cases, {run.tier}" if run.kind == "run" else f"{len(run.ops)} ops"


def _legend() -> str:
    words = {
        "specified": "in the contract, no kernel",
        "reference": "plain PyTorch",
        "cross-compiled": "built for the chip, without one",
        "lowered": "written as AscendC",
        "interpreted": "run in Triton's interpreter",
        "simulated": "run on the simulator",
        "device": "run on a chip",
    }
    items = "".join(
        f'<li><span class="level {_css(level)}">{escape(_level(level))}</span> {words[level]}</li>' for level in LEVELS
    )
    return f'<details class="legend"><summary>Levels</summary><ul>{items}</ul></details>'


def _filter(found: Matrix) -> str:
    return (
        '<div class="filter"><input id="find" type="search" placeholder="Find an op" aria-label="Find an op">'
        '<label><input id="failures" type="checkbox"> failures only</label>'
        f'<output id="shown">{sum(map(len, found.families.values()))} ops</output></div>'
    )


def _table(found: Matrix) -> str:
    suites = [suite for suite in found.suites if any(_has(found, b, suite) for b in found.backends)]
    shown = {b: [s for s in suites if _has(found, b, s)] for b in found.backends}
    top = "".join(
        f'<th class="first" colspan="{1 + len(shown[b])}">{escape(b)}{_how(found, b)}</th>' for b in found.backends
    )
    names = {b: "".join(f'<th class="suite"><span>{escape(s)}</span></th>' for s in shown[b]) for b in found.backends}
    sub = "".join(f'<th class="first">level</th>{names[b]}' for b in found.backends)
    width = 2 + sum(1 + len(shown[b]) for b in found.backends)
    rows = []
    for family, ops in found.families.items():
        rows.append(f'<tr class="family"><th colspan="{width}">{escape(family.replace("_", " "))}</th></tr>')
        for op in ops:
            rows.append(_row(found, op, shown))
            more = f'<div class="details">{_details(found, op)}</div>'
            rows.append(f'<tr class="more" hidden><td colspan="{width}">{more}</td></tr>')
    head = f'<tr><th rowspan="2">op</th><th rowspan="2">class</th>{top}</tr><tr>{sub}</tr>'
    return f'<table class="matrix"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'


def _words(found: Matrix, backend: str, level: str) -> str:
    """A level in words, with the chips of its ops."""
    cells = (found.cells[op, backend] for op in SPECS)
    return ", ".join(dict.fromkeys(cell.levels[-1] for cell in cells if cell.level == level))


def _places(found: Matrix, backend: str) -> list[str]:
    """How the cases of a backend ran, which need not be at the furthest level of its ops."""
    return list(dict.fromkeys(run.where for run in found.runs if run.backend == backend and run.cases))


def _how(found: Matrix, backend: str) -> str:
    where = _places(found, backend)
    return f' <small class="sub">cases: {escape(", ".join(where))}</small>' if where else ""


def _has(found: Matrix, backend: str, suite: str) -> bool:
    return any(case.suite == suite for op in SPECS for case in found.cells[op, backend].cases)


def _row(found: Matrix, op: str, shown: dict[str, list[str]]) -> str:
    cells = []
    failed = False
    for backend in found.backends:
        cell = found.cells[op, backend]
        all_of_it = escape(", ".join(cell.levels))
        level = f'<span class="level {_css(cell.level)}" title="{all_of_it}">{escape(_level(cell.level))}</span>'
        cells.append(f'<td class="first" data-backend="{escape(backend)}">{level}</td>')
        suites = cell.suites()
        for suite in shown[backend]:
            text, kind = _mark(suites.get(suite))
            failed |= kind == "bad"
            cells.append(f'<td class="mark {kind}" data-suite="{escape(suite)}">{text}</td>')
    label = SPECS[op].numerics.label
    return (
        f'<tr class="op" data-op="{escape(op)}"{" data-failed" if failed else ""}><th scope="row">'
        f'<button type="button" aria-expanded="false">{escape(op)}</button></th><td class="class">{label}</td>'
        f"{''.join(cells)}</tr>"
    )


def _mark(counts: dict[str, Any] | None) -> tuple[str, str]:
    """Text and kind of one suite's cell."""
    if counts is None:
        return "", "none"
    total = sum(counts[status] for status in ("passed", "failed", "skipped", "fallback"))
    if counts["failed"]:
        return f"{counts['failed']}/{total} ✗", "bad"
    if counts["passed"] == total:
        return f"{total} ✓", "good"
    return f"{counts['passed']}/{total}", "part"


def _details(found: Matrix, op: str) -> str:
    spec = SPECS[op]
    parts = [f"<p>{escape(spec.semantics.split('. ')[0].strip().rstrip('.'))}.</p>"]
    parts += [_of_cell(found.cells[op, backend], _how(found, backend)) for backend in found.backends]
    return "".join(parts)


def _of_cell(cell: Cell, how: str) -> str:
    body = [f"<h3>{escape(cell.backend)}</h3><p>{escape(', '.join(cell.levels))}</p>{how if cell.cases else ''}"]
    if any(case.worst is not None for case in cell.cases):
        body.append(_histogram(cell.histogram()))
    body.append(_cases(cell.worst()))
    why = sorted({case.why for case in cell.cases if case.why})
    if why:
        count = sum(case.status == "skipped" for case in cell.cases)
        items = "".join(f"<li>{escape(reason)}</li>" for reason in why)
        body.append(f"<details><summary>{count} skipped</summary><ul>{items}</ul></details>")
    timing = [f"{suite} {row['seconds']:.2f} s" for suite, row in cell.suites().items()]
    if timing:
        body.append(f'<p class="sub">Time: {escape(", ".join(timing))}</p>')
    return f'<section class="cell">{"".join(body)}</section>'


def _cases(cases: Iterable[CaseResult]) -> str:
    items = []
    for case in cases:
        share = "" if case.worst is None else f'<b class="share">{case.worst:.3g}</b> '
        found = "".join(f"<pre>{escape(text)}</pre>" for text in case.findings)
        bad = ' class="bad"' if case.status == "failed" else ""
        items.append(f"<li{bad}>{share}<code>{escape(case.suite)}/…/{escape(case.label)}</code>{found}</li>")
    title = "<h4>Worst cases, by share of the limit</h4>" if items else ""
    return f'{title}<ol class="worst">{"".join(items)}</ol>' if items else ""


def _histogram(bars: list[int]) -> str:
    """Bars of cases by their largest share of a limit."""
    top = max(bars) or 1
    names = [*(f"{edge:g}" for edge in EDGES), "more"]
    wide, high = 34, 52
    parts = []
    for n, (count, name) in enumerate(zip(bars, names, strict=True)):
        size = 0 if not count else max(2, round(high * count / top))
        kind = ' class="over"' if n == len(bars) - 1 else ""
        x = n * wide + 4
        place = f'x="{x}" y="{14 + high - size}" width="{wide - 8}" height="{size}"'
        parts.append(f"<rect{kind} {place}><title>{count} cases, up to {name}</title></rect>")
        parts += [f'<text x="{x + 13}" y="{10 + high - size}">{count}</text>'] if count else []
        parts.append(f'<text class="axis" x="{x + 13}" y="{28 + high}">{name}</text>')
    label = "Cases by the largest share of a limit that an element reached: so many up to each number"
    box = f'viewBox="0 0 {wide * len(bars)} {high + 32}" role="img" aria-label="{label}"'
    return f"<figure><svg {box}>{''.join(parts)}</svg><figcaption>{label}</figcaption></figure>"


def _whole(found: Matrix) -> str:
    rows = []
    for backend, cases in found.whole.items():
        for case in cases:
            text, kind = (case.status, {"passed": "good", "failed": "bad"}.get(case.status, "part"))
            share = "" if case.worst is None else f"{case.worst:.3g}"
            told = "; ".join([*case.findings, case.why, *case.notes]).strip("; ")
            rows.append(
                f'<tr><td>{escape(backend)}</td><td>{escape(case.id)}</td><td class="mark {kind}">{text}</td>'
                f"<td>{share}</td><td>{case.seconds:.1f} s</td><td>{escape(told)}</td></tr>"
            )
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in ("backend", "case", "", "share of limit", "time", "notes"))
    return (
        f'<h2>Whole models</h2><div class="scroll"><table class="plain"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _css(level: str) -> str:
    return f"l{LEVELS.index(level)}"


def _level(level: str) -> str:
    return SHORT.get(level, level)
