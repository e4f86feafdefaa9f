"""What is compiled ahead of sparse attention in CUDA C++: every way, for both kinds of pages."""

from __future__ import annotations

from .attention_sm90 import SOURCES

__all__ = ["SOURCES"]
