"""Generated dispatch: one function per op that finds the kernel of a call's static signature.

The generated function reads shapes, dtypes, layout and alignment once, looks the kernel up in a table, checks that the
dynamic dims agree, and calls. Everything else (validation in words, kernel selection) happens when a signature is first
seen or a check fails. Generating the source keeps a call at a few microseconds; `benchmarks/dispatch.py` measures it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..hal.registry import REGISTRY

if TYPE_CHECKING:
    from .spec import OpSpec, ScalarArg, TensorArg

# A signature holds no row count, so a model has a few per op; the limit only bounds odd strides and alignments.
TABLE_LIMIT = 4096


def ceil(a: int, b: int) -> int:
    """a / b rounded up: what `ceil(a,b)` means in a dim."""
    return -(-a // b)


def build_run(spec: OpSpec) -> Callable[..., Any]:
    """Compile the dispatch function of a spec: `run(*args in spec order, out=None, workspace=None)`."""
    source = generate(spec)
    table: dict[Any, Callable[..., Any]] = {}
    lock, changes = threading.Lock(), 0

    def changed() -> None:
        nonlocal changes
        with lock:
            changes += 1
            table.clear()

    REGISTRY.on_change(changed)

    def miss(key: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
        before = changes
        fn = spec.kernel(*args).fn
        with lock:
            if len(table) >= TABLE_LIMIT:
                table.clear()
            if changes == before:  # else another thread changed the registry since: select anew next time
                table[key] = fn
        return fn

    def refuse(args: tuple[Any, ...], cause: BaseException | None = None) -> BaseException:
        from .check import check_call

        check_call(spec, args)  # raises the readable error
        return cause or spec.error("arguments changed while they were checked")

    def check_out(args: tuple[Any, ...], out: Any) -> None:
        from .check import check_out as check

        check(spec, args, out)

    # Underscores keep these apart from argument names such as `table` and `key`.
    scope: dict[str, Any] = {"_table": table, "_miss": miss, "_refuse": refuse, "_check_out": check_out, "ceil": ceil}
    exec(compile(source, f"<dispatch of {spec.name}>", "exec"), scope)
    run: Callable[..., Any] = scope["run"]
    return run


def generate(spec: OpSpec) -> str:
    """Python source of a spec's dispatch function."""
    from .spec import HandleArg, TensorArg

    names = [a.name for a in spec.args]
    body: list[str] = []
    key: list[str] = []
    first = True
    for arg in spec.args:
        if isinstance(arg, HandleArg):
            key.append(f"{arg.name}.key")
        elif isinstance(arg, TensorArg):
            lines, entries = _tensor_lines(spec, arg, first and not arg.host)
            first = first and arg.host
            body += lines
            key += entries
        else:
            # 1, 1.0 and True are equal keys; the class also keeps what is no number from a kernel seen before.
            key += [arg.name, f"{arg.name}.__class__"] if arg.static else [f"{arg.name}.__class__"]
    checks = _dynamic_checks(spec)
    args = ", ".join(names) + ("," if len(names) == 1 else "")
    lines = [
        f"def run({', '.join(names)}, out=None, workspace=None):",
        "    try:",
        *(f"        {line}" for line in body),
        f"        _key = ({', '.join(key)},)",
        "        _fn = _table.get(_key)",
        f"        _agree = {' and '.join(checks) or 'True'}",
        "    except (AttributeError, TypeError, ValueError) as error:",
        f"        raise _refuse(({args}), error) from None",
        "    if not _agree:",
        f"        raise _refuse(({args}))",
        "    if _fn is None:",
        f"        _fn = _miss(_key, ({args}))",
        "    if out is not None:",
        f"        _check_out(({args}), out)",
        "    if workspace is None:",
        f"        return _fn({', '.join(names)}, out)",
        f"    return _fn({', '.join(names)}, out, workspace)",
    ]
    return "\n".join(lines) + "\n"


def _variables(arg: TensorArg) -> list[str]:
    """Names of the local variables that hold an argument's sizes."""
    return [f"{arg.name}_{i}" for i in range(len(arg.dims))]


def _tensor_lines(spec: OpSpec, arg: TensorArg, first: bool) -> tuple[list[str], list[str]]:
    """Statements that read one tensor argument, and its entries of the key."""
    variables = _variables(arg)
    unpack = [f"{', '.join(variables)}, = {arg.name}.shape"] if variables else []
    static = [v for v, d in zip(variables, arg.dims, strict=True) if spec.is_static(d)]
    device = f"{arg.name}.device" if first else f"{arg.name}.get_device()"
    layout = f"{arg.name}.is_contiguous() or {arg.name}.stride()"
    entries = [f"{arg.name}.dtype", *static, device, layout, f"{arg.name}.data_ptr() & 15 == 0"]
    if not arg.optional:
        return unpack, entries
    inner = [*unpack, f"{arg.name}_key = ({', '.join(entries)},)"]
    return [f"if {arg.name} is None:", f"    {arg.name}_key = None", "else:", *(f"    {x}" for x in inner)], [
        f"{arg.name}_key"
    ]


def _range_check(arg: ScalarArg) -> str:
    """The range of a scalar that no key holds. Chained comparisons are false for NaN."""
    from .check import scalar_range

    low, high = scalar_range(arg)
    return f"{low!r} <= {arg.name} <= {high!r}"


def _dynamic_checks(spec: OpSpec) -> list[str]:
    """Conditions on the sizes that no key holds: every dynamic dim agrees with where it was first bound.

    An absent optional argument satisfies its conditions. Dims that only optional arguments bind are compared among
    those that are present.
    """
    from .spec import ScalarArg, TensorArg

    tensors = [a for a in spec.args if isinstance(a, TensorArg)]
    bound = {a.name: a.name for a in spec.args if isinstance(a, ScalarArg) and a.type is int}
    for arg in (a for a in tensors if not a.optional):
        for dim, variable in zip(arg.dims, _variables(arg), strict=True):
            if dim.plain:
                bound.setdefault(dim.text, variable)
    checks: list[str] = [_range_check(a) for a in spec.args if isinstance(a, ScalarArg) and not a.static]
    loose: dict[str, tuple[TensorArg, str]] = {}
    for arg in tensors:
        absent = f"{arg.name} is None or " if arg.optional else ""
        for dim, variable in zip(arg.dims, _variables(arg), strict=True):
            if spec.is_static(dim) or bound.get(dim.text) == variable:
                continue
            if all(name in bound for name in dim.names):
                checks.append(f"({absent}{variable} == {dim.substitute(bound)})")
            elif dim.plain and dim.text in loose:
                other, peer = loose[dim.text]
                checks.append(f"({absent}{other.name} is None or {variable} == {peer})")
            elif dim.plain:
                loose[dim.text] = (arg, variable)
    return checks
