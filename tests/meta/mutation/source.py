"""Operators on the source of a kernel: one place of the reference is edited, and the module loaded beside the original.

The edited module lives in a package of its own, with copies of the modules that it imports from the reference, so that
an edit of a helper reaches every kernel that uses it. Nothing of the original is touched.
"""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType

import deepinfer.backends.reference as reference
from deepinfer.hal.registry import REGISTRY

FOLDER = Path(reference.__file__ or "").parent
HOME = reference.__name__.rpartition(".")[0]
_numbers = itertools.count()


@dataclass(frozen=True)
class Site:
    """One place where an operator fits.

    Attributes:
        operator, module: by name.
        number: of the place among those of the operator in the module.
        function: the function that it lies in.
        line, text: of the source before the edit.
        again: how many places of the same function and text come before.
    """

    operator: str
    module: str
    number: int
    function: str
    line: int
    text: str
    again: int = 0

    @property
    def id(self) -> str:
        """Stable while the function stays as it is: what the list of equivalents names."""
        return f"{self.module}.{self.function}: {self.operator}: {self.text}" + f" #{self.again + 1}" * bool(self.again)


Edit = Callable[[ast.AST], ast.AST | None]
"""The node that takes a node's place; None where the operator does not fit."""


# ---- operators ----------------------------------------------------------------------------------------------------


def boundary(node: ast.AST) -> ast.AST | None:
    """< for <=, and the like: off by one at a border."""
    swap = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in swap:
        return ast.Compare(node.left, [swap[type(node.ops[0])]()], node.comparators)
    return None


