"""Random requests, valid and broken, through the codec and through the original."""

from __future__ import annotations

import json
import random
from types import ModuleType

import pytest

from deepinfer.recipe.quirks import Quirks
from recipe_compare import as_text, convert_original, convert_ours
from recipe_requests import sample

QUIRKS = Quirks(refused_found_tools=True)


@pytest.mark.parametrize("protocol", ["chat", "messages", "responses"])
@pytest.mark.parametrize("part", range(4))
def test_conversions_are_equal(wheel: ModuleType, protocol: str, part: int) -> None:
    for seed in range(300 * part, 300 * (part + 1)):
        made = sample(protocol, random.Random(seed))
        body = json.dumps(made.body, ensure_ascii=False) if seed % 2 else made.body
        theirs = convert_original(wheel, protocol, body, made.options)
        ours = convert_ours(protocol, body, made.options, QUIRKS)
        assert as_text(ours) == as_text(theirs), (seed, made)
