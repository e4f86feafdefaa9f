"""`jit`: what `triton.jit` is elsewhere, for kernels and for device helpers of this backend.

    @jit
    def scale(x_ptr, out_ptr, n, stride: tl.int64, BLOCK: tl.constexpr): ...

    scale[(blocks,)](x, out, n, x.stride(0), BLOCK=128, num_warps=4)

Differences from Triton's own decorator, all for kernels that never compile while they serve:

* Integers are not specialised by value: 1, 16 and 17 rows run the same binary. What is static is a `tl.constexpr`.
* An integer argument is 32 bits wide, unless it is annotated `tl.int64`; one that does not fit is refused by name.
  Triton would compile again for a value of 2^31.
* Tensors are specialised by dtype and by whether they begin on a 16-byte boundary, as ops do. Their parameters' names
  end in `_ptr`; None is allowed there, and is a constant.
* Products and sums are not contracted, unless a launch says `enable_fp_fusion=True`.
* Binaries are kept by content (`cache`), launched without Triton's driver (`launch`), and `binaries.no_compile`
  turns any further compilation into an error.

With TRITON_INTERPRET=1 in the environment before triton is imported, kernels run in Triton's interpreter, on CPU
tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from triton import knobs
from triton.backends.compiler import BaseBackend, GPUTarget
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, KernelParam, mangle_type

from ...hal.errors import InvalidArgumentError
from . import cache, interpreter, launch
from .binaries import check_may_compile

INTERPRETED = bool(knobs.runtime.interpret)

DEFAULTS: Mapping[str, Any] = {"num_warps": 4, "num_stages": 3, "enable_fp_fusion": False}
"""Launch options where a launch does not say. They do not follow Triton's, which change."""

_OPTIONS = (*DEFAULTS, "maxnreg")
INTEGERS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
"""Integer types, and the bits of their magnitudes."""

if INTERPRETED:
    interpreter.install()


def jit(fn: Callable[..., Any]) -> Any:
    """A kernel or a device helper: compiled for the GPU, or run by the interpreter under TRITON_INTERPRET=1."""
    return InterpretedKernel(fn) if INTERPRETED else CompiledKernel(fn)


def check_options(kernel: str, options: Mapping[str, Any]) -> None:
    """Refuse a launch option that is none.

    Raises:
        InvalidArgumentError: names it, and those there are.
    """
    for option in options:
        if option not in _OPTIONS:
            raise InvalidArgumentError(f"{kernel}: {option}", options[option], ", ".join(_OPTIONS))


def integer_type(annotation: str) -> str:
    """Triton's type of an integer argument, by the annotation alone: 32 bits without one."""
    return annotation if annotation in INTEGERS else "i32"


def check_integer(kernel: str, name: str, value: int, kind: str) -> None:
    """Refuse an integer that its argument cannot hold.

    Raises:
        InvalidArgumentError: names the kernel, the argument and its range.
    """
    low = 0 if kind.startswith("u") else -(1 << INTEGERS[kind])
    high = (1 << INTEGERS[kind]) - 1
    if not low <= value <= high:
        hint = "" if kind.endswith("64") else "; annotated tl.int64 it takes 64 bits"
        raise InvalidArgumentError(f"{kernel}: {name}", value, f"{low} to {high}{hint}")


def _kinds(fn: Callable[..., Any]) -> dict[str, str]:
    """Triton's name of each parameter's annotation: 'constexpr', a type, or '' where there is none."""
    records = (KernelParam(i, p, False, False) for i, p in enumerate(inspect.signature(fn).parameters.values()))
    return {r.name: "constexpr" if r.is_constexpr else r.annotation_type for r in records}


class InterpretedKernel(InterpretedFunction):  # type: ignore[misc]
    """A kernel in Triton's interpreter, with the integer widths and the refusals of the compiled one."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self.kinds = _kinds(fn)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        check_options(self.__name__, {k: v for k, v in kwargs.items() if k not in self.arg_names})
        given = {**dict(zip(self.arg_names, args)), **{k: v for k, v in kwargs.items() if k in self.arg_names}}
        super().run(grid=grid, warmup=warmup, **{k: self._as_declared(k, v) for k, v in given.items()})

    def _as_declared(self, name: str, value: Any) -> Any:
        _check_kind(self.__name__, name, self.kinds[name], value)
        if type(value) is not int or self.kinds[name] == "constexpr":
            return value
        kind = integer_type(self.kinds[name])
        check_integer(self.__name__, name, value, kind)
        return value if kind == "i32" else _scalar(value, kind)


def _check_kind(kernel: str, name: str, kind: str, value: Any) -> None:
    tensor, pointer = hasattr(value, "data_ptr"), name.endswith("_ptr")
    if tensor and not pointer:
        raise InvalidArgumentError(f"{kernel}: {name}", "a tensor", "a number; names of tensors end in _ptr")
    if pointer and not tensor and value is not None:
        raise InvalidArgumentError(f"{kernel}: {name}", value, "a tensor or None")
    if not pointer and kind != "constexpr" and type(value) not in (int, float, bool):
        raise InvalidArgumentError(f"{kernel}: {name}", value, "an int, a float or a bool")


def _scalar(value: int, kind: str) -> Any:
    """An integer of the interpreter that has a width of its own; it would give a small one 32 bits."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    dtype = tl.str_to_ty(kind, None)
    return tl.tensor(TensorHandle(np.array([value], dtype=dtype.name), dtype), dtype)


