"""AscendC text made ready for the host compiler: address-space casts, SIMD calls, the kernel's signature.

The text itself stays as it is, except that
* `(__ubuf__ float*)` and the like become casts that turn an address into a pointer into the model's memory,
* calls of SIMD functions are handed to pipe V instead of running at once,
* an entry is added that passes the caller's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from .errors import SourceError

_SPACES = {"ubuf": "ub", "cbuf": "l1", "ca": "l0a", "cb": "l0b", "cc": "l0c"}
_TYPE = r"(?:const\s+)?[A-Za-z_][\w:]*(?:\s*<[^<>()]*>)?(?:\s+const)?"
_CAST = re.compile(rf"\(\s*(?:const\s+)?__(ubuf|cbuf|ca|cb|cc)__\s+({_TYPE})\s*\*\s*\)")
_NAMED_CAST = re.compile(rf"\b(?:reinterpret|static|const)_cast\s*<\s*__(ubuf|cbuf|ca|cb|cc)__\s+({_TYPE})\s*\*\s*>")
_KERNEL = re.compile(r"__global__((?:\s+__\w+__(?:\s*\([^)]*\))?)*)\s+void\s+(\w+)\s*\(([^)]*)\)\s*\{")
_SIMD = re.compile(r"__simd_vf__((?:\s+\w+)*?)\s+void\s+(\w+)\s*\(")
_SIMT = re.compile(r"__simt_vf__((?:\s+__launch_bounds__\s*\(\s*(\d+)\s*\)|\s+inline|\s+static)*)\s+void\s+(\w+)\s*\(")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)

KINDS = ("vector", "cube", "mix")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: its name, its element type as written, and whether it points to global memory."""

    name: str
    type: str
    pointer: bool


@dataclass(frozen=True)
class Signature:
    """What a launch needs to know of a kernel.

    Attributes:
        name: of the kernel function.
        kind: "vector" (one AIV per block), "cube" (one AIC) or "mix" (one AIC and two AIVs).
        parameters: in the order of the text.
        simt: whether SIMT functions take their data cache out of UB.
        joint: whether blocks wait for each other.
    """

    name: str
    kind: str
    parameters: tuple[Parameter, ...]
    simt: bool
    joint: bool


def without_comments(text: str) -> str:
    """The text with comments and literals blanked, every character at its place."""
    return _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def signature(text: str) -> Signature:
    """Reads the signature of the one kernel in `text`.

    Raises:
        SourceError: no kernel, or more than one; no kind of core; a parameter that cannot be read.
    """
    code = without_comments(text)
    found = list(_KERNEL.finditer(code))
    if len(found) != 1:
        raise SourceError(f"{len(found)} functions with __global__; a source has one kernel")
    marks, name, parameters = found[0][1], found[0][2], found[0][3]
    kinds = [kind for kind in KINDS if f"__{kind}__" in marks]
    if len(kinds) != 1:
        raise SourceError(f"kernel {name}: one of __vector__, __cube__, __mix__(1, 2) says on which cores it runs")
    return Signature(
        name=name,
        kind=kinds[0],
        parameters=tuple(_parameter(name, part) for part in parameters.split(",") if part.strip()),
        simt="__simt_vf__" in code,
        joint="asc_sync_inter" in code,
    )


def _parameter(kernel: str, text: str) -> Parameter:
    words = re.fullmatch(r"\s*(.*?)\s*(\*?)\s*(\w+)\s*", text.replace("__restrict__", ""), re.S)
    if words is None or not words[1]:
        raise SourceError(f"kernel {kernel}: parameter {text.strip()!r} is not 'type name' or '__gm__ type* name'")
    kind, star, name = words[1], words[2], words[3]
    if bool(star) != ("__gm__" in kind):
        raise SourceError(f"kernel {kernel}: parameter {name}: a pointer is '__gm__ type*', a scalar neither")
    return Parameter(name, " ".join(kind.replace("__gm__", " ").split()), bool(star))


def rewrite_casts(text: str) -> str:
    """Address-space casts as the model's; for kernels and for the headers they include."""
    text = _NAMED_CAST.sub(lambda m: f"ascsim::cast<ascsim::Space::{_SPACES[m[1]]}, {m[2]}>", text)
    return _CAST.sub(lambda m: f"ascsim::Cast<ascsim::Space::{_SPACES[m[1]]}, {m[2]}>{{}}->*", text)


def closing(text: str, at: int) -> int:
    """Index of the bracket that closes the one at `at`, in text without comments and literals.

    Raises:
        SourceError: there is none.
    """
    pairs = {"(": ")", "[": "]", "{": "}", "<": ">"}
    opening, end, depth = text[at], pairs[text[at]], 0
    for i in range(at, len(text)):
        if text[i] == opening:
            depth += 1
        elif text[i] == end:
            depth -= 1
            if not depth:
                return i
    raise SourceError(f"no {end!r} for the {opening!r} in line {text.count(chr(10), 0, at) + 1}")


