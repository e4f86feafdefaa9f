"""Guards in Triton's interpreter: what it computes wrongly is an error there, and not a wrong number.

It keeps bf16 and fp8 numbers as integers. So it adds and compares their bits, cuts where it should round, and casts
integers to bf16 by taking their low bits. `portable` does such things on bits; whatever else reaches the interpreter
with these types is refused here, also casts that no source shows, such as a store of fp32 to a bf16 pointer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder

from ...hal.errors import KernelError

_FP8 = (tl.float8e4nv, tl.float8e5, tl.float8e4b15, tl.float8e4b8, tl.float8e5b16)
_NARROW = (tl.bfloat16, *_FP8)


def install() -> None:
    """Put the guards in place, once."""
    if getattr(InterpreterBuilder, "_guarded", False):
        return
    InterpreterBuilder._guarded = True
    _wrap("cast_impl", _check_cast)
    _wrap("create_fp_to_fp", _check_cast)
    _wrap("binary_op", lambda lhs, rhs, op: _check_arithmetic(lhs, getattr(op, "__name__", "arithmetic")))
    _wrap("create_dot", lambda a, *rest: _check_arithmetic(a, "dot"))
    _wrap("create_fma", lambda x, *rest: _check_arithmetic(x, "fma"))


def _wrap(name: str, check: Any) -> None:
    original = getattr(InterpreterBuilder, name)

    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(InterpreterBuilder, name, guarded)


def _check_cast(src: Any, dst_type: Any, rounding: Any = None) -> None:
    """Refuse a cast that the interpreter gets wrong. It is right where nothing is rounded or subnormal."""
    source, target = src.dtype.scalar, dst_type.scalar
    if source == target or (source not in _NARROW and target not in _NARROW):
        return
    data = src.data
    if not np.any(data):
        return
    if source == tl.float32 and target == tl.bfloat16:
        bits = np.asarray(data, np.float32).view(np.uint32)
        right = not np.any(bits & 0xFFFF) and not np.any((bits & 0x7F800000 == 0) & (bits & 0x7FFFFFFF != 0))
    elif source == tl.bfloat16 and target == tl.float32:
        right = not np.any((data & 0x7F80 == 0) & (data & 0x7FFF != 0))
    else:
        right = False
    if not right:
        raise KernelError(f"the interpreter casts {source} to {target} wrongly; backends/cuda/portable.py has casts")


def _check_arithmetic(operand: Any, what: str) -> None:
    kind = operand.dtype.scalar
    if kind in _NARROW:
        raise KernelError(
            f"the interpreter computes {what} of {kind} on bits; backends/cuda/portable.py has fp32 and dot"
        )