class CompiledKernel(JITFunction):  # type: ignore[misc]
    """A kernel that Triton compiles. `kernel[grid](...)` goes through a launcher made for its parameters."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self.kinds = _kinds(fn)
        self._launcher: Callable[..., Any] | None = None
        self._digest: str | None = None

    @property
    def cache_key(self) -> str:
        """Digest of what the kernel is, without paths and line numbers."""
        if self._digest is None:
            self._digest = "recursion"  # for the duration, if it calls itself
            self._digest = cache.source_digest(self)
        return self._digest

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        if self._launcher is None:
            self._launcher = launch.launcher(self)
        return launch.Bound(self._launcher, grid)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("launch with kernel[grid](...)")

    def prepare(self, device: int, values: Mapping[str, Any], options: Mapping[str, Any]) -> launch.Loaded:
        """Load the binary for a launch that came for the first time on a device; compile it where there is none.

        Raises:
            InvalidArgumentError: an argument, or a launch option, that cannot be.
            KernelError: it would have to compile, which `no_compile` forbids.
        """
        check_options(self.__name__, options)
        types: dict[str, str] = {}
        constants: dict[str, Any] = {}
        for name, kind in self.kinds.items():
            value = values[name]
            _check_kind(self.__name__, name, kind, value)
            if kind == "constexpr" or value is None:
                constants[name] = value
            elif type(value) is int:
                types[name] = integer_type(kind)
                check_integer(self.__name__, name, value, types[name])
            elif name.endswith("_ptr"):
                launch.check_device(self.__name__, name, value, device)
                types[name] = mangle_type(value) + ("" if value.data_ptr() % 16 == 0 else ":1")
            else:
                types[name] = kind or mangle_type(value)
        binary = binary_of(self, launch.arch(device), types, constants, options)
        passed = [
            types[n].removesuffix(":1") if n in types else None for n, k in self.kinds.items() if k != "constexpr"
        ]
        return launch.load(binary, device, passed)

    def refuse(self, values: Mapping[str, Any]) -> None:
        """Name the argument that does not fit its type.

        Raises:
            InvalidArgumentError: always.
        """
        for name, kind in self.kinds.items():
            if type(values[name]) is int and kind != "constexpr":
                check_integer(self.__name__, name, values[name], integer_type(kind))
        raise InvalidArgumentError(f"{self.__name__}: arguments", dict(values), "numbers that fit their types")


def binary_of(
    kernel: CompiledKernel,
    arch: int,
    types: Mapping[str, str],
    constants: Mapping[str, Any],
    options: Mapping[str, Any],
) -> cache.Binary:
    """The binary of a kernel, from the cache where it is there, else compiled and kept. Needs no GPU.

    Args:
        kernel: what to compile.
        arch: 90 or 100.
        types: Triton's type of every argument that is no constant, such as '*bf16' and 'i32'. Pointers are taken as
            aligned to 16 bytes; ':1' after the type says that one is not.
        constants: values of the `tl.constexpr` arguments, and None for optional pointers that are absent.
        options: launch options; `DEFAULTS` fill in.

    Raises:
        KernelError: it would have to compile, and `no_compile` forbids it.
    """
    options = {**DEFAULTS, **options}
    name = cache.key(kernel, types, constants, options, arch)
    found = cache.load(name)
    if found is None:
        check_may_compile(describe(kernel, types, constants, options))
        found = cache.compile_source(_source(kernel, types, constants), GPUTarget("cuda", arch, 32), dict(options))
        cache.store(name, found)
    return found


def _source(kernel: CompiledKernel, types: Mapping[str, str], constants: Mapping[str, Any]) -> Any:
    from triton.compiler import ASTSource

    signature = {name: types.get(name, "constexpr").removesuffix(":1") for name in kernel.kinds}
    attrs = {
        (i,): BaseBackend.parse_attr("D")
        for i, name in enumerate(kernel.kinds)
        if signature[name].startswith("*") and not types[name].endswith(":1")
    }
    return ASTSource(kernel, signature, dict(constants), attrs)


def describe(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """A kernel and one signature of it, in words."""
    arguments = [f"{k}: {v}" for k, v in types.items()] + [f"{k}={v}" for k, v in constants.items()]
    chosen = ", ".join(f"{k}={v}" for k, v in options.items())
    return f"kernel {kernel.__module__}.{kernel.__name__}({', '.join(arguments)}) with {chosen}"
