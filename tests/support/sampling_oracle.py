"""`docs/numerics.md` carried out a second time, row by row with numpy and Python integers, to test sampling with.

Coefficients are read from the document. numpy's float32 arithmetic rounds once per operation and never contracts.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "numerics.md"
F32 = np.float32
ONE = 1 << 31
NOTHING = (-np.inf, 0, np.inf, -1, 0, 0)


@cache
def blocks() -> dict[str, list[list[str]]]:
    """Fenced blocks of the document that start with `table NAME`: their lines, split at blanks, without comments."""
    found = re.findall(r"^```table (\S+)\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.S | re.M)
    return {name: [row.split() for row in body.splitlines() if not row.startswith("#")] for name, body in found}


def number(text: str) -> np.float32:
    """fp32 from its hexadecimal spelling, inf or nan; must be exact."""
    value = float(text) if text.lstrip("+-") in ("inf", "nan") else float.fromhex(text)
    assert np.isnan(value) or float(F32(value)) == value, text
    return F32(value)


@cache
def coefficients(name: str) -> tuple[np.float32, ...]:
    return tuple(number(row[1]) for row in blocks()[name])


def constant(name: str) -> np.float32:
    return {row[0]: number(row[1]) for row in blocks()["constants"]}[name]


def horner(x: np.ndarray, name: str) -> np.ndarray:
    cs = coefficients(name)
    value = np.full_like(x, cs[-1])
    for c in cs[-2::-1]:
        value = value * x
        value = value + c
    return value


def exp2(x: np.ndarray) -> np.ndarray:
    x = np.maximum(x, F32(-126))
    n = np.rint(x)
    scale = ((n.astype(np.int32) + 126) << 23).astype(np.int32).view(F32)
    return horner(x - n, "exp2") * scale


def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    bits = x.view(np.int32)
    k = (bits - np.int32(0x3F3504F3)) >> 23
    return k, (bits - (k << 23)).view(F32) - F32(1)


def log2(x: np.ndarray) -> np.ndarray:
    k, f = split(x)
    return k.astype(F32) + f * horner(f, "log2")


def minus_log2_one_minus(v: np.ndarray) -> np.ndarray:
    k, f = split(F32(1) - v)
    f = np.where(k == 0, -v, f)
    return -(k.astype(F32) + f * horner(f, "log2"))


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox4x32-10 on Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 % 2**32, (p0 >> 32) ^ c[3] ^ k[1], p0 % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return tuple(c)


def words(seed: int, position: int, purpose: int, count: int) -> np.ndarray:
    seed, position = seed % 2**64, position % 2**64
    key = (seed % 2**32, seed >> 32)
    lanes = (philox((position % 2**32, position >> 32, purpose, lane), key) for lane in range(-(-count // 4)))
    return np.array([x for lane in lanes for x in lane], np.uint64)[:count]


def exponentials(x: np.ndarray) -> np.ndarray:
    # (x + 1/2) * 2**-32 is exact in float64; one rounding to fp32.
    v = ((x.astype(np.float64) + 0.5) * 2.0**-32).astype(F32)
    return minus_log2_one_minus(np.minimum(v, F32(1 - 2.0**-24)))


def order(z: np.ndarray) -> np.ndarray:
    """Ids of the tokens above -inf, most likely first."""
    ids = np.lexsort((np.arange(len(z)), -z))
    return ids[z[ids] > -np.inf]


def scale(inverse: np.float32 | None) -> np.float32:
    return constant("log2e") if inverse is None else F32(F32(inverse) * constant("log2e"))


def exponents(z: np.ndarray, inverse: np.float32 | None) -> np.ndarray:
    with np.errstate(all="ignore"):
        e = (z - z.max()) * scale(inverse)
    return np.where(z == z.max(), F32(0), e)


def weights(z: np.ndarray, inverse: np.float32 | None) -> list[int]:
    return [int(w) for w in exp2(exponents(z, inverse)).astype(np.float64) * ONE]


def valid(z: np.ndarray) -> bool:
    return bool(not np.isnan(z).any() and (z > -np.inf).any())


def kept_ids(z: np.ndarray, inverse: np.float32, k: int = -1, p: int = ONE, m: int = 0, force: int = 0) -> list[int]:
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


def filter_result(z: np.ndarray, inverse: np.float32, kept: list[int]) -> tuple:
    """The six outputs of sample_filter for a kept set."""
    w, first = weights(z, inverse), int(order(z)[0])
    edge, last = z[kept[-1]] + F32(0), kept[-1]
    if len(kept) == int((z > -np.inf).sum()):
        edge, last = -np.inf, -1
    return z[first] + F32(0), first, edge, last, len(kept), sum(w[i] for i in kept)


def sample_filter(z: np.ndarray, inverse: np.float32, k: int = -1, p: int = ONE, m: int = 0, force: int = 0) -> tuple:
    if not valid(z):
        return NOTHING
    return filter_result(z, inverse, kept_ids(z, inverse, k, p, m, force))


def draw(z: np.ndarray, inverse: np.float32, kept: list[int], seed: int, position: int, purpose: int) -> int:
    """Winner of the race among kept ids."""
    if len(kept) == 1:
        return kept[0]
    noise = log2(exponentials(words(seed, position, purpose, len(z))))
    with np.errstate(over="ignore"):
        score = z * scale(inverse) - noise
    best = max(score[i] for i in kept)
    return min(i for i in kept if score[i] == best) if best > -np.inf else kept[0]


def tree_sum(x: np.ndarray) -> np.float32:
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


def log_probabilities(z: np.ndarray, inverse: np.float32 | None, kept: list[int] | None = None) -> np.ndarray:
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


def smaller_mass(z: np.ndarray, inverse: np.float32, kept: list[int], token: int) -> int:
    w = weights(z, inverse)
    return sum(w[i] for i in kept if z[i] < z[token])
