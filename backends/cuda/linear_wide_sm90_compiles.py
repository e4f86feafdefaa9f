"""What is compiled ahead for SM90 of `linear_wide_sm90.py`."""

from .linear_wide_sm90 import SOURCES

__all__ = ["SOURCES"]
