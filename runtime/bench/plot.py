"""Pareto plots of records, as SVG that needs nothing else, or a page around it."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...hal.errors import InvalidArgumentError
from .record import check_curve

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 480, 80, 20, 40, 60
COLOURS = ("#1b6ca8", "#c0392b", "#1e8449", "#8e44ad", "#b9770e", "#34495e", "#d35400", "#16a085")


@dataclass(frozen=True)
class Axis:
    """A number of a record: how it is found, its title, and whether more of it is better."""

    path: tuple[str, ...]
    title: str
    more: bool
    inverse: bool = False

    def of(self, one: Mapping[str, Any]) -> float | None:
        """The number; None where the run has none."""
        value: Any = one["results"]
        for name in self.path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if type(value) not in (int, float) or not math.isfinite(value):
            return None
        if self.inverse:
            return 1 / value if value > 0 else None
        return float(value)


def _axes() -> dict[str, Axis]:
    found = {
        "tokens_per_s": Axis(("output_tokens_per_s",), "output tokens/s", True),
        "requests_per_s": Axis(("requests_per_s",), "requests/s", True),
        "goodput": Axis(("goodput", "requests_per_s"), "requests/s within the SLO", True),
        "goodput_ratio": Axis(("goodput", "ratio"), "part of the requests within the SLO", True),
        "speed": Axis(("tbt", "mean"), "tokens/s of a request (1 / mean TBT)", True, inverse=True),
    }
    for name in ("ttft", "tbt", "e2e"):
        for part in ("mean", "p50", "p90", "p95", "p99", "max"):
            found[f"{name}_{part}"] = Axis((name, part), f"{name.upper()} {part}, s", False)
    return found


AXES = _axes()

Point = tuple[float, float, Mapping[str, Any]]


def frontier(points: Sequence[Point], x: Axis, y: Axis) -> list[Point]:
    """The points that no other beats: none is at least as good in both and better in one. By x, equals once."""
    best: list[Point] = []

    def rank(point: Point) -> tuple[float, float]:
        return (-point[0] if x.more else point[0], -point[1] if y.more else point[1])

    for point in sorted(points, key=rank):
        if not best or rank(point)[1] < rank(best[-1])[1]:
            best.append(point)
    return sorted(best, key=lambda point: point[0])


def curves(records: Sequence[Mapping[str, Any]], x: str, y: str) -> dict[str, list[Point]]:
    """Points by label.

    Raises:
        InvalidArgumentError: an axis that there is none of, or no run that has both numbers.
        MixedVerificationError: one label stands for runs with different verification of drafts.
    """
    for name, axis in (("--x", x), ("--y", y)):
        if axis not in AXES:
            raise InvalidArgumentError(name, axis, f"one of {', '.join(AXES)}")
    check_curve(records)
    found: dict[str, list[Point]] = {}
    for one in records:
        across, up = AXES[x].of(one), AXES[y].of(one)
        if across is not None and up is not None:
            found.setdefault(one["label"], []).append((across, up, one))
    if not found:
        raise InvalidArgumentError("records", f"{len(records)} of them", f"at least one that has {x} and {y}")
    return found


def svg(records: Sequence[Mapping[str, Any]], x: str = "speed", y: str = "tokens_per_s") -> str:
    """A plot: the frontier of each label as a line, the points behind it hollow.

    Raises:
        InvalidArgumentError, MixedVerificationError: see `curves`.
    """
    found = curves(records, x, y)
    points = [point for some in found.values() for point in some]
    across, up = (
        _Scale([p[0] for p in points], LEFT, WIDTH - RIGHT),
        _Scale([p[1] for p in points], HEIGHT - BOTTOM, TOP),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_frame(across, up, AXES[x].title, AXES[y].title),
    ]
    for index, (label, some) in enumerate(found.items()):
        colour = COLOURS[index % len(COLOURS)]
        best = frontier(some, AXES[x], AXES[y])
        line = " ".join(f"{across.at(a):.1f},{up.at(b):.1f}" for a, b, _ in best)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for point in some:
            fill = colour if any(point is one for one in best) else "white"
            title = html.escape(f"{label} {_point(point[2])}: {point[0]:.6g}, {point[1]:.6g}")
            parts.append(
                f'<circle cx="{across.at(point[0]):.1f}" cy="{up.at(point[1]):.1f}" r="4" fill="{fill}" '
                f'stroke="{colour}"><title>{title}</title></circle>'
            )
        drafts = some[0][2]["verification"]["verification"]
        legend = html.escape(f"{label} (verification {drafts})")
        parts.append(f'<text x="{LEFT + 10}" y="{TOP + 14 + 16 * index}" fill="{colour}">{legend}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def page(records: Sequence[Mapping[str, Any]], x: str = "speed", y: str = "tokens_per_s") -> str:
    """The plot, and its points as a table, in HTML that needs nothing else."""
    rows = []
    for label, some in curves(records, x, y).items():
        best = frontier(some, AXES[x], AXES[y])
        for point in sorted(some, key=lambda one: one[0]):
            cells = (label, _point(point[2]), f"{point[0]:.6g}", f"{point[1]:.6g}", "yes" if point in best else "")
            rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    titles = ("label", "point", AXES[x].title, AXES[y].title, "on the frontier")
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>deepinfer bench</title>'
        "<style>body{font-family:sans-serif;max-width:60em;margin:1em auto}td,th{padding:.2em .8em;text-align:left}"
        f"</style></head><body>\n{svg(records, x, y)}<table><tr>{head}</tr>\n"
        + "\n".join(rows)
        + "</table></body></html>\n"
    )


def _point(one: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in one["point"].items()) or one["mode"]


class _Scale:
    """From numbers to places, from zero on, with round ticks."""

    def __init__(self, values: Sequence[float], begin: int, end: int) -> None:
        self.begin, self.end = begin, end
        largest = max(*values, 0.0) or 1.0
        step = 10.0 ** math.floor(math.log10(largest / 5))
        self.step = next(step * k for k in (1, 2, 5, 10, 20) if largest / (step * k) <= 6)
        self.top = self.step * math.ceil(largest / self.step)

    def at(self, value: float) -> float:
        return self.begin + (self.end - self.begin) * value / self.top

    @property
    def ticks(self) -> list[float]:
        return [self.step * index for index in range(round(self.top / self.step) + 1)]


def _frame(across: _Scale, up: _Scale, x: str, y: str) -> list[str]:
    parts = []
    for tick in across.ticks:
        at = across.at(tick)
        parts.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:.6g}</text>')
    for tick in up.ticks:
        at = up.at(tick)
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{tick:.6g}</text>')
    middle, side = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 16}" text-anchor="middle">{html.escape(x)}</text>')
    turned = f'transform="rotate(-90 18 {side})" text-anchor="middle"'
    parts.append(f'<text x="18" y="{side}" {turned}>{html.escape(y)}</text>')
    return parts
