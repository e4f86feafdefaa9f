"""Rules for device code of `backends/cuda`, checked on its syntax tree.

    jit       `triton.jit` and other decorators of Triton's own are not used; `backends.cuda.jit` has the launch rules
    cast      a cast to bf16 or fp8 is one of `portable`'s, or a bitcast
    dot       tensor-core products are `portable.dot`
    asm       inline assembly stands beside code for the interpreter: in the else branch of `if INTERPRETED`
    address   a product in an address has 64 bits, where a factor is not bounded by the source: a program's id, an
              argument, something loaded. A tile's number times its size (BLOCK, TILE, …) is an index, and exempt

A line that ends in `# lint: RULE, because …` is exempt from that rule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

NARROW = {"bfloat16", "float8e4nv", "float8e5", "float8e4b15", "float8e4b8", "float8e5b16"}
TRITON_DECORATORS = {"jit", "autotune", "heuristics"}
ASSEMBLY = {"inline_asm_elementwise"}
DOTS = {"dot", "dot_scaled"}
MEMORY = {"load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg", "atomic_or"}

PORTABLE = re.compile(r"portable(_\w+)?\.py")
OWN = {"jit.py", "cache.py", "launch.py", "interpreter.py"}  # what stands between kernels and Triton


def check(text: str, name: str) -> list[str]:
    """Broken rules of one file, as 'name:line: rule: words'."""
    tree = ast.parse(text)
    lines = text.splitlines()
    found = []
    for line, rule, words in _broken(tree, name):
        if not re.search(rf"# lint: {rule}, \w.*", lines[line - 1]):
            found.append(f"{name}:{line}: {rule}: {words}")
    return sorted(set(found))


def check_folder(folder: Path) -> list[str]:
    """Broken rules of every file of a folder."""
    return [text for path in sorted(folder.glob("*.py")) for text in check(path.read_text(), path.name)]


def _broken(tree: ast.Module, name: str) -> Iterator[tuple[int, str, str]]:
    if name not in OWN:
        yield from _triton(tree)
    if not PORTABLE.fullmatch(name) and name not in OWN:
        yield from _casts_and_dots(tree)
    yield from _assembly(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_last(d) == "jit" for d in node.decorator_list):
            yield from _Addresses(node).broken


def _triton(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in TRITON_DECORATORS and _last(node.value) == "triton":
            yield node.lineno, "jit", f"triton.{node.attr}; use the jit of this backend"
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "triton":
            for alias in node.names:
                if alias.name in TRITON_DECORATORS:
                    yield node.lineno, "jit", f"{alias.name} of triton; use the jit of this backend"


def _casts_and_dots(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        called, owner = node.func.attr, _last(node.func.value)
        if called in DOTS and owner == "tl":
            yield node.lineno, "dot", f"tl.{called}; use portable.dot"
        casts = called == "to" or (called == "cast" and owner == "tl")
        bitcast = any(k.arg == "bitcast" and getattr(k.value, "value", False) is True for k in node.keywords)
        if casts and not bitcast:
            for argument in node.args:
                if isinstance(argument, ast.Attribute) and argument.attr in NARROW and _last(argument.value) == "tl":
                    yield node.lineno, "cast", f"to tl.{argument.attr}; use portable.to_bf16 and the like"
                if isinstance(argument, ast.Attribute) and argument.attr == "element_ty":
                    yield node.lineno, "cast", "to a type that may be narrow; use portable.to_bf16 and the like"


def _assembly(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    guarded: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _last(node.test) == "INTERPRETED":
            guarded.update(inner for statement in node.orelse for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last(node.func) in ASSEMBLY and node not in guarded:
            yield node.lineno, "asm", "inline assembly that the interpreter has no other code for"


def _last(node: ast.AST) -> str:
    """The last part of a dotted name, or of what is called."""
    if isinstance(node, ast.Call):
        return _last(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


TILE = re.compile(r"BLOCK\w*|TILES?|CHUNK|SEGMENT|GROUP|ROWS|\w+_TILE")


def _is_constant(node: ast.expr) -> bool:
    """Whether an expression is made of numbers and of `tl.constexpr` names, which are written in capitals."""
    names = [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    return all(name.isupper() for name in names) and not any(isinstance(n, ast.Call) for n in ast.walk(node))


def _is_tile(node: ast.BinOp) -> bool:
    """A tile's number times its size: an index, below a count that has 32 bits itself."""
    for factor in (node.left, node.right):
        names = [inner.id for inner in ast.walk(factor) if isinstance(inner, ast.Name)]
        if names and _is_constant(factor) and any(TILE.fullmatch(name) for name in names):
            return True
    return False


