"""`jit`: what `triton.jit` is elsewhere, for kernels and for device helpers of this backend.

    @jit
    def scale(x_ptr, out_ptr, n, stride: tl.int64, BLOCK: tl.constexpr): ...

    scale[(blocks,)](x, out, n, x.stride(0), BLOCK=128, num_warps=4)

Differences from Triton's own decorator, all for kernels that never compile while they serve:

* Integers are not specialised by value: 1, 16 and 17 rows run the same binary. What is static is a `tl.constexpr`.
* An integer argument is 32 bits wide, unless it is annotated `tl.int64`; one that does not fit is refused by name.
  Triton would compile again for a value of 2^31.
* Tensors are specialised by dtype and by whether they begin on a 16-byte boundary, as ops do.
* Products and sums are not contracted, unless a launch says `enable_fp_fusion=True`.
* Binaries are kept by content, and `no_compile` turns any further compilation into an error. See `cache`.

With TRITON_INTERPRET=1 in the environment before triton is imported, kernels run in Triton's interpreter, on CPU
tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import triton
from triton import knobs
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import BaseBackend
from triton.runtime.driver import driver
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from ...hal.errors import InvalidArgumentError, KernelError

INTERPRETED = bool(knobs.runtime.interpret)

_INTEGERS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
_LAUNCH_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "launch_pdl"})

_DEFAULTS = {"enable_fp_fusion": False}
"""Options that do not follow Triton's defaults, which change: no contraction unless a kernel asks for it."""

_frozen = ""


def jit(fn: Callable[..., Any]) -> Any:
    """A kernel or a device helper: compiled for the GPU, or run by the interpreter under TRITON_INTERPRET=1."""
    return InterpretedKernel(fn) if INTERPRETED else CompiledKernel(fn)


@contextmanager
def no_compile(because: str = "the warm-up is over") -> Iterator[None]:
    """In a with block, a launch that would have to compile is an error that names the kernel and its signature.

    Args:
        because: why nothing may compile, for the message.
    """
    before = _frozen
    forbid_compiling(because)
    try:
        yield
    finally:
        forbid_compiling(before)


def forbid_compiling(because: str) -> None:
    """The state behind `no_compile`, for good: what an engine sets after its warm-up. '' allows compiling again."""
    global _frozen
    _frozen = because


def check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse a launch option that is none.

    Raises:
        InvalidArgumentError: names it, and those there are.
    """
    for option in options:
        if option not in _LAUNCH_OPTIONS:
            raise InvalidArgumentError(f"{name}: {option}", options[option], ", ".join(sorted(_LAUNCH_OPTIONS)))


def integer_type(annotation: str) -> str:
    """Triton's type of an integer argument, by the annotation alone: 32 bits without one."""
    return annotation if annotation in _INTEGERS else "i32"


def check_integer(kernel: str, name: str, value: int, kind: str) -> None:
    """Refuse an integer that its argument cannot hold.

    Raises:
        InvalidArgumentError: names the kernel, the argument and its range.
    """
    low = 0 if kind.startswith("u") else -(1 << _INTEGERS[kind])
    high = (1 << _INTEGERS[kind]) - 1
    if not low <= value <= high:
        hint = "" if kind.endswith("64") else "; annotated tl.int64 it takes 64 bits"
        raise InvalidArgumentError(f"{kernel}: {name}", value, f"{low} to {high}{hint}")


class InterpretedKernel(InterpretedFunction):  # type: ignore[misc]
    """A kernel in Triton's interpreter, with the integer widths of the compiled one."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self._kinds = _annotated(fn)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        positional = dict(zip(self.arg_names, args))
        check_options(self.__name__, {k: v for k, v in kwargs.items() if k not in self.arg_names})
        named = {k: v for k, v in kwargs.items() if k in self.arg_names}
        given = {k: self._as_declared(k, v) for k, v in {**positional, **named}.items()}
        super().run(grid=grid, warmup=warmup, **given)

    def _as_declared(self, name: str, value: Any) -> Any:
        if type(value) is not int or self._kinds[name] == "constexpr":
            return value
        kind = integer_type(self._kinds[name])
        check_integer(self.__name__, name, value, kind)
        return _scalar(value, kind) if kind != "i32" else value


def _scalar(value: int, kind: str) -> Any:
    """An integer of the interpreter that has a width of its own; it would give a small one 32 bits."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    dtype = tl.str_to_ty(kind, None)
    return tl.tensor(TensorHandle(np.array([value], dtype=dtype.name), dtype), dtype)


def _annotated(fn: Callable[..., Any]) -> dict[str, str]:
    """Triton's name of each parameter's annotation, '' where there is none."""
    from triton.runtime.jit import KernelParam

    params = inspect.signature(fn).parameters.values()
    kinds = {}
    for i, param in enumerate(params):
        record = KernelParam(i, param, False, False)
        kinds[param.name] = "constexpr" if record.is_constexpr else record.annotation
    return kinds


