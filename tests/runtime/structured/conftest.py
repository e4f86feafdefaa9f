"""One compiler for all tests: loading what it needs takes seconds."""

from __future__ import annotations

import pytest

from grammars import Compiler


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    pytest.importorskip("xgrammar", reason="needs xgrammar: install the structured extra")
    return Compiler()
