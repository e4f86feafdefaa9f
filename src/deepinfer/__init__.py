"""DeepSeek-V4.1-Flash inference on several kinds of hardware, behind one versioned op contract.

The public names load on first use, so that `import deepinfer` needs neither torch nor a device.
"""

from __future__ import annotations

from importlib import import_module
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


def __getattr__(name: str) -> Any:
    module = _LAZY_NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module, __name__), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY_NAMES))
