"""Import rules that the layer check cannot see: device packages and branches, and how imports are spelled."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# folder -> the folders it may import
ALLOWED = {
    "hal": {"hal"},
    "ops": {"hal", "ops"},
    "backends": {"backends", "hal", "ops"},
    "model": {"hal", "model", "ops"},
    "runtime": {"hal", "model", "ops", "runtime"},
    "conformance": {"conformance", "hal", "model", "ops", "recipe"},
    "recipe": {"recipe"},
}
FOLDERS = set(ALLOWED)
DEVICE_FOLDERS = {"backends", "hal"}
DEVICE_PACKAGES = {"cupy", "tilelang", "torch_npu", "triton"}
DEVICE_NAMES = {"cuda", "npu"}
DEVICE_FLAGS = {"is_cuda", "is_npu"}
GPU_BENCHMARK = re.compile(r"benchmarks/(cuda_\w+|slice(_\w+)?)\.py")
"""Benchmarks of one GPU measure the device: its events, its caches, its graphs. Only benchmarks import them."""


def may_use_devices(name: str) -> bool:
    return folder_of(name) in {*DEVICE_FOLDERS, "tests"} or GPU_BENCHMARK.fullmatch(name) is not None


def folder_of(name: str) -> str:
    """The part of the project that the file belongs to: a top folder, or `package` for src/deepinfer."""
    return "package" if name.startswith("src/deepinfer/") else name.split("/")[0]


def module_of(name: str) -> list[str]:
    """The package that relative imports of the file start from."""
    parts = name.removeprefix("src/deepinfer/").split("/")[:-1]
    return ["deepinfer", *parts]


def imported(node: ast.AST, name: str) -> Iterator[str]:
    """Absolute dotted names that a node imports; for `from a import b` both a and a.b, as b may be a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = module_of(name)
        base = package[: len(package) - node.level + 1] if node.level else []
        stem = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
        yield stem
        yield from (f"{stem}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function in ("import_module", "__import__", "importorskip") and isinstance(node.args[0].value, str):
            yield node.args[0].value


def absolute(node: ast.AST) -> bool:
    return isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.level == 0)


def import_faults(node: ast.AST, name: str) -> Iterator[str]:
    folder = folder_of(name)
    for target in imported(node, name):
        parts = target.split(".")
        if parts[0] in FOLDERS and absolute(node):
            yield f"imports {target}: the only import name is deepinfer"
        if parts[0] in DEVICE_PACKAGES and not may_use_devices(name):
            yield f"imports {target} outside hal and backends"
        if parts[0] == "torch" and folder == "recipe":
            yield "imports torch in recipe"
        if parts[:2] in (["torch", "cuda"], ["torch", "npu"]) and not may_use_devices(name):
            yield f"imports {target} outside hal and backends"
        if parts[0] == "deepinfer" and (folder in FOLDERS or folder == "package"):
            if absolute(node):
                yield f"imports {target} absolutely: use a relative import"
            elif folder in FOLDERS and len(parts) > 1 and parts[1] in FOLDERS:
                server = name.startswith("runtime/server") and parts[1] == "recipe"
                if parts[1] not in ALLOWED[folder] and not server:
                    yield f"{folder} imports {parts[1]}"


def device_faults(node: ast.AST, name: str) -> Iterator[str]:
    if may_use_devices(name):
        return
    if isinstance(node, ast.Attribute):
        if node.attr in DEVICE_FLAGS:
            yield f"asks {node.attr} outside hal and backends"
        if node.attr in DEVICE_NAMES and isinstance(node.value, ast.Name) and node.value.id == "torch":
            yield f"uses torch.{node.attr} outside hal and backends"
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in DEVICE_NAMES:
            yield f"calls .{node.func.attr}() outside hal and backends"
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and len(node.args) > 1:
            asked = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            if asked in DEVICE_NAMES | DEVICE_FLAGS:
                yield f"asks for {asked} outside hal and backends"
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        typed = any(isinstance(side, ast.Attribute) and side.attr == "type" for side in sides)
        if typed and any(isinstance(part, ast.Constant) and part.value in DEVICE_NAMES for part in ast.walk(node)):
            yield "branches on the device type outside hal and backends"


