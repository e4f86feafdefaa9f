"""Engram: hashed n-gram memories. Token ids pick rows of a table; a gate writes them into the streams."""

from __future__ import annotations

from torch import Tensor

from . import moe_samples as samples
from .numerics import Accumulated, Exact
from .spec import BF16, BOOL, E4M3, I32, I64, U8, Cost, define, result, scalar, tensor

ENGRAM_HASH = define(
    "engram_hash",
    version=0,
    family="engram",
    args=[
        tensor("ngrams", "T n", I32),
        tensor("lookup", "V", I32),
        tensor("multipliers", "n", I64),
        tensor("primes", "C", I64),
        tensor("offsets", "C", I64),
        scalar("pad", int),
    ],
    outs=[result("rows", "T C", I64)],
    dynamic="T",
    semantics="""ngrams[t] holds raw token ids, the newest first; -1 stands for a missing token, ids outside [0, V)
        for images. t_i = lookup[ngrams[i]]; from the first id outside the table on, that one and everything older is
        `pad`, a compressed id. H_0 = t_0*M_0, H_i = H_(i-1) xor t_i*M_i in int64 (products do not overflow). C =
        (n-1)*heads columns, size-major: column (i-1)*heads + j is H_i mod primes[column] + offsets[column]. n >=
        2.""",
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=4 * d["T"] * d["C"],
        bytes=d["T"] * (8 * d["C"] + 4 * d["n"]) + 4 * min(d["T"] * d["n"], d["V"]) + 8 * (d["n"] + 2 * d["C"]),
    ),
    samples=samples.engram_hash,
)

ENGRAM_GATHER = define(
    "engram_gather",
    version=0,
    family="engram",
    args=[tensor("weight", "R dh", E4M3), tensor("scale", "R dh//32", U8), tensor("rows", "T C", I64)],
    outs=[result("q", "T C*dh", E4M3), result("s", "T C*(dh//32)", U8)],
    dynamic="T",
    semantics="""Row t is the concatenation of the table rows rows[t, 0..C-1], codes and scale bytes as stored. Rows
        must lie in [0, R); other rows of the table are not read (it may be mapped from a file). Offsets row*dh pass
        2^31. Table and rows are on one device, which may be the host.""",
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=0,
        bytes=(min(d["T"] * d["C"], d["R"]) + d["T"] * d["C"]) * (d["dh"] + d["dh"] // 32) + 8 * d["T"] * d["C"],
    ),
    samples=samples.engram_gather,
)

ENGRAM_GATE = define(
    "engram_gate",
    version=0,
    family="engram",
    args=[
        tensor("x", "T m D", BF16),
        tensor("kv", "T (m+1)*D", BF16),
        tensor("q_weight", "m D", BF16),
        tensor("k_weight", "m D", BF16),
        tensor("image", "T", BOOL),
        scalar("eps", float, low=0),
    ],
    outs=[result("x_new", "T m D", BF16, in_place="x")],
    dynamic="T",
    semantics="""kv[t] holds m keys and then the shared value v. Per stream, in fp32: dot = sum(x *
        (q_weight*k_weight) * key) * rsqrt(mean x^2 + eps) * rsqrt(mean key^2 + eps) * D^-1/2, sums over D in a fixed
        tree; gate = sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot)), so +0 gives sigmoid(0.001) and -0
        sigmoid(-0.001); x_new = bf16(x + gate*v). Image rows return x bit for bit and their kv is not looked at. If
        the squares of a row overflow, its rsqrt is 0.""",
    numerics=Accumulated("D"),
    cost=lambda d: Cost(
        flops=9 * d["T"] * d["m"] * d["D"], bytes=d["T"] * (2 * d["D"] * (3 * d["m"] + 1) + 1) + 4 * d["m"] * d["D"]
    ),
    samples=samples.engram_gate,
)


def engram_hash(
    ngrams: Tensor,
    lookup: Tensor,
    multipliers: Tensor,
    primes: Tensor,
    offsets: Tensor,
    pad: int,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Table rows of every token.

    Args:
        ngrams: i32 [T, n], raw ids of the token and those before it, newest first, -1 = missing.
        lookup: i32 [V], compressed id of every raw id. multipliers: i64 [n]. primes, offsets: i64 [C].
        pad: compressed id that stands for missing and image tokens.

    Returns:
        i64 [T, C].
    """
    return ENGRAM_HASH.run(ngrams, lookup, multipliers, primes, offsets, pad, out)  # type: ignore[no-any-return]


def engram_gather(
    weight: Tensor, scale: Tensor, rows: Tensor, *, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Read table rows; they are the FP8 operand of the projection as they stand.

    Args:
        weight: e4m3 [R, dh]. scale: E8M0 bytes uint8 [R, dh/32]. rows: i64 [T, C], on the table's device.

    Returns:
        e4m3 [T, C*dh] and uint8 [T, C*dh/32].
    """
    return ENGRAM_GATHER.run(weight, scale, rows, out)  # type: ignore[no-any-return]


def engram_gate(
    x: Tensor,
    kv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    image: Tensor,
    eps: float,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Add the memory's value to every stream, weighted by how well the stream matches its key.

    Args:
        x: bf16 [T, m, D]. kv: bf16 [T, (m+1)*D], m keys then the value. q_weight, k_weight: bf16 [m, D].
        image: bool [T], rows left unchanged. eps: added to the mean squares.

    Returns:
        bf16 [T, m, D].
    """
    return ENGRAM_GATE.run(x, kv, q_weight, k_weight, image, eps, out)  # type: ignore[no-any-return]