class CompiledKernel(JITFunction):  # type: ignore[misc]
    """A kernel that Triton compiles. `kernel[grid](...)` goes through a launcher made for its parameters."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self._ready: dict[Any, tuple[Any, Any, Any]] = {}
        self._launch: Callable[..., Any] | None = None

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        if self._launch is None:
            self._launch = _launcher(self)
        return partial(self._launch, grid)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        raise NotImplementedError("launch with kernel[grid](...); compile ahead with `build.compile_case`")

    def _prepare(self, key: Any, device: int, values: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Load or compile the binary of a launch that came for the first time."""
        check_options(self.__name__, options)
        types: dict[str, str] = {}
        constants: dict[str, Any] = {}
        for param in self.params:
            value = values[param.name]
            if param.is_constexpr or value is None:
                constants[param.name] = value
                types[param.name] = "constexpr"
            elif type(value) is int:
                types[param.name] = integer_type(param.annotation_type)
                check_integer(self.__name__, param.name, value, types[param.name])
            else:
                kind, aligned = native_specialize_impl(BaseBackend, value, False, True, True)
                types[param.name] = (param.annotation_type or kind) if not kind.startswith("*") else kind
                if kind.startswith("*") and aligned != "D":
                    types[param.name] += ":1"
        binary = compiled(self, driver.active.get_current_target(), types, constants, options)
        found = self._ready[key] = binary.run, binary.function, binary.packed_metadata
        return found


def compiled(
    kernel: CompiledKernel, target: Any, types: dict[str, str], constants: dict[str, Any], options: dict[str, Any]
) -> Any:
    """The binary of a kernel for a target, from the cache where it is there.

    Args:
        kernel: what to compile.
        target: triton's GPUTarget.
        types: Triton's type of every argument that is no constant, such as '*bf16' and 'i32'. Pointers are taken as
            aligned to 16 bytes; ':1' after the type says that one is not.
        constants: values of the `tl.constexpr` arguments and of optional ones that are None.
        options: launch options.

    Raises:
        KernelError: it would have to compile, and `no_compile` forbids it.
    """
    if _frozen:
        raise KernelError(f"{describe(kernel, types, constants, options)} is not compiled, and {_frozen}")
    from triton.backends.compiler import BaseBackend as Base
    from triton.compiler import ASTSource

    signature = {p.name: types[p.name].removesuffix(":1") if p.name in types else "constexpr" for p in kernel.params}
    signature.update(dict.fromkeys(constants, "constexpr"))
    attrs = {
        (i,): Base.parse_attr("D")
        for i, p in enumerate(kernel.params)
        if signature[p.name].startswith("*") and not types[p.name].endswith(":1")
    }
    options = {**_DEFAULTS, **options}
    source = ASTSource(kernel, signature, constants, attrs)
    return triton.compile(source, target=target, options=options)


def describe(kernel: Any, types: dict[str, str], constants: dict[str, Any], options: dict[str, Any]) -> str:
    """A kernel and one signature of it, in words."""
    arguments = [f"{k}: {v}" for k, v in types.items() if k not in constants]
    arguments += [f"{k}={v}" for k, v in constants.items()]
    chosen = ", ".join(f"{k}={v}" for k, v in options.items())
    return f"kernel {kernel.__module__}.{kernel.__name__}({', '.join(arguments)}){f' with {chosen}' if chosen else ''}"


_LAUNCHER = """
def launch(grid, {parameters}, **options):
    device = current_device()
    key = (device, {key}, *options.items())
    found = ready.get(key)
    if found is None:
        found = prepare(key, device, {{{values}}}, options)
    if callable(grid):
        grid = grid({{{values}}})
    size = len(grid)
    run, function, metadata = found
    run(grid[0], grid[1] if size > 1 else 1, grid[2] if size > 2 else 1, stream(device), function, metadata,
        None, None, None, {names})
"""


def _launcher(kernel: CompiledKernel) -> Callable[..., Any]:
    """The function behind `kernel[grid]`: finds the binary by dtypes, alignment and constants, and launches it.

    Its text is made for the parameters of the kernel, as in Triton, since a loop over them costs more than the launch.
    """
    space: dict[str, Any] = {
        "ready": kernel._ready,
        "prepare": kernel._prepare,
        "current_device": driver.active.get_current_device,
        "stream": driver.active.get_current_stream,
        "kind": native_specialize_impl,
        "Base": BaseBackend,
        "int": int,
    }
    parameters, key = [], []
    for param in kernel.params:
        name = param.name
        default = f"default_{name}"
        space[default] = param.default
        parameters.append(f"{name}={default}" if param.has_default else name)
        if param.is_constexpr:
            key.append(f"{name}.__class__, {name}")  # 1, 1.0 and True are equal, and not the same constant
        elif param.annotation_type not in _INTEGERS:
            key.append(f"kind(Base, {name}, False, {name}.__class__ is not int, True)")
    names = ", ".join(p.name for p in kernel.params)
    values = ", ".join(f"'{p.name}': {p.name}" for p in kernel.params)
    text = _LAUNCHER.format(parameters=", ".join(parameters), key=", ".join(key) or "0", values=values, names=names)
    exec(compile(text, f"<launcher of {kernel.__name__}>", "exec"), space)
    launch: Callable[..., Any] = space["launch"]
    return launch