def opening(text: str, at: int) -> int:
    """Index of the bracket that the one at `at` closes, in text without comments and literals; 0 for none."""
    closed, depth = {")": "(", "]": "["}, 0
    for i in range(at, -1, -1):
        if text[i] == text[at]:
            depth += 1
        elif text[i] == closed[text[at]]:
            depth -= 1
            if not depth:
                return i
    return 0


def arguments(code: str, bracket: int) -> list[tuple[int, int]]:
    """Where the arguments of a call (the fields of a list) lie, without blanks around them."""
    end = closing(code, bracket)
    cuts, depth = [bracket], 0
    for i in range(bracket + 1, end):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            depth -= 1
        elif code[i] == "," and not depth:
            cuts.append(i)
    cuts.append(end)
    spans = []
    for a, b in zip(cuts, cuts[1:]):
        part = code[a + 1 : b]
        start = a + 1 + len(part) - len(part.lstrip())
        spans.append((start, start + len(part.strip())))
    return [span for span in spans if span[0] < span[1]]


def fill_list(code: str, bracket: int) -> int:
    """The bracket of the list that a call of asc_fill_l1 is given, there or by the name of a list before it.

    Raises:
        SourceError: there is none.
    """
    start, end = arguments(code, bracket)[2]
    at = code.find("{", start, end)
    if at < 0:
        at = max((m.end() - 1 for m in re.finditer(rf"\b{code[start:end]} = \{{", code[:bracket])), default=-1)
    if at < 0:
        raise SourceError(f"no list {code[start:end]!r} before line {code.count(chr(10), 0, bracket) + 1}")
    return at


def defer_simd(text: str, names: Set[str]) -> str:
    """Calls `f(...)` and `f<...>(...)` of SIMD functions, from elsewhere than SIMD functions, put on pipe V."""
    if not names:
        return text
    code = without_comments(text)
    inside = [_body(code, m.end() - 1) for m in _SIMD.finditer(code)]
    call = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b\s*([<(])")
    edits = []
    for m in call.finditer(code):
        before = code[: m.start()].rstrip()
        if before.endswith(("void", "asc_vf_call<")) or any(a <= m.start() < b for a, b in inside):
            continue
        end = m.start(2)
        if m[2] == "<":
            end = code.index("(", closing(code, end))
        end = closing(code, end) + 1
        edits.append((m.start(), end, f'ascsim::push_simd("{m[1]}", [=]() {{ {text[m.start() : end]}; }})'))
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text


def _body(code: str, parenthesis: int) -> tuple[int, int]:
    after = closing(code, parenthesis)
    brace = code.find("{", after)
    return (after, closing(code, brace)) if brace >= 0 else (after, after)


def prepared(text: str, simd_of_headers: Set[str] = frozenset()) -> str:
    """The C++ to compile for the kernel in `text`.

    Args:
        text: AscendC source of one kernel.
        simd_of_headers: names of SIMD functions that the included headers define.

    Raises:
        SourceError: see `signature`.
    """
    found = signature(text)
    code = without_comments(text)
    own = {m[2] for m in _SIMD.finditer(code)}
    traits = "".join(
        f"template <> struct LaunchBound<&::{m[3]}> {{ static constexpr unsigned value = {m[2] or 1024}; }};\n"
        for m in _SIMT.finditer(code)
        if not code[: m.start()].rstrip().endswith(">")
    )
    traits += "".join(
        f'template <> struct FunctionName<&::{name}> {{ static constexpr const char* value = "{name}"; }};\n'
        for name in _plain_functions(code)
    )
    body = rewrite_casts(defer_simd(text, own | simd_of_headers))
    kernel = _KERNEL.search(without_comments(body))
    assert kernel is not None
    at = _start_of_declaration(body, kernel.start())
    arguments = ", ".join(
        f"ascsim::argument<{p.type}{'*' if p.pointer else ''}>(a[{i}])" for i, p in enumerate(found.parameters)
    )
    return (
        '#include "c_api/asc_simd.h"\n#line 1 "kernel"\n'
        + body[:at]
        + f'\nnamespace ascsim {{\n{traits}}}\n#line {body.count(chr(10), 0, at) + 1} "kernel"\n'
        + body[at:]
        + f'\n#include "../runtime/launch.h"\nextern "C" int ascsim_run(ascsim::Request* request) {{\n'
        f"  return ascsim::launch(request, [](void* const* a) {{ (void)a; {found.name}({arguments}); }});\n}}\n"
    )


def _plain_functions(code: str) -> list[str]:
    found = [(m.start(), m[3]) for m in _SIMT.finditer(code)] + [(m.start(), m[2]) for m in _SIMD.finditer(code)]
    return [name for at, name in found if not code[:at].rstrip().endswith(">")]


def _start_of_declaration(body: str, at: int) -> int:
    """Where the declaration that holds `at` begins: after the last `;`, `}` or preprocessor line before it."""
    code = without_comments(body)
    start = max(code.rfind(";", 0, at), code.rfind("}", 0, at)) + 1
    for line in re.finditer(r"^[ \t]*#[^\n]*\n", body, re.M):
        if start < line.end() <= at:
            start = line.end()
    return start


def simd_functions(text: str) -> set[str]:
    """Names of the SIMD functions that `text` defines."""
    return {m[2] for m in _SIMD.finditer(without_comments(text))}
