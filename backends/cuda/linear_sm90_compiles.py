"""What is compiled ahead for SM90 in CUDA C++: `linear_sm90.py`, `grouped_sm90.py`, `linear_wide_sm90.py`."""

from .grouped_sm90 import SOURCES as _GROUPED
from .linear_sm90 import SOURCES as _LINEAR
from .linear_wide_sm90 import SOURCES as _WIDE

SOURCES = [*_LINEAR, *_GROUPED, *_WIDE]
