"""Pareto plots: which points are on the frontier, and what is drawn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.bench.plot import AXES, frontier, page, svg
from deepinfer.runtime.bench.record import MixedVerificationError, record

NAME = "{http://www.w3.org/2000/svg}"


def made(tbt: float | None, rate: float, label: str = "a", verification: str = "fixed") -> dict[str, Any]:
    return record(
        mode="sweep", label=label, system={}, workload={}, warmup=0, point={"concurrency": rate},
        verification={"verification": verification}, results={"tbt": {"mean": tbt}, "output_tokens_per_s": rate},
    )  # fmt: skip


def best(points: list[tuple[float, float]], x: str, y: str) -> list[tuple[float, float]]:
    return [(a, b) for a, b, _ in frontier([(a, b, {}) for a, b in points], AXES[x], AXES[y])]


def test_the_frontier_holds_what_nothing_beats() -> None:
    points = [(1.0, 9.0), (2.0, 8.0), (2.0, 7.0), (3.0, 8.0), (4.0, 2.0), (3.5, 1.0)]
    assert best(points, "speed", "tokens_per_s") == [(1.0, 9.0), (3.0, 8.0), (4.0, 2.0)]
    # Less latency is better: what is on the other side of the cloud.
    assert best(points, "tbt_mean", "tokens_per_s") == [(1.0, 9.0)]
    assert best(points, "tbt_mean", "ttft_mean") == [(1.0, 9.0), (2.0, 7.0), (3.5, 1.0)]
    assert best([(1.0, 1.0), (1.0, 1.0)], "speed", "goodput") == [(1.0, 1.0)]


def test_a_plot_is_a_picture_by_itself() -> None:
    records = [made(0.1, 10), made(0.2, 15), made(0.4, 12), made(0.1, 4, "<b> & co"), made(None, 3)]
    text = svg(records)
    root = xml.fromstring(text)
    assert len(root.findall(f"{NAME}polyline")) == 2 and len(root.findall(f"{NAME}circle")) == 4
    assert not re.search(r"href|src=|@import|<script", text)
    hollow = [c for c in root.findall(f"{NAME}circle") if c.get("fill") == "white"]
    assert len(hollow) == 1 and "concurrency 12" in (hollow[0].findtext(f"{NAME}title") or "")
    for circle in root.findall(f"{NAME}circle"):
        assert 80 <= float(circle.get("cx", "")) <= 740 and 40 <= float(circle.get("cy", "")) <= 420
    legend = [t.text for t in root.findall(f"{NAME}text") if t.text and "verification" in t.text]
    assert legend == ["a (verification fixed)", "<b> & co (verification fixed)"]


def test_a_page_has_the_points_as_a_table() -> None:
    text = page([made(0.1, 10), made(0.2, 15), made(0.4, 12)])
    assert text.startswith("<!doctype html>") and text.count("<tr>") == 4 and text.count("<td>yes</td>") == 2


def test_fixed_and_variable_verification_are_never_one_curve() -> None:
    with pytest.raises(MixedVerificationError, match="'a'"):
        svg([made(0.1, 10), made(0.2, 15, verification="variable")])
    assert svg([made(0.1, 10), made(0.2, 15, "b", verification="variable")]).count("<polyline") == 2


def test_axes_and_records_that_are_none() -> None:
    with pytest.raises(InvalidArgumentError, match="--x: got 'nothing'"):
        svg([made(0.1, 10)], "nothing")
    with pytest.raises(InvalidArgumentError, match="records"):
        svg([made(None, 10)])
    assert "<circle" in svg([made(1.0, 0.0)]), "a rate of zero is a point"
