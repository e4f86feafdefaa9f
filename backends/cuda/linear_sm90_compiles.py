"""What is compiled ahead of few rows on SM90: `linear_sm90.py` and `grouped_sm90.py`."""

from .grouped_sm90 import SOURCES as _GROUPED
from .linear_sm90 import SOURCES as _LINEAR

SOURCES = [*_LINEAR, *_GROUPED]
