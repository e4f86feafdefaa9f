"""The reference on a GPU: the same model, the same rules. Needs the device; skipped elsewhere with a reason."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from golden_adapter import Adapter, factory
from released import GOLDEN_CHECKPOINT
from schedules import Driver, assert_same_caches, assert_same_logits, cuts

pytestmark = pytest.mark.gpu
LENGTH = 141


@pytest.fixture(scope="module")
def adapter() -> Adapter:
    return factory(str(GOLDEN_CHECKPOINT), "cuda")


def test_layer_pieces_agree_with_the_goldens(adapter: Adapter, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    golden = GOLDEN_CHECKPOINT.parent
    sys.path.insert(0, str(golden))
    try:
        import compare_model
    finally:
        sys.path.remove(str(golden))
    result = compare_model.run(adapter, str(golden), ["layers", "logits"])
    printed = capsys.readouterr().out
    assert result == {"layers": "PASS", "logits": "PASS"}, printed
    worst = re.findall(r"(\w[\w ]*?) (\d+\.\d+)", printed.split("worst error / limit: ")[1])
    assert len(worst) == 6 and all(float(value) <= 0.1 for _, value in worst), worst


@pytest.mark.parametrize("chunks", [(1, 90), (7, 13, 1, 30), (127, 1, 2)])
def test_chunking_changes_nothing(adapter: Adapter, chunks: tuple[int, ...]) -> None:
    tokens = np.random.default_rng(7).integers(3, 490, LENGTH).tolist()
    whole, cut = Driver(adapter.model), Driver(adapter.model)
    alone, track = whole.run(tokens), cut.run(tokens, cuts(LENGTH, *chunks))
    assert_same_logits(track, alone)
    assert_same_caches(cut.state(track), whole.state(alone))


def test_neighbours_change_nothing(adapter: Adapter) -> None:
    rng = np.random.default_rng(8)
    tokens, other = (rng.integers(3, 490, n).tolist() for n in (60, 130))
    alone = Driver(adapter.model).run(tokens)
    driver = Driver(adapter.model)
    rest, mine = driver.add(other), driver.add(tokens)
    work: list[tuple[Any, int]]
    for work, rows in (([(rest, 100), (mine, 33)], 160), ([(mine, 1), (rest, 30)], None), ([(mine, 26)], 32)):
        driver.step(work, rows=rows)
    assert_same_logits(mine, alone)
