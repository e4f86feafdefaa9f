"""Calls on vector registers: for each a statement that uses it and what its documentation says comes out.

Every case reads 256 bytes at `in` and 256 behind them, has a count `n`, and writes to `out`, which holds 1024 bytes of
0x5A.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
VECTORS = {
    "float": "vector_f32",
    "int32_t": "vector_s32",
    "uint32_t": "vector_u32",
    "int16_t": "vector_s16",
    "uint16_t": "vector_u16",
    "int8_t": "vector_s8",
    "uint8_t": "vector_u8",
    "half": "vector_f16",
}
NUMPY = {
    "float": np.float32,
    "int32_t": np.int32,
    "uint32_t": np.uint32,
    "int16_t": np.int16,
    "uint16_t": np.uint16,
    "int8_t": np.int8,
    "uint8_t": np.uint8,
    "half": np.float16,
}


@dataclass(frozen=True)
class Case:
    """A statement, the type of its operands and its result, and the result in terms of operands and count."""

    name: str
    body: str
    kind: str
    want: Callable[[Array, Array, int], Array]
    out: str = ""
    close: float = 0.0
    positive: bool = False

    @property
    def result(self) -> str:
        return self.out or self.kind


def _bits(kind: str) -> int:
    return 8 * np.dtype(NUMPY[kind]).itemsize


def _load(kind: str, more: str = "") -> str:
    vector, lanes = VECTORS[kind], 2048 // _bits(kind)
    return (
        f"{vector} a, b, d; vector_bool m = asc_update_mask_b{_bits(kind)}(n); "
        f"asc_loadalign(a, ({more}__ubuf__ {kind}*)in, 0); asc_loadalign(b, (__ubuf__ {kind}*)in + {lanes}, 0); "
    )


def _store(kind: str, register: str = "d", lanes: int = 0) -> str:
    return f"asc_storealign((__ubuf__ {kind}*)out + {lanes}, {register}, 0, asc_create_mask_b{_bits(kind)}(PAT_ALL));"


def _masked(want: Callable[[Array, Array], Array]) -> Callable[[Array, Array, int], Array]:
    """Lanes from n on are zero."""

    def masked(a: Array, b: Array, n: int) -> Array:
        with np.errstate(all="ignore"):
            found = want(a, b)
        return np.where(np.arange(len(found)) < n, found, 0).astype(found.dtype)

    return masked


def _plain(name: str, kind: str, call: str, want: Callable[[Array, Array], Array], **more: Any) -> Case:
    return Case(f"{name}-{kind}", _load(kind) + call + " " + _store(kind), kind, _masked(want), **more)


def _compare(name: str, kind: str, want: Callable[[Array, Array], Array], scalar: bool) -> Case:
    call = f"asc_{name}_scalar(p, a, {kind}(3), m);" if scalar else f"asc_{name}(p, a, b, m);"
    body = (
        _load(kind)
        + "vector_bool p; "
        + call
        + f" {VECTORS[kind]} one, zero; asc_duplicate_scalar(one, {kind}(1), asc_create_mask_b32(PAT_ALL));"
        + f" asc_duplicate_scalar(zero, {kind}(0), asc_create_mask_b32(PAT_ALL)); asc_select(d, one, zero, p); "
        + _store(kind)
    )
    return Case(
        f"asc_{name}{'_scalar' if scalar else ''}-{kind}",
        body,
        kind,
        _masked(lambda a, b: want(a, np.full_like(a, 3) if scalar else b).astype(a.dtype)),
    )


ARITHMETIC: list[Case] = []
for _kind in ("float", "int32_t", "int16_t", "half"):
    ARITHMETIC += [
        _plain("asc_add", _kind, "asc_add(d, a, b, m);", lambda a, b: a + b),
        _plain("asc_sub", _kind, "asc_sub(d, a, b, m);", lambda a, b: a - b),
        _plain("asc_mul", _kind, "asc_mul(d, a, b, m);", lambda a, b: a * b),
        _plain("asc_max", _kind, "asc_max(d, a, b, m);", np.maximum),
        _plain("asc_min", _kind, "asc_min(d, a, b, m);", np.minimum),
        _plain("asc_add_scalar", _kind, f"asc_add_scalar(d, a, {_kind}(5), m);", lambda a, b: a + a.dtype.type(5)),
        _plain("asc_mul_scalar", _kind, f"asc_mul_scalar(d, a, {_kind}(3), m);", lambda a, b: a * a.dtype.type(3)),
        _plain("asc_sub_scalar", _kind, f"asc_sub_scalar(d, a, {_kind}(5), m);", lambda a, b: a - a.dtype.type(5)),
        _plain("asc_max_scalar", _kind, f"asc_max_scalar(d, a, {_kind}(2), m);", lambda a, b: np.maximum(a, 2)),
        _plain("asc_min_scalar", _kind, f"asc_min_scalar(d, a, {_kind}(2), m);", lambda a, b: np.minimum(a, 2)),
        _plain("asc_abs", _kind, "asc_abs(d, a, m);", lambda a, b: np.abs(a)),
        _plain("asc_neg", _kind, "asc_neg(d, a, m);", lambda a, b: -a),
    ]
ARITHMETIC += [
    _plain("asc_relu", "float", "asc_relu(d, a, m);", lambda a, b: np.maximum(a, 0)),
    _plain("asc_abs_sub", "float", "asc_abs_sub(d, a, b, m);", lambda a, b: np.abs(a - b)),
    _plain("asc_div", "float", "asc_div(d, a, b, m);", lambda a, b: a / b, close=1e-6),
    _plain("asc_sqrt", "float", "asc_sqrt(d, a, m);", lambda a, b: np.sqrt(a), close=1e-6, positive=True),
    _plain("asc_ln", "float", "asc_ln(d, a, m);", lambda a, b: np.log(a), close=1e-6, positive=True),
    _plain("asc_exp", "float", "asc_exp(d, a, m);", lambda a, b: np.exp(a), close=1e-6),
    _plain("asc_exp_sub", "float", "asc_exp_sub(d, a, b, m);", lambda a, b: np.exp(a - b), close=1e-6),
    _plain("asc_leakyrelu", "float", "asc_leakyrelu(d, a, 0.25f, m);", lambda a, b: np.where(a > 0, a, a * 0.25)),
    _plain("asc_prelu", "float", "asc_prelu(d, a, b, m);", lambda a, b: np.where(a > 0, a, a * b)),
    _plain("asc_axpy", "float", "d = b; asc_axpy(d, a, 2.0f, m);", lambda a, b: a * 2 + b),
    _plain("asc_madd", "float", "d = b; asc_madd(d, a, b, m);", lambda a, b: a * b + b, close=1e-6),
    _plain("vmadd", "float", "d = a; vmadd(d, b, a, m, MODE_ZEROING);", lambda a, b: a * b + a, close=1e-6),
    _plain("vmula", "float", "d = a; vmula(d, b, b, m, MODE_ZEROING);", lambda a, b: a + b * b, close=1e-6),
]
for _kind in ("int32_t", "uint16_t"):
    ARITHMETIC += [
        _plain("asc_and", _kind, "asc_and(d, a, b, m);", lambda a, b: a & b),
        _plain("asc_or", _kind, "asc_or(d, a, b, m);", lambda a, b: a | b),
        _plain("asc_xor", _kind, "asc_xor(d, a, b, m);", lambda a, b: a ^ b),
        _plain("asc_not", _kind, "asc_not(d, a, m);", lambda a, b: ~a),
        _plain("asc_shiftleft_scalar", _kind, "asc_shiftleft_scalar(d, a, int16_t(3), m);", lambda a, b: a << 3),
        _plain("asc_shiftright_scalar", _kind, "asc_shiftright_scalar(d, a, int16_t(3), m);", lambda a, b: a >> 3),
    ]
_SHIFTS = "vector_s32 s; asc_duplicate_scalar(s, 7, m); asc_and(s, b, s, m); "
ARITHMETIC += [
    _plain("asc_shiftleft", "int32_t", _SHIFTS + "asc_shiftleft(d, a, s, m);", lambda a, b: a << (b & 7)),
    _plain("asc_shiftright", "int32_t", _SHIFTS + "asc_shiftright(d, a, s, m);", lambda a, b: a >> (b & 7)),
]
for _name, _want in (
    ("eq", np.equal),
    ("ne", np.not_equal),
    ("gt", np.greater),
    ("ge", np.greater_equal),
    ("lt", np.less),
    ("le", np.less_equal),
):
    ARITHMETIC += [_compare(_name, kind, _want, scalar) for kind in ("float", "int32_t") for scalar in (False, True)]


def _carry(call: str, carried: str, want: Callable[[Array, Array], tuple[Array, Array]]) -> Case:
    body = (
        _load("uint32_t")
        + "vector_bool carry, given; asc_gt_scalar(given, a, 0x7fffffffu, m); "
        + call
        + " vector_u32 one, zero; asc_duplicate_scalar(one, 1u, asc_create_mask_b32(PAT_ALL));"
        + " asc_duplicate_scalar(zero, 0u, asc_create_mask_b32(PAT_ALL));"
        + " vector_u32 e; asc_select(e, one, zero, carry); "
        + _store("uint32_t")
        + _store("uint32_t", "e", 64)
    )

    def result(a: Array, b: Array, n: int) -> Array:
        return np.concatenate([_masked(lambda x, y, i=i: want(x, y)[i])(a, b, n) for i in (0, 1)])

    return Case(carried, body, "uint32_t", result)


def _sum(a: Array, b: Array, carry: Array | int = 0) -> tuple[Array, Array]:
    total = a.astype(np.uint64) + b + carry
    return total.astype(np.uint32), (total >> 32).astype(np.uint32)


def _product(a: Array, b: Array, n: int) -> Array:
    full = a.astype(np.uint64) * b
    low, high = (full & 0xFFFFFFFF).astype(np.uint32), (full >> 32).astype(np.uint32)
    return np.concatenate([np.where(np.arange(64) < n, half, 0) for half in (low, high)]).astype(np.uint32)


def _less_carry(a: Array, b: Array) -> tuple[Array, Array]:
    left = a.astype(np.int64) - b - (a > 0x7FFFFFFF)
    return (left & 0xFFFFFFFF).astype(np.uint32), (left >= 0).astype(np.uint32)


WIDE = [
    _carry("asc_add(carry, d, a, b, m);", "asc_add-carry", _sum),
    _carry("asc_addc(carry, d, a, b, given, m);", "asc_addc", lambda a, b: _sum(a, b, a > 0x7FFFFFFF)),
    # The flag says that nothing was borrowed.
    _carry("asc_sub(carry, d, a, b, m);", "asc_sub-carry", lambda a, b: (a - b, (a >= b).astype(np.uint32))),
    _carry("asc_subc(carry, d, a, b, given, m);", "asc_subc", _less_carry),
    Case(
        "asc_mull",
        _load("uint32_t")
        + "vector_u32 e; asc_mull(d, e, a, b, m); "
        + _store("uint32_t")
        + _store("uint32_t", "e", 64),
        "uint32_t",
        _product,
    ),
]


def _tail(values: list[Any], length: int, like: Array) -> Array:
    return np.array([*values, *[0] * (length - len(values))]).astype(like.dtype)


def _blocks(of: Callable[[Array], Any]) -> Callable[[Array, Array, int], Array]:
    def blocks(a: Array, b: Array, n: int) -> Array:
        return _tail([of(a[i : min(i + 8, n)]) for i in range(0, 64, 8) if i < n], 64, a)

    return blocks


REDUCTIONS = [
    Case(
        "asc_reduce_sum",
        _load("float") + "asc_reduce_sum(d, a, m); " + _store("float"),
        "float",
        lambda a, b, n: _tail([a[:n].sum(dtype=np.float64)], 64, a),
        close=1e-6,
    ),
    Case(
        "asc_reduce_sum-int16_t",
        _load("int16_t") + "vector_s32 w; asc_reduce_sum(w, a, m); " + _store("int32_t", "w"),
        "int16_t",
        lambda a, b, n: _tail([a[:n].sum(dtype=np.int32)], 64, np.zeros(1, np.int32)),
        out="int32_t",
    ),
    Case(
        "asc_reduce_max-int32_t",
        _load("int32_t") + "asc_reduce_max(d, a, m); " + _store("int32_t"),
        "int32_t",
        lambda a, b, n: _tail([a[:n].max(), a[:n].argmax()], 64, a),
    ),
    Case(
        "asc_reduce_min-int32_t",
        _load("int32_t") + "asc_reduce_min(d, a, m); " + _store("int32_t"),
        "int32_t",
        lambda a, b, n: _tail([a[:n].min(), a[:n].argmin()], 64, a),
    ),
    Case(
        "asc_reduce_max-float",
        _load("float") + "asc_reduce_max(d, a, m); asc_storealign_1st((__ubuf__ float*)out, d, 0);",
        "float",
        lambda a, b, n: a[:n].max(keepdims=True),
    ),
    Case(
        "asc_reduce_min-float",
        _load("float") + "asc_reduce_min(d, a, m); asc_storealign_1st((__ubuf__ float*)out, d, 0);",
        "float",
        lambda a, b, n: a[:n].min(keepdims=True),
    ),
    Case(
        "asc_pair_reduce_sum",
        _load("float") + "asc_pair_reduce_sum(d, a, m); " + _store("float"),
        "float",
        lambda a, b, n: _tail(list(np.where(np.arange(64) < n, a, 0).astype(a.dtype).reshape(32, 2).sum(1)), 64, a),
    ),
    Case(
        "asc_reduce_sum_datablock",
        _load("float") + "asc_reduce_sum_datablock(d, a, m); " + _store("float"),
        "float",
        _blocks(lambda x: x.sum(dtype=np.float64)),
        close=1e-6,
    ),
    Case(
        "asc_reduce_max_datablock",
        _load("float") + "asc_reduce_max_datablock(d, a, m); " + _store("float"),
        "float",
        lambda a, b, n: _blocks(np.max)(a, b, n)[: (n + 7) // 8],
    ),
    Case(
        "asc_reduce_min_datablock",
        _load("float") + "asc_reduce_min_datablock(d, a, m); " + _store("float"),
        "float",
        lambda a, b, n: _blocks(np.min)(a, b, n)[: (n + 7) // 8],
    ),
]


def _histogram(low: bool, cumulative: bool) -> Callable[[Array, Array, int], Array]:
    def histogram(a: Array, b: Array, n: int) -> Array:
        counts = np.bincount(a[:n], minlength=256)
        counts = counts.cumsum() if cumulative else counts
        return (counts[:128] if low else counts[128:]).astype(np.uint16)

    return histogram


ORDER = [
    Case(
        f"asc_{kind}_histogram_bin{half}",
        _load("uint8_t") + "vector_u16 w; asc_duplicate_scalar(w, uint16_t(0), asc_create_mask_b16(PAT_ALL)); "
        f"asc_{kind}_histogram_bin{half}(w, a, m); " + _store("uint16_t", "w"),
        "uint8_t",
        _histogram(half == 0, kind == "cumulative"),
        out="uint16_t",
    )
    for kind in ("frequency", "cumulative")
    for half in (0, 1)
]
ORDER += [
    Case(
        "asc_squeeze",
        _load("float") + "vector_bool p; asc_gt_scalar(p, a, 0.0f, m); asc_squeeze(d, a, p); " + _store("float"),
        "float",
        lambda a, b, n: _tail(list(a[:n][a[:n] > 0]), 64, a),
    ),
    Case(
        "asc_unsqueeze",
        _load("int32_t") + "vector_bool p; asc_gt_scalar(p, a, 0, m); asc_unsqueeze(d, p); " + _store("int32_t"),
        "int32_t",
        lambda a, b, n: np.concatenate([[0], np.cumsum((a > 0) & (np.arange(64) < n))[:-1]]).astype(np.int32),
    ),
    Case(
        "asc_arange",
        _load("int32_t") + "asc_arange(d, 11); " + _store("int32_t"),
        "int32_t",
        lambda a, b, n: np.arange(11, 75, dtype=np.int32),
    ),
    Case(
        "asc_arange_descend",
        _load("int32_t") + "asc_arange_descend(d, 11); " + _store("int32_t"),
        "int32_t",
        lambda a, b, n: np.arange(74, 10, -1, dtype=np.int32),
    ),
    Case(
        "asc_duplicate",
        _load("float") + "asc_duplicate(d, a, m); " + _store("float"),
        "float",
        _masked(lambda a, b: np.full_like(a, a[0])),
    ),
    Case(
        "asc_duplicate_highest",
        _load("float") + "asc_duplicate_highest(d, a, m); " + _store("float"),
        "float",
        _masked(lambda a, b: np.full_like(a, a[63])),
    ),
    Case(
        "asc_duplicate_scalar",
        _load("int16_t") + "asc_duplicate_scalar(d, int16_t(-9), m); " + _store("int16_t"),
        "int16_t",
        _masked(lambda a, b: np.full_like(a, -9)),
    ),
    Case(
        "asc_select",
        _load("float") + "asc_select(d, a, b, m); " + _store("float"),
        "float",
        lambda a, b, n: np.where(np.arange(64) < n, a, b),
    ),
    Case(
        "asc_intlv",
        _load("int16_t") + "vector_s16 e; asc_intlv(d, e, a, b); " + _store("int16_t") + _store("int16_t", "e", 128),
        "int16_t",
        lambda a, b, n: np.stack([a, b], 1).ravel(),
    ),
    Case(
        "asc_deintlv",
        _load("float") + "vector_f32 e; asc_deintlv(d, e, a, b); " + _store("float") + _store("float", "e", 64),
        "float",
        lambda a, b, n: np.concatenate([np.concatenate([a, b])[i::2] for i in (0, 1)]),
    ),
    Case(
        "asc_gather-register",
        _load("float") + "vector_u32 i; vector_s32 j; asc_arange_descend(j, 0); "
        "asc_gather(d, a, reinterpret_cast<vector_u32&>(j)); " + _store("float"),
        "float",
        lambda a, b, n: a[::-1],
    ),
    Case(
        "asc_gather",
        _load("float") + "vector_s32 j; asc_arange_descend(j, 30); "
        "asc_gather(d, (__ubuf__ float*)in, reinterpret_cast<vector_u32&>(j), m); " + _store("float"),
        "float",
        _masked(lambda a, b: np.concatenate([a, b])[np.arange(93, 29, -1)]),
    ),
    Case(
        "asc_gather_datablock",
        _load("float") + "vector_s32 j, s; asc_arange_descend(j, 0); "
        "asc_create_mask_b32(PAT_ALL); asc_shiftleft_scalar(j, j, int16_t(5), asc_create_mask_b32(PAT_ALL)); "
        "asc_duplicate_scalar(s, 224, asc_create_mask_b32(PAT_ALL)); "
        "asc_and(j, j, s, asc_create_mask_b32(PAT_ALL)); "
        "asc_gather_datablock(d, (__ubuf__ float*)in, reinterpret_cast<vector_u32&>(j)); " + _store("float"),
        "float",
        lambda a, b, n: a.reshape(8, 8)[::-1].ravel(),
    ),
    Case(
        "asc_scatter",
        _load("float") + "vector_s32 j; asc_arange_descend(j, 7); "
        "asc_scatter((__ubuf__ float*)out, a, reinterpret_cast<vector_u32&>(j), m);",
        "float",
        lambda a, b, n: _scattered(a, n),
    ),
]
FILL = np.frombuffer(b"\x5a" * 1024, np.uint8)


def _scattered(a: Array, n: int) -> Array:
    found = FILL.view(np.float32).copy()
    found[(70 - np.arange(64))[:n]] = a[:n]
    return found


def _alternate(a: Array) -> Array:
    """Elements with as many zeros of their own width between them."""
    return np.stack([a, np.zeros_like(a)], 1).ravel()


def _through(load: str, kind: str, want: Callable[[Array], Array]) -> Case:
    body = f"{VECTORS[kind]} d; {load}(d, (__ubuf__ {kind}*)in, 0); " + _store(kind)
    return Case(f"{load}-{kind}", body, kind, lambda a, b, n: want(a))


MEMORY = [
    _through("asc_loadalign", "uint8_t", lambda a: a),
    _through("asc_loadalign_brc_elem", "float", lambda a: np.full_like(a, a[0])),
    _through("asc_loadalign_brc_elem", "int16_t", lambda a: np.full_like(a, a[0])),
    _through("asc_loadalign_upsample", "int16_t", lambda a: np.repeat(a[:64], 2)),
    _through("asc_loadalign_unpack", "uint8_t", lambda a: _alternate(a[:128])),
    _through("asc_loadalign_unpack", "int16_t", lambda a: _alternate(a[:64])),
    _through("asc_loadalign_unpack4", "uint8_t", lambda a: np.stack([a[:64], *[np.zeros_like(a[:64])] * 3], 1).ravel()),
    _through("asc_loadalign_brc_datablock", "float", lambda a: np.tile(a[:8], 8)),
    _through("asc_loadalign_brc_elem2datablock", "float", lambda a: np.repeat(a[:8], 8)),
    _through("asc_loadalign_brc_elem2datablock", "int16_t", lambda a: np.repeat(a[:8], 16)),
    Case(
        "asc_loadalign_downsample",
        "vector_s16 d; asc_loadalign_downsample(d, (__ubuf__ int16_t*)in, 0); " + _store("int16_t"),
        "int16_t",
        lambda a, b, n: np.concatenate([a, b])[::2],
    ),
    Case(
        "asc_loadalign_deintlv",
        "vector_s16 d, e; asc_loadalign_deintlv(d, e, (__ubuf__ int16_t*)in, 0); "
        + _store("int16_t")
        + _store("int16_t", "e", 128),
        "int16_t",
        lambda a, b, n: np.concatenate([np.concatenate([a, b])[i::2] for i in (0, 1)]),
    ),
    Case(
        "asc_loadalign_downsample_postupdate",
        "vector_s16 d; __ubuf__ int16_t* p = (__ubuf__ int16_t*)in; "
        "asc_loadalign_downsample_postupdate(d, p, 128); asc_loadalign(d, p, 0); " + _store("int16_t"),
        "int16_t",
        lambda a, b, n: b,
    ),
    Case(
        "asc_loadalign-offset",
        "vector_f32 d; asc_loadalign(d, (__ubuf__ float*)in, 64); " + _store("float"),
        "float",
        lambda a, b, n: b,
    ),
    Case(
        "asc_loadalign_postupdate",
        "vector_f32 d; __ubuf__ float* p = (__ubuf__ float*)in; "
        "asc_loadalign_postupdate(d, p, 64); asc_loadalign(d, p, 0); " + _store("float"),
        "float",
        lambda a, b, n: b,
    ),
    Case(
        "asc_storealign-mask",
        _load("float") + "asc_storealign((__ubuf__ float*)out, a, 8, m);",
        "float",
        lambda a, b, n: np.concatenate([FILL.view(np.float32)[:8], a[:n], FILL.view(np.float32)[8 + n :]]),
    ),
    Case(
        "asc_storealign_postupdate",
        _load("float") + "__ubuf__ float* p = (__ubuf__ float*)out; "
        "asc_storealign_postupdate(p, a, uint16_t(1), uint16_t(8), asc_create_mask_b32(PAT_ALL)); "
        "asc_storealign(p, b, 0, asc_create_mask_b32(PAT_ALL));",
        "float",
        lambda a, b, n: np.concatenate([a, b]),
    ),
    Case(
        "asc_storealign_postupdate-offset",
        _load("float") + "__ubuf__ float* p = (__ubuf__ float*)out; "
        "asc_storealign_postupdate(p, a, 64, asc_create_mask_b32(PAT_ALL)); "
        "asc_storealign(p, b, 0, asc_create_mask_b32(PAT_ALL));",
        "float",
        lambda a, b, n: np.concatenate([a, b]),
    ),
    Case(
        "asc_storealign-blocks",
        _load("float")
        + "asc_storealign((__ubuf__ float*)out, a, uint16_t(3), uint16_t(1), asc_create_mask_b32(PAT_ALL));",
        "float",
        lambda a, b, n: _strided(a),
    ),
    Case(
        "asc_storealign_1st",
        _load("int16_t") + "asc_storealign_1st((__ubuf__ int16_t*)out, a, 3);",
        "int16_t",
        lambda a, b, n: np.concatenate([FILL.view(np.int16)[:3], a[:1], FILL.view(np.int16)[4:]]),
    ),
    Case(
        "asc_storealign_pack-uint32_t",
        _load("uint32_t") + "asc_storealign_pack((__ubuf__ uint32_t*)out, a, 0, m);",
        "uint32_t",
        lambda a, b, n: np.concatenate([a[:n].astype(np.uint16), FILL.view(np.uint16)[n:]]),
        out="uint16_t",
    ),
    Case(
        "asc_storealign_pack-uint16_t",
        _load("uint16_t") + "asc_storealign_pack((__ubuf__ uint16_t*)out, a, 0, m);",
        "uint16_t",
        lambda a, b, n: np.concatenate([a[:n].astype(np.uint8), FILL[n:]]),
        out="uint8_t",
    ),
    Case(
        "asc_storealign_pack_quarter",
        _load("uint32_t") + "asc_storealign_pack_quarter((__ubuf__ uint32_t*)out, a, 0, m);",
        "uint32_t",
        lambda a, b, n: np.concatenate([a[:n].astype(np.uint8), FILL[n:]]),
        out="uint8_t",
    ),
    Case(
        "asc_mem_bar",
        _load("float") + "asc_storealign((__ubuf__ float*)out, a, 0, asc_create_mask_b32(PAT_ALL)); "
        "asc_mem_bar(VST_VLD); asc_loadalign(d, (__ubuf__ float*)out, 0); "
        "asc_storealign((__ubuf__ float*)out, d, 64, asc_create_mask_b32(PAT_ALL));",
        "float",
        lambda a, b, n: np.concatenate([a, a]),
    ),
    Case(
        "asc_pack_to_low",
        _load("uint32_t") + "vector_u16 w; asc_pack_to_low(w, a); " + _store("uint16_t", "w"),
        "uint32_t",
        lambda a, b, n: _tail(list(a.astype(np.uint16)), 128, np.zeros(1, np.uint16)),
        out="uint16_t",
    ),
    Case(
        "asc_pack_to_high",
        _load("uint32_t") + "vector_u16 w; asc_pack_to_high(w, a); " + _store("uint16_t", "w"),
        "uint32_t",
        lambda a, b, n: np.concatenate([np.zeros(64), a.astype(np.uint16)]).astype(np.uint16),
        out="uint16_t",
    ),
    Case(
        "asc_unpack_lower",
        _load("int16_t") + "vector_s32 w; asc_unpack_lower(w, a); " + _store("int32_t", "w"),
        "int16_t",
        lambda a, b, n: a[:64].astype(np.int32),
        out="int32_t",
    ),
    Case(
        "asc_unpack_upper",
        _load("int16_t") + "vector_s32 w; asc_unpack_upper(w, a); " + _store("int32_t", "w"),
        "int16_t",
        lambda a, b, n: a[64:].astype(np.int32),
        out="int32_t",
    ),
]


def _strided(a: Array) -> Array:
    found = FILL.view(np.float32).copy()
    for block in range(8):
        found[block * 24 : block * 24 + 8] = a[block * 8 : block * 8 + 8]
    return found


def _mask(width: int, statement: str, want: Callable[[int], Array], name: str) -> Case:
    """The lanes of a mask `p` as ones and zeros."""
    kind = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t"}[width]
    every = f"asc_create_mask_b{width}(PAT_ALL)"
    body = (
        f"vector_bool p; {statement} {VECTORS[kind]} one, zero, d; asc_duplicate_scalar(one, {kind}(1), {every}); "
        f"asc_duplicate_scalar(zero, {kind}(0), {every}); asc_select(d, one, zero, p); " + _store(kind)
    )
    return Case(name, body, kind, lambda a, b, n: want(n).astype(NUMPY[kind]))


def _first(lanes: int, count: int) -> Array:
    return np.arange(lanes) < count


PATTERNS: dict[str, Callable[[Array, int], Array]] = {
    "PAT_ALL": lambda i, lanes: i >= 0,
    "PAT_ALLF": lambda i, lanes: i < 0,
    "PAT_M3": lambda i, lanes: i % 3 == 0,
    "PAT_M4": lambda i, lanes: i % 4 == 0,
    "PAT_H": lambda i, lanes: i < lanes // 2,
    "PAT_Q": lambda i, lanes: i < lanes // 4,
    **{f"PAT_VL{k}": (lambda i, lanes, k=k: i < k) for k in (1, 2, 3, 4, 8, 16, 32, 64)},
}
MASKS = [
    _mask(
        width,
        f"p = asc_create_mask_b{width}({pattern});",
        lambda n, w=width, f=want: f(np.arange(2048 // w), 2048 // w),
        f"asc_create_mask_b{width}-{pattern}",
    )
    for width in (8, 16, 32)
    for pattern, want in PATTERNS.items()
]
MASKS += [
    _mask(
        width,
        f"uint32_t left = n * {k}; p = asc_update_mask_b{width}(left); p = asc_update_mask_b{width}(left);",
        lambda n, w=width, k=k: _first(2048 // w, n * k - 2048 // w),
        f"asc_update_mask_b{width}",
    )
    for width, k in ((8, 9), (16, 5), (32, 3))
]
_TWO = "vector_bool q = asc_update_mask_b32(n), r = asc_create_mask_b32(PAT_M3), all = asc_create_mask_b32(PAT_ALL); "
_THIRD = np.arange(64) % 3 == 0
_PAIR = "vector_bool q = asc_update_mask_b{0}(n), r = asc_create_mask_b{0}(PAT_M3), o; asc_{1}_b{0}({2}, q, r);"


def _woven(width: int, second: bool) -> Callable[[int], Array]:
    lanes = 2048 // width

    def woven(n: int) -> Array:
        both = np.stack([_first(lanes, n), np.arange(lanes) % 3 == 0], 1).ravel()
        return both[lanes:] if second else both[:lanes]

    return woven


def _unwoven(width: int, second: bool) -> Callable[[int], Array]:
    lanes = 2048 // width
    return lambda n: np.concatenate([_first(lanes, n), np.arange(lanes) % 3 == 0])[int(second) :: 2]


for _width in (8, 16, 32):
    for _second in (False, True):
        _order = "o, p" if _second else "p, o"
        MASKS += [
            _mask(
                _width,
                _PAIR.format(_width, "intlv", _order),
                _woven(_width, _second),
                f"asc_intlv_b{_width}-{int(_second)}",
            ),
            _mask(
                _width,
                _PAIR.format(_width, "deintlv", _order),
                _unwoven(_width, _second),
                f"asc_deintlv_b{_width}-{int(_second)}",
            ),
        ]
MASKS += [
    _mask(32, _TWO + "asc_and(p, q, r, all);", lambda n: _first(64, n) & _THIRD, "asc_and-mask"),
    _mask(32, _TWO + "asc_or(p, q, r, all);", lambda n: _first(64, n) | _THIRD, "asc_or-mask"),
    _mask(32, _TWO + "asc_xor(p, q, r, all);", lambda n: _first(64, n) ^ _THIRD, "asc_xor-mask"),
    _mask(32, _TWO + "asc_not(p, r, q);", lambda n: ~_THIRD & _first(64, n), "asc_not-mask"),
    _mask(32, _TWO + "asc_select(p, q, all, r);", lambda n: np.where(_THIRD, _first(64, n), True), "asc_select-mask"),
    _mask(16, _TWO + "asc_pack_to_low(p, q);", lambda n: _first(128, n), "asc_pack_to_low-mask"),
    _mask(
        16,
        _TWO + "asc_pack_to_high(p, q);",
        lambda n: np.concatenate([np.zeros(64), _first(64, n)]),
        "asc_pack_to_high-mask",
    ),
    _mask(
        32,
        "vector_bool q = asc_create_mask_b16(PAT_VL64); uint32_t k = n + 64; q = asc_update_mask_b16(k); "
        "asc_unpack_upper(p, q);",
        lambda n: _first(64, n),
        "asc_unpack_upper-mask",
    ),
    _mask(
        32,
        "vector_bool q = asc_update_mask_b16(n); asc_unpack_lower(p, q);",
        lambda n: _first(64, n),
        "asc_unpack_lower-mask",
    ),
    _mask(
        32,
        _TWO + "asc_storealign((__ubuf__ uint32_t*)out, q, 0); asc_loadalign(p, (__ubuf__ uint32_t*)out, 0);",
        lambda n: _first(64, n),
        "asc_loadalign-mask",
    ),
    _mask(
        16,
        _TWO + "asc_storealign_pack((__ubuf__ uint32_t*)out, q, 0); "
        "asc_loadalign(p, (__ubuf__ uint32_t*)out, 0); asc_and(p, p, asc_create_mask_b16(PAT_VL64), "
        "asc_create_mask_b16(PAT_ALL));",
        lambda n: _first(128, n),
        "asc_storealign_pack-mask",
    ),
]


def _postupdate(load: str, kind: str, second: Callable[[Array], Array]) -> Case:
    """A load that moves the pointer on, and the same load without a move."""
    step = 64 // np.dtype(NUMPY[kind]).itemsize
    body = (
        f"{VECTORS[kind]} d; __ubuf__ {kind}* p = (__ubuf__ {kind}*)in; {load}_postupdate(d, p, {step}); "
        f"{load}(d, p, 0); " + _store(kind)
    )
    return Case(f"{load}_postupdate-{kind}", body, kind, lambda a, b, n: second(np.concatenate([a, b])[step:]))


MEMORY += [
    _postupdate("asc_loadalign_brc_elem", "float", lambda a: np.full(64, a[0])),
    _postupdate("asc_loadalign_upsample", "int16_t", lambda a: np.repeat(a[:64], 2)),
    _postupdate("asc_loadalign_unpack", "int16_t", lambda a: _alternate(a[:64])),
    _postupdate(
        "asc_loadalign_unpack4", "uint8_t", lambda a: np.stack([a[:64], *[np.zeros_like(a[:64])] * 3], 1).ravel()
    ),
    _postupdate("asc_loadalign_brc_datablock", "float", lambda a: np.tile(a[:8], 8)),
    _postupdate("asc_loadalign_brc_elem2datablock", "float", lambda a: np.repeat(a[:8], 8)),
]
ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "R": np.rint,
    "A": lambda a: np.copysign(np.floor(np.abs(a) + 0.5), a),
    "F": np.floor,
    "C": np.ceil,
    "Z": np.trunc,
}
CONVERSIONS = [
    Case(
        f"vcvt-float-int32_t-{letter}",
        _load("float")
        + f"vector_s32 i; vcvt(i, a, m, ROUND_{letter}, RS_ENABLE, MODE_ZEROING); "
        + _store("int32_t", "i"),
        "float",
        _masked(lambda a, b, f=rounded: f(a).astype(np.int32)),
        out="int32_t",
    )
    for letter, rounded in ROUNDINGS.items()
]
CONVERSIONS += [
    Case(
        "vcvt-int32_t-float",
        _load("int32_t") + "vector_f32 f; vcvt(f, a, m, ROUND_R, MODE_ZEROING); " + _store("float", "f"),
        "int32_t",
        _masked(lambda a, b: a.astype(np.float32)),
        out="float",
    ),
    *(
        Case(
            f"vcvt-float-half-{part}",
            _load("float")
            + f"vector_f16 h; vcvt(h, a, m, ROUND_R, RS_ENABLE, PART_{part}, MODE_ZEROING); "
            + _store("half", "h"),
            "float",
            lambda a, b, n, odd=odd: _sublanes(np.where(np.arange(64) < n, a, 0).astype(np.float16), odd),
            out="half",
        )
        for odd, part in enumerate(("EVEN", "ODD"))
    ),
    *(
        Case(
            f"vcvt-half-float-{part}",
            _load("half")
            + f"vector_f32 f; vcvt(f, a, asc_create_mask_b16(PAT_ALL), PART_{part}, MODE_ZEROING); "
            + _store("float", "f"),
            "half",
            lambda a, b, n, odd=odd: a[odd::2].astype(np.float32),
            out="float",
        )
        for odd, part in enumerate(("EVEN", "ODD"))
    ),
]


def _sublanes(a: Array, odd: int) -> Array:
    """Elements in the even or the odd lanes, zeros in the others."""
    found = np.zeros(2 * len(a), a.dtype)
    found[odd::2] = a
    return found


CASES = CONVERSIONS + ARITHMETIC + WIDE + REDUCTIONS + ORDER + MEMORY + MASKS


def text() -> str:
    """One kernel with a branch for each case."""
    cases = "\n".join(f"    case {i}: {{ {case.body} }} break;" for i, case in enumerate(CASES))
    return f"""#include "c_api/asc_simd.h"
__simd_vf__ inline void op(__ubuf__ uint8_t* in, __ubuf__ uint8_t* out, int32_t what, uint32_t n) {{
  switch (what) {{
{cases}
  }}
}}
extern "C" __global__ __vector__ void simd_calls(__gm__ uint8_t* x, __gm__ uint8_t* y, int32_t what, uint32_t n) {{
  asc_init();
  __ubuf__ uint8_t* in = (__ubuf__ uint8_t*)0;
  __ubuf__ uint8_t* out = (__ubuf__ uint8_t*)4096;
  asc_copy_gm2ub_align(in, x, 1, 512, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0), 512, 512);
  asc_copy_gm2ub_align(out, y, 1, 1024, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0), 1024, 1024);
  asc_sync_notify(PIPE_MTE2, PIPE_V, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_V, EVENT_ID0);
  op(in, out, what, n);
  asc_sync_notify(PIPE_V, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_V, PIPE_MTE3, EVENT_ID0);
  asc_copy_ub2gm_align(y, out, 1, 1024, static_cast<asc_store_l2_cache_mode>(0), 1024, 1024);
}}
"""