def negate(node: ast.AST) -> ast.AST | None:
    """== for !=, and the other arm of an if."""
    swap = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in swap:
        return ast.Compare(node.left, [swap[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return node.operand
    return None


def arithmetic(node: ast.AST) -> ast.AST | None:
    """+ for -, * for /, // rounded up."""
    swap: dict[type, Callable[[], ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Div: ast.Mult}
    if (
        isinstance(node, ast.BinOp)
        and type(node.op) in swap
        and not isinstance(node.left, ast.Constant | ast.JoinedStr)
    ):
        return ast.BinOp(node.left, swap[type(node.op)](), node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        rounded_up = ast.BinOp(ast.UnaryOp(ast.USub(), node.left), ast.FloorDiv(), node.right)
        return ast.UnaryOp(ast.USub(), rounded_up)
    return None


def dropped_mask(node: ast.AST) -> ast.AST | None:
    """`masked_fill` left out, the first arm of `where`: what lies behind the mask takes part."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="masked_fill" | "masked_fill_")):
            return value
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="where"), args=[_, first, _]):
            return first
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right) if not isinstance(right, ast.Constant):
            return left
    return None


def dropped_clamp(node: ast.AST) -> ast.AST | None:
    """No saturation."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="clamp" | "clamp_" | "nan_to_num")):
            if isinstance(value, ast.Name) and value.id == "torch":
                return None
            return value
    return None


def extreme(node: ast.AST) -> ast.AST | None:
    """The smallest for the largest."""
    pairs = [("amax", "amin"), ("maximum", "minimum"), ("argmax", "argmin"), ("max", "min"), ("cummax", "cummin")]
    swap = dict(pairs) | {b: a for a, b in pairs}
    if isinstance(node, ast.Attribute) and node.attr in swap:
        return ast.Attribute(node.value, swap[node.attr], node.ctx)
    if isinstance(node, ast.Name) and node.id in ("max", "min") and isinstance(node.ctx, ast.Load):
        return ast.Name(swap[node.id], node.ctx)
    return None


def rounding(node: ast.AST) -> ast.AST | None:
    """Floor for ceil, towards zero for to nearest."""
    swap = {"ceil": "floor", "floor": "ceil", "round": "trunc", "round_": "trunc_", "trunc": "round"}
    if isinstance(node, ast.Attribute) and node.attr in swap:
        return ast.Attribute(node.value, swap[node.attr], node.ctx)
    return None


def order(node: ast.AST) -> ast.AST | None:
    """The other order of a sort."""
    match node:
        case ast.keyword(arg="descending", value=ast.Constant(value=bool(value))):
            return ast.keyword("descending", ast.Constant(not value))
    return None


def precision(node: ast.AST) -> ast.AST | None:
    """bf16 in between, where fp32 is computed."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="to"), args=[ast.Attribute(attr="float32")], keywords=[]):
            low = ast.Call(ast.Attribute(value, "to", ast.Load()), [_torch("bfloat16")], [])
            return ast.Call(ast.Attribute(low, "to", ast.Load()), [_torch("float32")], [])
        case ast.Call(func=ast.Attribute(value=value, attr="float"), args=[], keywords=[]):
            low = ast.Call(ast.Attribute(value, "bfloat16", ast.Load()), [], [])
            return ast.Call(ast.Attribute(low, "float", ast.Load()), [], [])
    return None


def constant(node: ast.AST) -> ast.AST | None:
    """A constant that is one larger."""
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1:
        return ast.Constant(node.value + 1)
    if isinstance(node, ast.Constant) and type(node.value) is float and node.value not in (0.0, 1.0):
        return ast.Constant(node.value * 1.25)
    return None


def statement(node: ast.AST) -> ast.AST | None:
    """A store, or an update in place, left out."""
    stores = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return ast.Pass() if stores or called or isinstance(node, ast.AugAssign) else None


def tail(node: ast.AST) -> ast.AST | None:
    """The last step of a loop left out."""
    match node:
        case ast.For(
            target=target, iter=ast.Call(func=ast.Name(id="range"), args=args) as call, body=body, orelse=rest
        ):
            if len(args) == 1:
                shorter = [ast.BinOp(args[0], ast.Sub(), ast.Constant(1))]
            else:
                shorter = [args[0], ast.BinOp(args[1], ast.Sub(), ast.Constant(1)), *args[2:]]
            return ast.For(target, ast.Call(call.func, shorter, []), body, rest)
    return None


EDITS: dict[str, Edit] = {
    edit.__name__: edit
    for edit in (
        boundary, negate, arithmetic, dropped_mask, dropped_clamp, extreme, rounding, order, precision, constant,
        statement, tail,
    )
}  # fmt: skip


def _torch(name: str) -> ast.expr:
    return ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load())


# ---- places -------------------------------------------------------------------------------------------------------


@cache
def parsed(module: str) -> ast.Module:
    """The source of a module of the reference. Not to be changed."""
    return ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))


def sites(module: str) -> Iterator[Site]:
    """Every place in the functions of a module where an operator fits."""
    for name in EDITS:
        editor = _Editor(EDITS[name], -1)
        editor.visit(copy.deepcopy(parsed(module)))
        before: Counter[tuple[str, str]] = Counter()
        for number, (function, line, text) in enumerate(editor.seen):
            yield Site(name, module, number, function, line, text, before[function, text])
            before[function, text] += 1


def edited(site: Site) -> ast.Module:
    """The module with the edit of a place."""
    tree = _Editor(EDITS[site.operator], site.number).visit(copy.deepcopy(parsed(site.module)))
    assert isinstance(tree, ast.Module)
    return ast.fix_missing_locations(tree)


class _Editor(ast.NodeTransformer):
    """Counts the places of an operator, and edits the one of a number. Messages and checks are left alone."""

    def __init__(self, edit: Edit, number: int) -> None:
        self._edit, self._number = edit, number
        self._functions: list[str] = []
        self.seen: list[tuple[str, int, str]] = []

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Raise | ast.Assert | ast.arguments | ast.AnnAssign):
            return node
        if isinstance(node, ast.FunctionDef):
            self._functions.append(node.name)
            node.body = [self.visit(part) for part in node.body]  # type: ignore[misc] # decorators stay
            self._functions.pop()
            return node
        if not self._functions:
            return self.generic_visit(node)
        changed = self._edit(node)
        if changed is None or _documents(node):
            return self.generic_visit(node)
        number = len(self.seen)
        text = ast.unparse(node).splitlines()[0]
        self.seen.append((".".join(self._functions), getattr(node, "lineno", 0), text))
        if number != self._number:
            return self.generic_visit(node)
        return ast.copy_location(changed, node) if hasattr(node, "lineno") else changed


def _documents(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


# ---- loading ------------------------------------------------------------------------------------------------------


@contextmanager
def loaded(site: Site, modules: Sequence[str]) -> Iterator[dict[str, ModuleType]]:
    """Modules of the reference with one edit, under a name of their own; their kernels belong to the backend 'mutant'.

    Args:
        modules: those to load; what they import comes with them.
    """
    package = f"{HOME}.mutant_{next(_numbers)}"
    finder = _Finder(package, {site.module: edited(site)})
    before = set(map(id, REGISTRY.kernels()))
    parent = ModuleType(package)
    parent.__path__ = []
    sys.modules[package] = parent
    sys.meta_path.insert(0, finder)
    try:
        yield {name: importlib.import_module(f"{package}.{name}") for name in modules}
    finally:
        sys.meta_path.remove(finder)
        for kernel in REGISTRY.kernels():
            if id(kernel) not in before:
                REGISTRY.remove(kernel)
        for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
            del sys.modules[name]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of one package of mutants in the folder of the reference."""

    def __init__(self, package: str, changed: dict[str, ast.Module]) -> None:
        self._package, self._changed = package, changed

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != self._package or not (FOLDER / f"{name}.py").is_file():
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.rpartition(".")[2]
        code = _compiled(name, self._changed[name]) if name in self._changed else _unchanged(name)
        exec(code, module.__dict__)


@cache
def _unchanged(name: str) -> CodeType:
    return _compiled(name, parsed(name))


def _compiled(name: str, tree: ast.Module) -> CodeType:
    return compile(_renamed(tree), f"<mutant of {name}>", "exec")


def _renamed(tree: ast.Module) -> ast.Module:
    """Kernels registered for the backend 'mutant' instead of 'reference'."""
    tree = copy.deepcopy(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "backend" and isinstance(node.value, ast.Constant):
            node.value = ast.copy_location(ast.Constant("mutant"), node.value)
    return ast.fix_missing_locations(tree)


# ---- reach --------------------------------------------------------------------------------------------------------


@cache
def imports() -> dict[str, set[str]]:
    """Modules of the reference -> those that they import, themselves included, however far."""
    direct: dict[str, set[str]] = {}
    for path in FOLDER.glob("*.py"):
        nodes = [n for n in ast.walk(parsed(path.stem)) if isinstance(n, ast.ImportFrom) and n.level == 1]
        named = {n.module for n in nodes if n.module} | {a.name for n in nodes if not n.module for a in n.names}
        direct[path.stem] = {n for n in named if (FOLDER / f"{n}.py").is_file()}
    closed = {name: {name} for name in direct}
    for _ in direct:
        for name, reach in closed.items():
            closed[name] = reach.union(*(direct[n] for n in reach))
    return closed


def kernels_of(module: str) -> list[str]:
    """Ops whose kernels a module registers."""
    found = []
    for node in parsed(module).body:
        for decorator in getattr(node, "decorator_list", []):
            if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "kernel":
                first = decorator.args[0]
                assert isinstance(first, ast.Constant)
                found.append(first.value)
    return found


def users_of(module: str, function: str) -> list[tuple[str, str]]:
    """(module, op) of the kernels that a function can reach, by names called; those of its own module first."""
    top = function.partition(".")[0]
    found = []
    for name, reach in sorted(imports().items(), key=lambda item: item[0] != module):
        if module in reach:
            for node in parsed(name).body:
                ops = list(_registered(node))
                if ops and (module, top) in _called(name, getattr(node, "name", "")):
                    found += [(name, op) for op in ops]
    return found


def _registered(node: ast.AST) -> Iterator[str]:
    for decorator in getattr(node, "decorator_list", []):
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "kernel":
            yield decorator.args[0].value  # type: ignore[attr-defined]


@cache
def _called(module: str, function: str) -> frozenset[tuple[str, str]]:
    """(module, function) that a function of a module mentions, however far; itself included."""
    seen: set[tuple[str, str]] = set()
    todo = [(module, function)]
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        todo += [other for other in _mentions(*place) if other not in seen]
    return frozenset(seen)


@cache
def _mentions(module: str, function: str) -> tuple[tuple[str, str], ...]:
    tree = parsed(module)
    body = next((n for n in tree.body if getattr(n, "name", "") == function), None)
    if body is None:
        return ()
    home: dict[str, tuple[str, str]] = {n.name: (module, n.name) for n in tree.body if hasattr(n, "name")}
    whole: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for alias in node.names:
                if node.module:
                    home[alias.asname or alias.name] = (node.module, alias.name)
                else:
                    whole[alias.asname or alias.name] = alias.name
    found = [home[n.id] for n in ast.walk(body) if isinstance(n, ast.Name) and n.id in home]
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in whole:
            found.append((whole[node.value.id], node.attr))
    return tuple(dict.fromkeys(found))
