"""Mutation operators on indices and sizes: which places of a kernel's text they change, and by how much."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """In calls of these functions, with at least `least` arguments, this one changes by so much; of a flag (bool) it is
    the opposite."""

    operator: str
    functions: tuple[str, ...]
    argument: int
    delta: int
    least: int = 0


@dataclass(frozen=True)
class Expression:
    """Wherever this is matched, its group `place` changes by so much."""

    operator: str
    pattern: re.Pattern[str]
    delta: int


_COPIES_UB = ("asc_copy_gm2ub_align", "asc_copy_ub2gm_align")
_COPIES_L1 = ("asc_copy_gm2l1_nd2nz", "asc_copy_gm2l1_dn2nz")
_COPIES_L0 = tuple(f"asc_copy_l12l0{x}{t}" for x in "ab" for t in ("", "_transpose"))
_SCALES = ("asc_copy_l12l0a_mx", "asc_copy_l12l0b_mx")
_PRODUCTS = ("asc_mmad", "asc_mmad_mx")
_OUT_OF_L0C = ("asc_copy_l0c2gm", "asc_copy_l0c2ub")
_LOADS = ("asc_loadalign", "asc_loadalign_unpack", "vlds_norm", "vlds_unpack")
_ATOMICS = tuple(f"asc_atomic_{x}" for x in ("add", "max", "min"))
CHANGES = (
    Change("bursts", (*_COPIES_UB, "asc_copy_ub2l1"), 2, -1),
    Change("bursts", ("asc_copy_l12bt",), 3, -1),
    Change("length", _COPIES_UB, 3, -4),
    Change("length", ("asc_copy_ub2l1",), 3, -1),
    Change("length", ("asc_copy_l12bt",), 4, -1),
    Change("pad", ("asc_copy_gm2ub_align",), 4, -1),
    Change("pad", ("asc_copy_gm2ub_align",), 5, -1),
    Change("stride", ("asc_copy_gm2ub_align",), 8, 32),
    Change("stride", ("asc_copy_gm2ub_align",), 9, 32),
    Change("stride", ("asc_copy_ub2gm_align",), 5, 32),
    Change("stride", ("asc_copy_ub2gm_align",), 6, 32),
    Change("stride", ("asc_copy_ub2l1",), 4, 1),
    Change("stride", ("asc_copy_ub2l1",), 5, 1),
    Change("stride", _COPIES_L1, 2, 32),
    Change("stride", _COPIES_L0, 6, 1),
    Change("stride", _COPIES_L0, 7, 1),
    Change("stride", _SCALES, 6, 1),
    Change("stride", _SCALES, 7, 1),
    Change("destination", (*_COPIES_UB, *_COPIES_L1, *_OUT_OF_L0C, "asc_copy_ub2l1"), 0, 32),
    Change("destination", _COPIES_L0, 0, 256),
    Change("destination", ("asc_fill_l1",), 0, 16),
    Change("destination", ("asc_storealign", "asc_storealign_pack"), 0, 32),
    Change("destination", ("asc_storealign_1st", "asc_scatter", "asc_store_dev", *_ATOMICS), 0, 1),
    Change("source", (*_COPIES_UB, *_COPIES_L1), 1, 32),
    Change("source", _COPIES_L0, 1, 256),
    Change("source", _LOADS, 1, 32),
    Change("source", ("asc_gather",), 1, 1, least=4),  # of three arguments the second is a register
    Change("rows", _COPIES_L1, 4, -1),
    Change("columns", _COPIES_L1, 5, -1),
    Change("pitch", ("asc_set_gm2l1_nz_para",), 1, 1),
    Change("pitch", ("asc_set_gm2l1_nz_para",), 2, 1),
    Change("pitch", _OUT_OF_L0C, 4, 32),
    Change("pitch", _OUT_OF_L0C, 5, 16),
    Change("start", (*_COPIES_L0, *_SCALES), 2, 1),
    Change("start", _COPIES_L0, 3, 1),
    Change("start", _SCALES, 3, 1),
    Change("steps", (*_COPIES_L0, *_SCALES), 4, -1),
    Change("steps", (*_COPIES_L0, *_SCALES), 5, -1),
    Change("size", _PRODUCTS, 3, -1),
    Change("size", _PRODUCTS, 4, -16),
    Change("size", _PRODUCTS, 5, -1),
    Change("size", _OUT_OF_L0C, 2, -1),
    Change("size", _OUT_OF_L0C, 3, -1),
    Change("accumulate", _PRODUCTS, 9, -1),
    Change("accumulate", ("ascend_gemm_l1",), 3, -1),
    Change("threads", ("cce::dim3",), 0, -1),
    Change("threads", ("cce::dim3",), 1, -1),
    Change("lane", ("asc_shfl_xor",), 1, -1),
    Change("event", ("asc_sync_intra_arrive", "asc_sync_intra_wait", "asc_sync_inter_arrive"), 1, 1),
    Change("event", ("asc_lock", "asc_unlock"), 1, 1),
    Change("core", ("asc_copy_l0c2ub",), 6, 1),
)
_VALUE = r"(?:[^;{},()]|\((?:[^;{}()]|\((?:[^;{}()]|\([^;{}()]*\))*\))*\))+"  # without a comma outside of brackets
# A clamp written as a choice, x < T ? x : T, is no clamp any more when T is large where it is compared.
_UNBOUNDED = 1 << 20
EXPRESSIONS = (
    Expression("clamp", re.compile(r"< (?P<place>[A-Z0-9_]+) \? "), _UNBOUNDED),
    Expression("thread", re.compile(r"(?:\(int32_t\))?(?P<place>\bthreadIdx\.[xyz]\b)"), 1),
    Expression("block", re.compile(r"(?<!\bint32_t )(?P<place>\bblock_idx\b)"), 1),  # no parameter's declaration
    Expression("core", re.compile(r"(?P<place>\basc_get_sub_block_id\(\))"), 1),
    Expression("count", re.compile(rf"(?<!constexpr )\buint32_t \w+ = (?P<place>{_VALUE})(?=[;,])"), -1),
    Expression("event", re.compile(r"(?P<place>\bEVENT_ID\d\b)"), 1),
)
# Those that need to know where an expression ends: `min(`, the bound of a loop, a flag's number, the fields of a fill,
# a subscript, and an address that is read or written through.
MIN = re.compile(r"(?<![\w:])min\(")
LOOP = re.compile(r"\bfor \(u?int(?:32|64)_t (\w+) = [^;]*; \1 < ")
STEP = re.compile(r";\s*\w+ \+= (\w+)[,)]")
EVENT = re.compile(r"static_cast<event_t>\(")
FILL = re.compile(r"\basc_fill_l1\(")
FILLED = (("repeats", -1), ("blocks", -1), ("gap", 1))
SUBSCRIPT = re.compile(r"(?:\)|\b(\w+))\[")
ARRAY = re.compile(
    r"^\s*(?!return\b)\w+ (?:\w+(?:\[\w+\])?, )*$"
)  # what stands before the name of an array that is declared
ADDRESS = re.compile(r"\*\(__(?:gm|ubuf)__ \w+\*\)\(")
OUTER = ("clamp", "loop", "event", "fill", "subscript")
OPERATORS = tuple(dict.fromkeys([c.operator for c in CHANGES] + [e.operator for e in EXPRESSIONS] + list(OUTER)))
"""Index and size operators."""


def pointers(code: str) -> set[str]:
    """Names declared as pointers into a memory of the device: there, one element on is another place of it."""
    return set(re.findall(r"__(?:gm|ubuf)__ (?:const )?\w+ ?\* ?(\w+)", code))
