"""Rules by which a mutant changes nothing that a kernel stores, so that no data can betray it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import source
from .mutate import Mutant
from .operators import FILL

# Of copies and the like, the argument that counts bursts (rows, steps), and those that say where the second one lies.
_STRIDES: dict[str, tuple[int, tuple[int, ...]]] = {
    "asc_copy_gm2ub_align": (2, (8, 9)),
    "asc_copy_ub2gm_align": (2, (5, 6)),
    "asc_copy_ub2l1": (2, (4, 5)),
    "asc_copy_gm2l1_nd2nz": (4, (2,)),
}
RACE_FREE = "race-free"
_CALL = re.compile(r"\b(asc_\w+)\s*\(")
_LEADER = re.compile(r"\(int32_t\)threadIdx\.x\) % (\d+)\) == 0\)")
_WITHIN = re.compile(r"\(int32_t\)threadIdx\.x\) >> (\d+)\)")
_GROUP = re.compile(r"max\((?:\(int64_t\))?1, $")
_SET = re.compile(r"\s*(?:\w+ )?(\w+) = (?!=)")
_BEGIN = re.compile(r"\w+ (\w+) = (?:\(\w+\))?\w+;")
_DOES_MORE = re.compile(r"\[|__|\b(?!min\b|max\b)\w+\(")  # than to compute: reads of memory, calls
_REGISTERS = re.compile(r"for \(int32_t (\w+) = 0; \1 < \(\((min\((\d+), .*\)) \+ (\d+)\) >> (\d+)\); \+\+\1\) \{")
_STORE = re.compile(r"\bsimd_inst::vsts_\w+\(")
_SET_AGAIN = re.compile(r"(?<=[;{}])\s*(\w+) = [^;]*;")
_LANE_WISE = re.compile(
    r"update_mask_b\d+|vsts_norm|vsts_pack_b32|vlds_norm|vlds_unpack|vlds_brc_elem|vdup|vcvt|vsel|vcmps?_\w+|vand|vxor|vadds?"
    r"|vsub|vmuls?|vabs|vmaxs?|vmins?|vshls|vshrs|vexp|vln|vsqrt|vdiv_0ulp_ftz_true|vci"
)
_QUOTIENT = re.compile(r"/ max\((?:\(int64_t\))?1, $")
_REDUCED = re.compile(r"AscendAllReduce<[^;()]*>::run\([^;]*, \(&\(\(\(__ubuf__ \w+\*\)\w+\)\[$")
_REDUCED_THEN_LEADER = re.compile(
    r"AscendAllReduce<[^;()]*?, (\d+), 1, 0>::run\([^;]*\);\s*\}\s*asc_syncthreads\(\);\s*"
    r"if \(\(\(\(int32_t\)threadIdx\.x\) % \1\) == 0\)"
)


def rule(mutant: Mutant, text: str) -> str:
    """The rule by which a mutant of a kernel's text is redundant, or "" for none.

    * "single burst": a copy of one burst (one row), or a fill of one run, has no second one to place, so what says
      where it would lie is read by nobody.
    * "both cores": a copy out of L0C to both vector cores does not read which of them it is for.
    * "tile group": tilelang numbers tile x of T as (x / G) G + x % G with G = max(1, min(8, T)); the clamp gives
      something else than 8 only for T < 8, and then x < T has quotient 0 and remainder x with 8 as well. Where x >= T,
      the test before the tile stays false with 8 as factor or divisor of the remainder, and a loop bound only grows, by
      steps that this test skips. (The quotient's divisor in that test is no such place, and data shows it.)
    * "group leader": under `threadIdx.x % G == 0` the next thread has the same `threadIdx.x >> k`, 2^k <= G; and which
      of the G threads of a reduced value stores it changes nothing, as all of them hold it.
    * "scratch": what a reduction over several warps keeps in UB is written and read by it alone; one element on, it
      still touches nothing else (the run shows that).
    * "not stored": a row (column) of a product depends on that row of the left (right) operand alone, and the copy out
      of L0C stores those below the one from which the fill begins.
    * "any threads": a SIMT function whose threads only ever start at threadIdx.x and go on by blockDim.x does the same
      work with any number of threads.
    * "race-free": between the barriers around an `asc_syncthreads` no two threads touch one byte, one of them changing
      it; the model checks this in every run that is not relaxed, so one without the barrier that raises nothing proves
      it for its input.
    * "warp in step": the stores behind the barrier are those of one thread of G, at most a warp, that have just reduced
      together: what the others read before came first. (The rule of races asks for the barrier all the same: exchanges
      within a warp order no memory.)
    * "sign of a remainder": of `(a % b) >> 31`, which corrects the quotient of a negative a, only the sign is used; in
      the number of rounds of a core, a = rows + cores - core - 1 stays at least 0 with the next core's number.
    * "never read": the place is in what a name is set to that the text has nowhere but on the left of such a line; of
      memory, nothing is read there.
    * "set anew": the place is in what a variable begins with, and the next statement sets it anew: in any case, or
      under a condition; then it is read under that condition alone, of whose names none is set in between.
    * "behind the tail": the clamp of a piece of P lanes to what is left of a row, in the bound or a mask of a loop over
      registers of L lanes that takes each lane for itself, from a place c L to a place c L of UB. Without it, lanes
      behind the row's end are computed too, and stay in UB: what copies them out has its own length (the run shows
      that).
    * "all-core barrier": the program waits for all cores between the same two pipes.
    """
    code = source.without_comments(text)
    if _of_one_burst(mutant, code):
        return "single burst"
    if mutant.kind == "core" and _in_dual_copy(mutant, code):
        return "both cores"
    if mutant.kind == "clamp" and _of_a_tile_group(mutant, code):
        return "tile group"
    if mutant.kind == "clamp" and _behind_the_tail(mutant, code):
        return "behind the tail"
    if mutant.kind == "thread" and _of_a_leader(mutant, code):
        return "group leader"
    if mutant.kind == "block" and _of_a_sign(mutant, code):
        return "sign of a remainder"
    if _never_read(mutant, code):
        return "never read"
    if _set_anew(mutant, code):
        return "set anew"
    if mutant.kind == "subscript" and _REDUCED.search(code[code.rfind("\n", 0, mutant.at) + 1 : mutant.at]):
        return "scratch"
    if mutant.kind == "fill" and _below_what_is_stored(mutant, code):
        return "not stored"
    if mutant.kind == "threads" and _strided_by_threads(mutant, code):
        return "any threads"
    if "asc_syncthreads" in mutant.text:
        return "warp in step" if mutant.kind == "pair" and _after_reductions_of_a_warp(code) else RACE_FREE
    barrier = {m[1] for m in re.finditer(r"asc_sync_inter_(?:arrive|wait)\((PIPE_\w+)", text)}
    if mutant.kind in ("line", "pair") and barrier and barrier == set(re.findall(r"PIPE_\w+", mutant.text)):
        return "all-core barrier"
    return ""


def _around(mutant: Mutant, code: str) -> tuple[str, list[tuple[int, int]]]:
    """The call of the C API that the place stands in, and its arguments; no call: ""."""
    if mutant.at < 0:
        return "", []
    start = max(code.rfind(x, 0, mutant.at) for x in ";{}") + 1
    for call in _CALL.finditer(code, start):
        if call.start() > mutant.at:
            break
        if call.end() - 1 <= mutant.at < source.closing(code, call.end() - 1):
            return call[1], source.arguments(code, call.end() - 1)
    return "", []


def _is(code: str, spans: list[tuple[int, int]], argument: int, text: str) -> bool:
    return argument < len(spans) and code[slice(*spans[argument])].strip() == text


def _of_one_burst(mutant: Mutant, code: str) -> bool:
    """Whether the place is inside of what places the second burst of one."""
    name, spans = _around(mutant, code)

    def inside(argument: int) -> bool:
        return argument < len(spans) and _inside(spans[argument], mutant)

    if name == "asc_set_gm2l1_nz_para" and inside(1):
        return all(_is(code, copy, 4, "1") for copy in _copies_after(mutant, code))
    for _, fields in _fills_of(mutant, code):
        return _inside(fields[2], mutant) and bool(re.fullmatch(r".*\b1\)?", code[slice(*fields[0])]))
    if name not in _STRIDES or not _is(code, spans, _STRIDES[name][0], "1"):
        return False
    return any(inside(argument) for argument in _STRIDES[name][1])


def _copies_after(mutant: Mutant, code: str) -> Iterator[list[tuple[int, int]]]:
    """Arguments of the copies that use the registers which are set at the place."""
    end = code.find("asc_set_gm2l1_nz_para", mutant.at)
    for call in re.finditer(r"\basc_copy_gm2l1_\w+\s*\(", code[: end if end >= 0 else len(code)]):
        if call.start() > mutant.at:
            yield source.arguments(code, call.end() - 1)


def _in_dual_copy(mutant: Mutant, code: str) -> bool:
    name, spans = _around(mutant, code)
    return name == "asc_copy_l0c2ub" and any(
        _is(code, spans, 7, f"static_cast<asc_dual_dst_mode>({dual})") for dual in (1, 2)
    )


def _of_a_tile_group(mutant: Mutant, code: str) -> bool:
    before = code[code.rfind("\n", 0, mutant.at) + 1 : mutant.at]
    return bool(_GROUP.search(before)) and not (before.lstrip().startswith("if (") and _QUOTIENT.search(before))


def _behind_the_tail(mutant: Mutant, code: str) -> bool:
    """Whether the place is the clamp of a piece, in a loop in which no lane of a register meets another."""
    for loop in _REGISTERS.finditer(code):
        name, clamp, most, lanes = loop[1], loop[2], int(loop[3]), int(loop[4]) + 1
        if lanes != 1 << int(loop[5]) or most % lanes:
            continue
        start = loop.end() - 1
        end = source.closing(code, start)
        mask, place = f"update_mask_b{2048 // lanes}((", f"({name} * {lanes})"
        in_mask = code.startswith(f"{mask}{clamp} - {place})", mutant.at - len(mask)) and start < mutant.at < end
        if in_mask or mutant.at == loop.start(2):
            return _each_lane_for_itself(code[start:end], place)
    return False


def _each_lane_for_itself(body: str, place: str) -> bool:
    """Whether what a loop stores lies at this place, and comes from the same lanes in the same round."""
    stores = [source.arguments(body, m.end() - 1)[1] for m in _STORE.finditer(body)]
    first = {m[1]: m for m in reversed(list(_SET_AGAIN.finditer(body)))}
    return (
        bool(stores)
        and all(place in body[slice(*address)] for address in stores)
        and all(_LANE_WISE.fullmatch(call) for call in re.findall(r"\bsimd_inst::(\w+)", body))
        and all(_anew(body[: m.end()], name) for name, m in first.items())
    )


def _anew(until: str, name: str) -> bool:
    """Whether a variable is set in each round, and not read before."""
    return until.count("{") == until.count("}") + 1 and len(re.findall(rf"\b{name}\b", until)) == 1


def _of_a_leader(mutant: Mutant, code: str) -> bool:
    """Whether the place is the test that chooses one of G threads, or a number of the group under that test."""
    if mutant.at < 0:
        return False
    if _LEADER.match(code, mutant.at):
        return True
    within = _WITHIN.match(code, mutant.at)
    tests = list(_LEADER.finditer(code, 0, mutant.at))
    if not within or not tests or (opening := code.find("{", tests[-1].end())) < 0:
        return False
    return opening < mutant.at < source.closing(code, opening) and 1 << int(within[1]) <= int(tests[-1][1])


def _of_a_sign(mutant: Mutant, code: str) -> bool:
    """Whether the place is in the a of `(a % b) >> 31`."""
    line = code.rfind("\n", 0, mutant.at) + 1
    at = mutant.at
    while (at := code.rfind("((", line, at)) >= 0:
        inner, outer = source.closing(code, at + 1), source.closing(code, at)
        if inner > mutant.at and re.fullmatch(r" % \w+", code[inner + 1 : outer]):
            return code.startswith(" >> 31)", outer + 1)
    return False


def _never_read(mutant: Mutant, code: str) -> bool:
    """Whether the place is on the right of `name = ...;`, and the name stands nowhere else but on the left of such."""
    if mutant.at < 0:
        return False
    start = max(code.rfind(x, 0, mutant.at) for x in ";{}") + 1
    found = _SET.match(code, start)
    if not found or mutant.at < found.end() or _DOES_MORE.search(code[start : code.find(";", start)]):
        return False
    name = found[1]
    return len(re.findall(rf"\b{name}\b", code)) == len(re.findall(rf"[;{{}}]\s*(?:\w+ )?{name} = ", code))


def _set_anew(mutant: Mutant, code: str) -> bool:
    """Whether the place begins a variable that the next statement sets, or all else that its block has of it is
    `if (C) ...;`, first `name = `."""
    if mutant.at < 0:
        return False
    found = _BEGIN.match(code, mutant.at)
    if not found:
        return False
    name, rest = found[1], code[found.end() : _end_of_block(code, found.end())]
    first = re.match(rf"\s*(?:if \((?P<condition>[\w. <]+)\) )?{name} = ", rest)
    uses = list(re.finditer(rf"\b{name}\b", rest))
    if not first or re.search(rf"\b{name}\b", rest[first.end() : rest.index(";", first.end())]):
        return False
    if first["condition"] is None:
        return True
    test = f"if ({first['condition']}) "
    under = [rest.startswith(test, _start_of_statement(rest, use.start())) for use in uses]
    between = rest[first.end() : uses[-1].start()]
    changed = [x for x in re.findall(r"[a-z]\w*", first["condition"]) if re.search(_CHANGED.format(x), between)]
    return all(under) and not changed


_CHANGED = r"(?:\+\+|--|&)(?:\w+\.)*{0}\b|\b{0}(?: (?:[-+*/%&|^]|<<|>>)?= |\+\+|--)"


def _start_of_statement(text: str, at: int) -> int:
    start = max(text.rfind(x, 0, at) for x in ";{}") + 1
    return start + len(text[start:]) - len(text[start:].lstrip())


def _end_of_block(code: str, at: int) -> int:
    """Where the block ends that the place stands in."""
    depth = 0
    for found in re.finditer(r"[{}]", code[at:]):
        depth += 1 if found[0] == "{" else -1
        if depth < 0:
            return at + found.start()
    return len(code)


def _after_reductions_of_a_warp(code: str) -> bool:
    """Whether each barrier stands between a reduction of groups of G <= 32 threads and what one thread of G does."""
    found = [int(m[1]) for m in _REDUCED_THEN_LEADER.finditer(code)]
    return len(found) == code.count("asc_syncthreads()") and all(size <= 32 for size in found)


def _strided_by_threads(mutant: Mutant, code: str) -> bool:
    """Whether all that the launched function has of its threads is loops from threadIdx.x by blockDim.x."""
    launched = list(re.finditer(r"asc_vf_call<(\w+)>", code[: mutant.at]))
    found = re.search(rf"\b{launched[-1][1]}\s*\(", code) if launched else None
    if not found:
        return False
    opening = code.index("{", source.closing(code, found.end() - 1))
    body = code[opening : source.closing(code, opening)]
    rest = re.sub(r"for \(int32_t (\w+) = threadIdx\.x; \1 < \w+; \1 \+= blockDim\.x\)", "", body)
    return rest != body and not re.search(r"threadIdx|blockDim|asc_shfl|asc_reduce", rest)


def _below_what_is_stored(mutant: Mutant, code: str) -> bool:
    """Whether a fill of L1 begins at the row at which the copies out of L0C end, and the place is its extent."""
    stored = [source.arguments(code, call.end() - 1) for call in re.finditer(r"\basc_copy_l0c2gm\s*\(", code)]
    for spans, fields in _fills_of(mutant, code):
        start = _plain(code, spans[0])
        ends = any(stored and all(f"({_plain(code, copy[i])}*" in start for copy in stored) for i in (2, 3))
        return ends and mutant.delta < 0 and _inside(fields[0], mutant)
    return False


def _fills_of(mutant: Mutant, code: str) -> Iterator[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Arguments of the calls of asc_fill_l1 in whose list the place stands, and the list's fields."""
    for call in FILL.finditer(code):
        opening = source.fill_list(code, call.end() - 1)
        if opening < mutant.at < source.closing(code, opening):
            yield source.arguments(code, call.end() - 1), source.arguments(code, opening)


def _inside(span: tuple[int, int], mutant: Mutant) -> bool:
    return span[0] <= mutant.at < span[1]


def _plain(code: str, span: tuple[int, int]) -> str:
    return re.sub(r"\s|\(int64_t\)", "", code[slice(*span)])