class _Addresses(ast.NodeVisitor):
    """Follows, statement by statement, which names hold 64 bits and which are bounded by the source.

    A name is bounded if it comes from constants, `tl.constexpr` parameters and ranges alone. What another device
    function returns, and what a helper is given, counts as bounded: it is checked where it is made.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.broken: list[tuple[int, str, str]] = []
        self.wide: set[str] = set()
        self.open: set[str] = set()
        self.products: dict[str, tuple[int, str]] = {}  # names that hold a product of 32 bits
        arguments = (*function.args.args, *function.args.kwonlyargs)
        kernel = any(argument.arg.endswith("_ptr") for argument in arguments)
        for argument in arguments:
            kind = _last(argument.annotation) if argument.annotation is not None else ""
            if kind == "int64":
                self.wide.add(argument.arg)
            elif kind != "constexpr" and not argument.arg.endswith("_ptr") and kernel:
                self.open.add(argument.arg)
        for statement in function.body:
            self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            for name in (n for n in ast.walk(target) if isinstance(n, ast.Name)):
                self._note(name.id, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            name = node.target.id
            if self._is_wide(node.value):
                self.wide.add(name)
            if self._is_open(node.value):
                self.open.add(name)

    def visit_For(self, node: ast.For) -> None:
        if isinstance(node.target, ast.Name):
            self._note(node.target.id, node.iter)
        for _ in range(2):  # what a turn of the loop leaves, the next one reads
            for statement in node.body:
                self.visit(statement)
        self.broken = list(dict.fromkeys(self.broken))

    def _note(self, name: str, value: ast.expr) -> None:
        for kept, holds in ((self.wide, self._is_wide(value)), (self.open, self._is_open(value))):
            (kept.add if holds else kept.discard)(name)
        self.products.pop(name, None)
        for line, words in self._narrow_products(value):
            self.products[name] = line, words
        if any(isinstance(n, ast.Name) and n.id.endswith("_ptr") for n in ast.walk(value)) and not any(
            isinstance(n, ast.Call) for n in ast.walk(value)
        ):
            self._address(value)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if _last(node.func) in MEMORY and isinstance(node.func, ast.Attribute) and node.args:
            self._address(node.args[0])

    def _address(self, node: ast.expr) -> None:
        """Complain about products of 32 bits in an address."""
        for line, words in self._narrow_products(node):
            self.broken.append((line, "address", f"{words} has 32 bits"))

    def _narrow_products(self, node: ast.expr) -> Iterator[tuple[int, str]]:
        for inner in ast.walk(node):
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.Mult, ast.LShift)):
                if not self._is_wide(inner) and self._is_open(inner) and not _is_tile(inner):
                    yield inner.lineno, ast.unparse(inner)
            if isinstance(inner, ast.Name) and inner.id in self.products and isinstance(inner.ctx, ast.Load):
                yield self.products[inner.id]

    def _is_wide(self, node: ast.expr) -> bool:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in self.wide:
                return True
            if isinstance(inner, ast.Attribute) and inner.attr in ("int64", "uint64"):
                return True
        return False

    def _is_open(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_constant(node.right):
            return False
        if isinstance(node, ast.BinOp):
            return self._is_open(node.left) or self._is_open(node.right)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in self.open:
                return True
            if isinstance(inner, ast.Call) and _last(inner.func) in ("load", "program_id", "num_programs"):
                return True
        return False
