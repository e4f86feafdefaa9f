"""The text of a new kernel: what `deepinfer port new` writes, made from the op's spec."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import torch

from ..hal.contract import CONTRACT_VERSION
from ..ops.spec import Arg, HandleArg, OpSpec, Result, ScalarArg, TensorArg

WIDTH = 116
DEVICE_TYPES = {"cuda": "cuda", "ascend": "npu"}
"""Torch device types of backends that are named after their hardware; others start on the CPU."""


def module(spec: OpSpec, backend: str, package: str) -> str:
    """A module with one kernel.

    Args:
        package: how the module imports deepinfer: 'deepinfer' from outside, '...' inside the repository.
    """
    title = spec.family.replace("_", " ").capitalize()
    imports = [f"from {_from(package, 'hal.registry')} import kernel"]
    if spec.handle:
        imports.append(f"from {_from(package, 'ops.spec')} import WeightHandle")
    tensor = "from torch import Tensor"
    # Import order as linters want it: one block of packages, the repository's own modules in a block after it.
    block = [tensor, "", *imports] if package.endswith(".") else [*imports, tensor]
    return (
        f'"""{title}: kernels of the backend {backend}."""\n\nfrom __future__ import annotations\n\n'
        + "\n".join(block)
        + f"\n\n\n{function(spec, backend)}"
    )


def function(spec: OpSpec, backend: str) -> str:
    """The registration and an empty body; comments say what the spec says of each argument."""
    about_out = "what to return, where it is not None" if spec.outs else "always None: the op writes its arguments"
    arguments = [*map(_argument, spec.args), ("out", _out_type(spec), about_out)]
    lines = [f'@kernel("{spec.name}", version={spec.version}, backend="{backend}")', f"def {spec.name}("]
    lines += [f"    {name}: {kind},  # {about}" for name, kind, about in arguments]
    if len(spec.outs) > 1:
        lines += [") -> tuple[", *(f"    Tensor,  # {o.name}" for o in spec.outs), "]:"]
    else:
        lines += [f") -> {'Tensor' if spec.outs else 'None'}:"]
    lines += _docstring(spec)
    lines += _notes(spec)
    lines += [f'    raise NotImplementedError("the kernel of {spec.name} is still to be written")', ""]
    return "\n".join(lines)


def backend_module(backend: str, package: str, inside: bool) -> str:
    """`__init__.py` of a new backend: probe, kernel modules, self-test."""
    home = "..." if inside else "deepinfer"
    name = "".join(part.capitalize() for part in backend.replace("-", "_").split("_"))
    return textwrap.dedent(
        f'''\
        """The backend {backend}."""

        from __future__ import annotations

        from {_from(home, "hal.backend")} import Available, Backend, Unavailable
        from {_from(home, "hal.device")} import Device


        class {name}Backend(Backend):
            """Runs where `probe` says so."""

            name = "{backend}"
            contract_version = {CONTRACT_VERSION}
            device_type = "{DEVICE_TYPES.get(backend, "cpu")}"  # the torch device type its tensors live on
            package = __name__
            kernel_modules = ()

            def probe(self) -> Available | Unavailable:
                # Say here what is missing and how to get it; quickly, without touching the device. Where this says
                # Available and the hardware is found, the backend is used without being asked for.
                return Available()

            def self_test(self, device: Device) -> None:
                # Compute something known through the kernels that will be used, and compare it with
                # hal.backend.known_answer: a binary for another chip then fails by name, at load.
                return None


        backend = {name}Backend()
        '''
    )


def test_module(ops: Iterable[str], backend: str, inside: bool) -> str:
    """A test that holds the kernels to the contract."""
    listed = ", ".join(f'"{op}"' for op in ops)
    between = "\n        " if inside else ""  # linters sort a repository's own modules apart
    return textwrap.dedent(
        f'''\
        """The kernels of the backend {backend} keep the op contract."""

        import pytest
        {between}from deepinfer.conformance.run import Request, run

        OPS = [{listed}]


        @pytest.mark.parametrize("op", OPS)
        def test_the_kernel_keeps_the_contract(op: str) -> None:
            verdict = run(Request("{backend}", ops=(op,)))
            assert not verdict.failed, verdict.report()
            assert verdict.passed, verdict.report()  # where the kernel declines every call, nothing was judged
        '''
    )


def project_file(backend: str, package: str) -> str:
    """pyproject.toml of an out-of-tree backend."""
    return textwrap.dedent(
        f"""\
        [build-system]
        requires = ["setuptools>=77"]
        build-backend = "setuptools.build_meta"

        [project]
        name = "deepinfer-{backend.replace("_", "-")}"
        version = "0.1.0"
        description = "A backend for deepinfer"
        requires-python = ">=3.11"
        dependencies = ["deepinfer-hal", "torch>=2.7"]

        # deepinfer finds the backend by this entry point.
        [project.entry-points."deepinfer.backends"]
        {backend} = "{package}:backend"

        [tool.setuptools.packages.find]
        where = ["src"]
        """
    )


def _from(package: str, module: str) -> str:
    return f"{package}{module}" if package.endswith(".") else f"{package}.{module}"


def _argument(arg: Arg) -> tuple[str, str, str]:
    """Name, annotation and comment of an argument."""
    if isinstance(arg, ScalarArg):
        allowed = f", one of {', '.join(map(str, arg.choices))}" if arg.choices else ""
        allowed += "" if arg.static else ", not part of the signature"
        return arg.name, arg.type.__name__ + (" | None" if arg.optional else ""), f"scalar{allowed}"
    if isinstance(arg, HandleArg):
        return arg.name, "WeightHandle", ".tensors holds the weight, as said below"
    notes = ["written" if arg.mutable else "", "rows may be strided" if arg.layout == "rows" else ""]
    notes += ["in host memory" if arg.host else ""]
    about = ", ".join(filter(None, [_shape(arg), *notes]))
    return arg.name, "Tensor | None" if arg.optional else "Tensor", about


def _shape(arg: TensorArg | Result) -> str:
    return f"{_dtypes(arg.dtypes)} [{', '.join(d.text for d in arg.dims)}]"


def _dtypes(dtypes: Iterable[torch.dtype]) -> str:
    return " or ".join(str(d).removeprefix("torch.") for d in dtypes)


def _out_type(spec: OpSpec) -> str:
    return {0: "None", 1: "Tensor | None"}.get(len(spec.outs), "tuple[Tensor, ...] | None")


def _docstring(spec: OpSpec) -> list[str]:
    text = textwrap.wrap(spec.semantics.replace("\\", "\\\\"), WIDTH - 3)
    return [f'    """{text[0]}', *(f"    {line}" for line in text[1:]), '    """'] if text else []


def _notes(spec: OpSpec) -> list[str]:
    outs = "; ".join(f"{o.name} {_shape(o)}" for o in spec.outs)
    notes = [f"Returns {outs}."] if outs else []
    notes += [
        f"Numerics: {spec.numerics.label}. A row's bits depend on that row alone: not on the number of rows, on its "
        "place, or on what other rows and padding hold."
    ]
    if spec.handle is not None:
        parts = "; ".join(f"{p.name} {_shape(p)}" for p in spec.handle.parts)
        notes.append(
            f"The weight: {parts}. `prepare=` and `layout=` of the decorator bring it into a layout of your own, once, "
            "at load; without them .tensors holds just that."
        )
    wrapped = [line for note in notes for line in textwrap.wrap(note, WIDTH - 2)]
    return [f"    # {line}" for line in wrapped]
