"""Generated dispatch: one function per op that finds the kernel of a call's static signature.

The generated function reads shapes, dtypes, layout and alignment once, looks the kernel up in a table, checks that the
dynamic dims agree, and calls. Everything else (validation in words, kernel selection) happens when a signature is first
seen or a check fails. Generating the source keeps a call at a few microseconds; `benchmarks/dispatch.py` measures it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..hal.registry import REGISTRY

if TYPE_CHECKING:
    from .spec import OpSpec

# A signature holds no row count, so a model has a few per op; the limit only bounds odd strides and alignments.
TABLE_LIMIT = 4096


def build_run(spec: OpSpec) -> Callable[..., Any]:
    """Compile the dispatch function of a spec: `run(*args in spec order, out=None, workspace=None)`."""
    source = generate(spec)
    table: dict[Any, Callable[..., Any]] = {}
    REGISTRY.on_change(table.clear)

    def miss(key: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
        fn = spec.kernel(*args).fn
        if len(table) >= TABLE_LIMIT:
            table.clear()
        table[key] = fn
        return fn

    def refuse(args: tuple[Any, ...], cause: BaseException | None = None) -> BaseException:
        from .check import check_call

        check_call(spec, args)  # raises the readable error
        return cause or spec.error("arguments changed while they were checked")

    def check_out(args: tuple[Any, ...], out: Any) -> None:
        from .check import bind_dims
        from .check import check_out as check

        device = next(
            a.device
            for a, d in zip(args, spec.args, strict=True)
            if hasattr(a, "device") and not getattr(d, "host", False)
        )
        check(spec, out, bind_dims(spec, args), device)

    # Underscores keep these apart from argument names such as `table` and `key`.
    scope: dict[str, Any] = {"_table": table, "_miss": miss, "_refuse": refuse, "_check_out": check_out}
    exec(compile(source, f"<dispatch of {spec.name}>", "exec"), scope)
    run: Callable[..., Any] = scope["run"]
    return run


def generate(spec: OpSpec) -> str:
    """Python source of a spec's dispatch function."""
    from .spec import HandleArg, TensorArg

    names = [a.name for a in spec.args]
    body: list[str] = []
    key: list[str] = []
    dynamic: dict[str, list[str]] = {}
    first = True
    for arg in spec.args:
        if isinstance(arg, HandleArg):
            key.append(f"{arg.name}.key")
        elif isinstance(arg, TensorArg):
            lines, entries, bound = _tensor_lines(spec, arg, first and not arg.host)
            first = first and arg.host
            body += lines
            key += entries
            for dim, variable in bound:
                dynamic.setdefault(dim, []).append(variable)
        elif arg.static:
            key += [arg.name, f"{arg.name}.__class__"]  # 1, 1.0 and True are equal keys
    checks = [f"{a} == {b}" for vs in dynamic.values() for a, b in zip(vs, vs[1:], strict=False)]
    args = ", ".join(names) + ("," if len(names) == 1 else "")
    lines = [
        f"def run({', '.join(names)}, out=None, workspace=None):",
        "    try:",
        *(f"        {line}" for line in body),
        f"        _key = ({', '.join(key)},)",
        "        _fn = _table.get(_key)",
        "    except (AttributeError, TypeError, ValueError) as error:",
        f"        raise _refuse(({args}), error) from None",
    ]
    if checks:
        lines += [f"    if not ({' and '.join(checks)}):", f"        raise _refuse(({args}))"]
    lines += [
        "    if _fn is None:",
        f"        _fn = _miss(_key, ({args}))",
        "    if out is not None:",
        f"        _check_out(({args}), out)",
        "    if workspace is None:",
        f"        return _fn({', '.join(names)}, out)",
        f"    return _fn({', '.join(names)}, out, workspace)",
    ]
    return "\n".join(lines) + "\n"


def _tensor_lines(spec: OpSpec, arg: Any, first: bool) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """Statements, key entries and (dynamic dim, variable) pairs for one tensor argument."""
    variables = [f"{arg.name}_{i}" for i in range(len(arg.dims))]
    unpack = f"{', '.join(variables)}, = {arg.name}.shape" if variables else ""
    static = [v for v, d in zip(variables, arg.dims, strict=True) if spec.is_static(d)]
    device = f"{arg.name}.device" if first else f"{arg.name}.get_device()"
    layout = f"{arg.name}.is_contiguous() or {arg.name}.stride()"
    entries = [f"{arg.name}.dtype", *static, device, layout, f"{arg.name}.data_ptr() & 15 == 0"]
    bound = [(d.text, v) for v, d in zip(variables, arg.dims, strict=True) if d.plain and not spec.is_static(d)]
    if not arg.optional:
        return [unpack] if unpack else [], entries, bound
    # An absent optional argument has one key entry; its dynamic dims are taken as equal to the others'.
    lines = [f"if {arg.name} is None:", f"    {arg.name}_key = None"]
    peers = _peers(spec, arg)
    lines += [f"    {v} = {peers.get(d, '0')}" for d, v in bound]
    lines += ["else:"] + ([f"    {unpack}"] if unpack else []) + [f"    {arg.name}_key = ({', '.join(entries)},)"]
    return lines, [f"{arg.name}_key"], [(d, v) for d, v in bound if d in peers]


def _peers(spec: OpSpec, arg: Any) -> dict[str, str]:
    """For each dynamic dim, a variable of an earlier required argument that binds it."""
    from .spec import TensorArg

    found: dict[str, str] = {}
    for other in spec.args:
        if other is arg:
            break
        if isinstance(other, TensorArg) and not other.optional:
            for i, dim in enumerate(other.dims):
                if dim.plain and not spec.is_static(dim):
                    found.setdefault(dim.text, f"{other.name}_{i}")
    return found
