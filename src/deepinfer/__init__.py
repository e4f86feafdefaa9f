"""DeepSeek-V4.1-Flash inference on several kinds of hardware, behind one versioned op contract.

The public names load on first use, so that `import deepinfer` needs neither torch nor a device.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runtime.async_llm import AsyncLLM
    from .runtime.llm import LLM
    from .runtime.outputs import RequestOutput
    from .runtime.params import SamplingParams

__version__ = "0.1.0.dev0"

__all__ = ["LLM", "AsyncLLM", "RequestOutput", "SamplingParams", "__version__"]

_LAZY_NAMES = {
    "AsyncLLM": ".runtime.async_llm",
    "LLM": ".runtime.llm",
    "RequestOutput": ".runtime.outputs",
    "SamplingParams": ".runtime.params",
}

if "torch" not in sys.modules and find_spec("torch_npu") is not None:
    # torch loads this extension by itself, and cannot be imported at all where CANN is missing beside it. The Ascend
    # backend loads it, once it knows that it fits; until then, or without it, the other backends work.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")


def __getattr__(name: str) -> Any:
    module = _LAZY_NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module, __name__), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY_NAMES))