def faults(source: str, name: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        for fault in (*import_faults(node, name), *device_faults(node, name)):
            found.append(f"{name}:{getattr(node, 'lineno', 0)}: {fault}")
    return found


def test_every_file_keeps_the_rules(root: Path, files: list[Path]) -> None:
    found = []
    checked = 0
    for path in files:
        name = path.relative_to(root).as_posix()
        if path.suffix == ".py":
            checked += 1
            found += faults(path.read_text(encoding="utf-8"), name)
    assert checked > 20
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ops/a.py", "import triton"),
        ("model/a.py", "def f():\n    import triton.language as tl"),
        ("runtime/a.py", "from torch_npu import npu"),
        ("runtime/a.py", "import importlib\nimportlib.import_module('cupy')"),
        ("ops/a.py", "import torch\ntorch.cuda.synchronize()"),
        ("ops/a.py", "from torch import cuda"),
        ("ops/a.py", "import torch.npu"),
        ("model/a.py", "def f(x): return x.is_cuda"),
        ("model/a.py", "def f(x): return getattr(x, 'is_npu', False)"),
        ("model/a.py", "def f(x): return x.cuda()"),
        ("runtime/a.py", "def f(x): return x.device.type == 'cuda'"),
        ("runtime/a.py", "def f(x): return x.device.type in ('cuda', 'npu')"),
        ("src/deepinfer/cli/a.py", "import torch\ntorch.cuda.is_available()"),
        ("examples/a.py", "import torch_npu"),
        ("benchmarks/dispatch.py", "import torch\ntorch.cuda.synchronize()"),
        ("benchmarks/cuda/a.py", "import torch\ntorch.cuda.synchronize()"),
        ("tests/ops/test_a.py", "import ops"),
        ("examples/a.py", "from hal.errors import DeepInferError"),
        ("model/a.py", "import ops.norm"),
        ("model/a.py", "from deepinfer.ops import norm"),
        ("model/a.py", "import deepinfer.ops"),
        ("src/deepinfer/cli/a.py", "from deepinfer.hal import errors"),
        ("hal/a.py", "from ..ops import spec"),
        ("hal/a.py", "from .. import ops"),
        ("ops/a.py", "from ..backends.reference import norm"),
        ("backends/cuda/a.py", "from ...model import config"),
        ("model/a.py", "from ..runtime import params"),
        ("runtime/engine.py", "from ..recipe import chat"),
        ("conformance/a.py", "from .. import runtime"),
        ("recipe/a.py", "from ..hal import errors"),
        ("recipe/a.py", "def f():\n    import torch"),
        ("recipe/a.py", "from torch.nn import functional"),
    ],
)
def test_a_broken_rule_is_seen(name: str, source: str) -> None:
    assert faults(source, name)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("hal/a.py", "import torch\ntorch.cuda.is_available()"),
        ("hal/a.py", "from .errors import DeepInferError"),
        ("ops/a.py", "from ..hal import errors\nfrom . import spec"),
        ("backends/cuda/a.py", "import triton\nfrom ...hal.registry import kernel\nfrom ..reference import formats"),
        ("model/presets/a.py", "from ...ops import norm\nfrom ..config import Config"),
        ("runtime/server.py", "from ..recipe import chat"),
        ("runtime/server/app.py", "from ...recipe import chat"),
        ("conformance/a.py", "from ..recipe import chat\nfrom .. import model"),
        ("src/deepinfer/cli/a.py", "from ..runtime import params\nfrom .. import __version__"),
        ("tests/ops/test_a.py", "import deepinfer.ops\nimport torch\ntorch.cuda.is_available()"),
        ("benchmarks/cuda_a.py", "import torch\ntorch.cuda.synchronize()"),
        ("benchmarks/slice_a.py", "import torch\ntorch.cuda.synchronize()"),
        ("model/a.py", "def f(x): return x.device.type == 'cpu'"),
        ("runtime/a.py", "def f(kind): return kind == 'cuda'"),
    ],
)
def test_what_is_allowed_passes(name: str, source: str) -> None:
    assert not faults(source, name)


@pytest.mark.parametrize(
    "statement",
    [
        "import deepinfer, deepinfer.recipe; dir(deepinfer); deepinfer.__version__",
        "import deepinfer.hal.errors",
        "from deepinfer.cli.main import main; main(['--help'], standalone_mode=False)",
        "from deepinfer.cli.main import main; main(['--version'], standalone_mode=False)",
    ],
)
def test_importing_loads_no_torch(statement: str) -> None:
    check = "import sys\nloaded = {'torch', 'triton', 'torch_npu'} & set(sys.modules)\nassert not loaded, loaded"
    done = subprocess.run([sys.executable, "-c", f"{statement}\n{check}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
