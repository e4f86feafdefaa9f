"""`docs/numerics.md` carried out row by row with numpy and Python integers.

Coefficients are those of the document. numpy's float32 arithmetic rounds once per operation and never contracts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = np.float32
ONE = 1 << 31
NOTHING = (-np.inf, 0, np.inf, -1, 0, 0)

Array = npt.NDArray[Any]
Fp32 = npt.NDArray[np.float32]

COEFFICIENTS = {
    "exp2": ("0x1.000000p+1 0x1.62e430p+0 0x1.ebfbdcp-2 0x1.c6af7cp-4 0x1.3b2de0p-6 0x1.5f082ep-9 0x1.416b52p-12"),
    "log2": (
        "0x1.715476p+0 -0x1.715472p-1 0x1.ec7366p-2 -0x1.715b7ep-2 0x1.26dd48p-2 -0x1.e9809ep-3 0x1.b94dfap-3 "
        "-0x1.a78030p-3 0x1.01ba32p-3"
    ),
}
"""Coefficients of the polynomials, from that of the power 0."""
CONSTANTS = {"log2e": "0x1.715476p+0", "ln2": "0x1.62e430p-1"}


def coefficients(name: str) -> tuple[np.float32, ...]:
    return tuple(F32(float.fromhex(c)) for c in COEFFICIENTS[name].split())


def constant(name: str) -> np.float32:
    return F32(float.fromhex(CONSTANTS[name]))


def horner(x: Array, name: str) -> Array:
    cs = coefficients(name)
    value = np.full_like(x, cs[-1])
    for c in cs[-2::-1]:
        value = value * x
        value = value + c
    return value


def exp2(x: Array) -> Array:
    x = np.maximum(x, F32(-126))
    n = np.rint(x)
    scale = ((n.astype(np.int32) + 126) << 23).astype(np.int32).view(F32)
    result: Array = horner(x - n, "exp2") * scale
    return result


def split(x: Array) -> tuple[Array, Array]:
    bits = x.view(np.int32)
    k = (bits - np.int32(0x3F3504F3)) >> 23
    return k, (bits - (k << 23)).view(F32) - F32(1)


def log2(x: Array) -> Array:
    k, f = split(x)
    result: Array = k.astype(F32) + f * horner(f, "log2")
    return result


def minus_log2_one_minus(v: Array) -> Array:
    k, f = split(F32(1) - v)
    f = np.where(k == 0, -v, f)
    result: Array = -(k.astype(F32) + f * horner(f, "log2"))
    return result


def philox(counter: tuple[Any, ...], key: tuple[int, ...]) -> tuple[Any, ...]:
    """Philox4x32-10 on Python integers, or on arrays of them in uint64."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 % 2**32, (p0 >> 32) ^ c[3] ^ k[1], p0 % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return tuple(c)


def words(seed: int, position: int, purpose: int, count: int) -> Array:
    seed, position = seed % 2**64, position % 2**64
    key = (seed % 2**32, seed >> 32)
    lanes = np.arange(-(-count // 4), dtype=np.uint64)
    return np.stack(philox((position % 2**32, position >> 32, purpose, lanes), key), axis=1).ravel()[:count]


def exponentials(x: Array) -> Array:
    # (x + 1/2) * 2**-32 is exact in float64; one rounding to fp32.
    v = ((x.astype(np.float64) + 0.5) * 2.0**-32).astype(F32)
    return minus_log2_one_minus(np.minimum(v, F32(1 - 2.0**-24)))


def order(z: Array) -> Array:
    """Ids of the tokens above -inf, most likely first."""
    ids = np.lexsort((np.arange(len(z)), -z))
    return ids[z[ids] > -np.inf]


def scale(inverse: np.float32 | None) -> np.float32:
    return constant("log2e") if inverse is None else F32(F32(inverse) * constant("log2e"))


def exponents(z: Array, inverse: np.float32 | None) -> Array:
    with np.errstate(all="ignore"):
        e = (z - z.max()) * scale(inverse)
    return np.where(z == z.max(), F32(0), e)


def weights(z: Array, inverse: np.float32 | None) -> list[int]:
    return [int(w) for w in exp2(exponents(z, inverse)).astype(np.float64) * ONE]


def valid(z: Array) -> bool:
    return bool(not np.isnan(z).any() and (z > -np.inf).any())


def kept_ids(z: Array, inverse: np.float32, k: int = -1, p: int = ONE, m: int = 0, force: int = 0) -> list[int]:
    """Brute force over the definition, one token at a time."""
    ids, w = order(z), weights(z, inverse)
    if np.isinf(scale(inverse)):
        return [int(ids[0])]
    pool = ids[:force] if force > 0 else ids
    total, before, kept = sum(w[i] for i in pool), 0, []
    for rank, i in enumerate(pool):
        if rank and ((0 < k <= rank) or before * ONE > total * p or w[i] < m):
            break
        kept.append(int(i))
        before += w[i]
    return kept


def filter_result(z: Array, inverse: np.float32, kept: list[int]) -> tuple[Any, ...]:
    """The six outputs of sample_filter for a kept set."""
    w, first = weights(z, inverse), int(order(z)[0])
    edge, last = z[kept[-1]] + F32(0), kept[-1]
    if len(kept) == int((z > -np.inf).sum()):
        edge, last = -np.inf, -1
    return z[first] + F32(0), first, edge, last, len(kept), sum(w[i] for i in kept)


def sample_filter(
    z: Array, inverse: np.float32, k: int = -1, p: int = ONE, m: int = 0, force: int = 0
) -> tuple[Any, ...]:
    if not valid(z):
        return NOTHING
    return filter_result(z, inverse, kept_ids(z, inverse, k, p, m, force))


def draw(z: Array, inverse: np.float32, kept: list[int], seed: int, position: int, purpose: int) -> int:
    """Winner of the race among kept ids."""
    if len(kept) == 1:
        return kept[0]
    noise = log2(exponentials(words(seed, position, purpose, len(z))))
    with np.errstate(over="ignore"):
        score = z * scale(inverse) - noise
    best = max(score[i] for i in kept)
    return min(i for i in kept if score[i] == best) if best > -np.inf else kept[0]


def tree_sum(x: Array) -> np.float32:
    """The written tree, without any of the shortcuts."""
    x = np.concatenate((x, np.zeros(-len(x) % 8192, F32))).reshape(-1, 8, 1024)
    total = F32(0)
    for segment in x:
        lanes = segment[0]
        for step in segment[1:]:
            lanes = lanes + step
        while len(lanes) > 1:
            lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
        total = total + lanes[0]
    return F32(total)


def log_probabilities(z: Array, inverse: np.float32 | None, kept: list[int] | None = None) -> Array:
    """[V] log-probabilities, -9999 outside the kept set (None: everything above -inf)."""
    result = np.full(len(z), F32(-9999))
    if not valid(z):
        return result
    kept = [int(i) for i in order(z)] if kept is None else kept
    e = np.full(len(z), F32(-np.inf))
    e[kept] = exponents(z, inverse)[kept]
    log_sum = log2(np.array([tree_sum(exp2(e))]))[0]
    result[kept] = np.maximum(((e - log_sum) * constant("ln2"))[kept], F32(-9999))
    return result


def smaller_mass(z: Array, inverse: np.float32, kept: list[int], token: int) -> int:
    w = weights(z, inverse)
    return sum(w[i] for i in kept if z[i] < z[token])
