"""The vision tower: pixels to patches, linears with their epilogue, attention within an image, merged patches, scatter.

Patches of all images of a step lie one after the other, each image row by row. What belongs to which image is said per
row (`place`, `begin`, `end`, `source`), so a patch's result depends on its own image alone, whatever else is in the
step.
"""

from __future__ import annotations

from torch import Tensor

from . import vision_samples as samples
from .numerics import Accumulated, Exact, Rounded
from .spec import BF16, F32, I32, I64, U8, Cost, WeightHandle, define, handle, result, scalar, tensor

ACTIVATIONS = ("none", "gelu")

IMAGE_PATCHES = define(
    "image_patches",
    version=0,
    family="vision",
    args=[
        tensor("place", "T 3", I32),
        tensor("pixels", "B", U8),
        tensor("images", "I 5", I64),
        scalar("patch", int, low=1),
    ],
    outs=[result("x", "T 3*patch*patch", BF16)],
    dynamic="T B I",
    semantics="""images[i] = (offset, width, height, left, top): an RGB image of height rows of width pixels of 3 bytes
        begins at pixels[offset] and stands on an endless canvas of value 127, its first pixel at column left and row
        top. place[t] = (image, row, column): row t is the patch of patch x patch canvas pixels that begins at
        (row*patch, column*patch), channel by channel, each row by row. A byte v becomes bf16((v/255 - 0.5) / 0.5),
        every step rounded to fp32, the divisions included. An image outside [0, I) gives a zero row and reads nothing.
        Bytes of pixels that belong to no wanted patch may hold anything.""",
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=9 * d["T"] * d["patch"] ** 2,
        bytes=12 * d["T"] + d["B"] + 40 * d["I"] + 6 * d["T"] * d["patch"] ** 2,
    ),
    samples=samples.image_patches,
)

VISION_LINEAR = define(
    "vision_linear",
    version=0,
    family="vision",
    args=[
        tensor("x", "T K", BF16),
        handle("weight", weight=("N K", BF16)),
        tensor("bias", "N", BF16, optional=True),
        tensor("residual", "T N", BF16, optional=True),
        scalar("activation", str, choices=ACTIVATIONS),
    ],
    outs=[result("y", "T N", BF16)],
    dynamic="T",
    semantics="""z = bf16(sum_k x[t,k] * w[n,k] + bias[n]), summed in fp32 in an order that depends on N and K
        alone. activation 'gelu': z becomes bf16(z * (1 + erf(z / sqrt 2)) / 2), computed in fp32. Then y =
        bf16(residual + z) where there is one, else z. A NaN in a row of x or residual makes nothing of another row
        NaN. K may be any size.""",
    numerics=Accumulated("K+1"),
    cost=lambda d: Cost(
        flops=2 * d["T"] * d["N"] * d["K"],
        bytes=2 * d["N"] * (d["K"] + bool(d.get("bias.itemsize")))
        + 2 * d["T"] * (d["K"] + d["N"] * (1 + bool(d.get("residual.itemsize")))),
    ),
    samples=samples.vision_linear,
)

SILU_MUL = define(
    "silu_mul",
    version=0,
    family="vision",
    args=[tensor("gate_up", "T N", BF16)],
    outs=[result("y", "T N//2", BF16)],
    dynamic="T",
    semantics="""The first half of the columns is the gate g, the second u: y = bf16((g * sigmoid(g)) * u) in fp32, one
        rounding at the end. N is even. A sigmoid below 2^-126 may be 0.""",
    numerics=Rounded(ulp=1),
    cost=lambda d: Cost(flops=6 * d["T"] * (d["N"] // 2), bytes=2 * d["T"] * (d["N"] + d["N"] // 2)),
    samples=samples.silu_mul,
)

IMAGE_ROPE = define(
    "image_rope",
    version=0,
    family="vision",
    args=[tensor("qkv", "T 3 h d", BF16), tensor("place", "T 3", I32), tensor("table", "P d//4 2", F32)],
    outs=[result("y", "T 3 h d", BF16, in_place="qkv")],
    dynamic="T P",
    semantics="""qkv[:, 0] and qkv[:, 1] are turned, qkv[:, 2] is copied bit for bit. Channels pair up half-split: (a,
        b) = (x[i], x[i + d/2]), i < d/2, becomes (a*cos - b*sin, a*sin + b*cos) in fp32, one rounding to bf16. place[t]
        = (image, row, column); the angle of pair i is table[row, i] for i < d/4, else table[column, i - d/4]; table[p,
        i] = (cos, sin). Rows and columns must lie in [0, P), those of padding rows too; the image is not looked at. d
        is a multiple of 4. A fused multiply-add is allowed.""",
    numerics=Accumulated("2"),
    cost=lambda d: Cost(
        flops=6 * d["T"] * d["h"] * d["d"],
        bytes=d["T"] * (12 * d["h"] * d["d"] + 12) + 8 * min(2 * d["T"], d["P"]) * (d["d"] // 4),
    ),
    samples=samples.image_rope,
)

IMAGE_ATTENTION = define(
    "image_attention",
    version=0,
    family="vision",
    args=[
        tensor("q", "T h d", BF16, layout="rows"),
        tensor("k", "M h d", BF16, layout="rows"),
        tensor("v", "M h d", BF16, layout="rows"),
        tensor("begin", "T", I32),
        tensor("end", "T", I32),
        scalar("scale", float),
    ],
    outs=[result("o", "T h d", BF16)],
    dynamic="T M",
    semantics="""Row t attends keys begin[t] .. end[t]-1, head by head, without a mask inside them and without a sink: P
        = exp((q.k)*scale - max), o = bf16(sum bf16(P)*v / sum P), sums in fp32, the denominator over unrounded P. A row
        without a key (begin = end) gives zeros. 0 <= begin <= end <= M. Keys outside the range are not read into the
        result, NaN or not. The order of the sums depends on the number of the row's keys, on h and on d alone: the keys
        count from begin, wherever that is. A NaN among a row's query and keys makes that row and head NaN.""",
    numerics=Accumulated("M"),
    cost=lambda d: Cost(
        flops=4 * d["T"] * d["h"] * d["d"] * d["M"], bytes=4 * (d["T"] + d["M"]) * d["h"] * d["d"] + 8 * d["T"]
    ),
    samples=samples.image_attention,
)

MERGE_PATCHES = define(
    "merge_patches",
    version=0,
    family="vision",
    args=[tensor("x", "N C", BF16), tensor("source", "M S", I32)],
    outs=[result("y", "M C*S", BF16)],
    dynamic="N M",
    semantics="""y[m, c*S + s] = x[source[m, s], c], bit for bit: S patches become one vector, channel by channel. An
        index outside [0, N) (-1 is the usual one) stands for a patch of zeros and reads nothing. N may be 0.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=d["M"] * d["S"] * (4 + 2 * d["C"]) + 2 * d["C"] * min(d["M"] * d["S"], d["N"])),
    samples=samples.merge_patches,
)

SCATTER_EMBEDS = define(
    "scatter_embeds",
    version=0,
    family="vision",
    args=[
        tensor("x", "T m D", BF16),
        tensor("values", "V D", BF16),
        tensor("marks", "K D", BF16),
        tensor("source", "T", I32),
    ],
    outs=[result("y", "T m D", BF16, in_place="x")],
    dynamic="T V",
    semantics="""Every stream of row t is values[s] with s = source[t] in [0, V), marks[-2 - s] for s in [-1 - K, -2],
        and x[t] itself for s = -1; bit for bit. Other s are not allowed. What x holds in rows that are replaced does
        not matter.""",
    numerics=Exact(),
    # As if every row were replaced: what x holds there is not read. Rows that stay cost nothing in place.
    cost=lambda d: Cost(flops=0, bytes=d["T"] * (2 * d["m"] * d["D"] + 4) + 2 * min(d["T"], d["V"] + d["K"]) * d["D"]),
    samples=samples.scatter_embeds,
)


def image_patches(place: Tensor, pixels: Tensor, images: Tensor, patch: int, *, out: Tensor | None = None) -> Tensor:
    """Cut images into normalised patches.

    Args:
        place: i32 [T, 3], image, patch row and patch column of every patch.
        pixels: u8 [B], RGB bytes of the images. images: i64 [I, 5], offset, width, height, left, top.
        patch: side of a patch in pixels.

    Returns:
        bf16 [T, 3*patch*patch].
    """
    return IMAGE_PATCHES.run(place, pixels, images, patch, out)  # type: ignore[no-any-return]


def vision_linear_prepare(weight: Tensor) -> WeightHandle:
    """Prepare a bf16 weight [N, K] for `vision_linear`."""
    return VISION_LINEAR.prepare(weight)


def vision_linear(
    x: Tensor,
    weight: WeightHandle,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Linear layer with bias, activation and residual.

    Args:
        x: bf16 [T, K]. weight: from `vision_linear_prepare`. bias: bf16 [N]. residual: bf16 [T, N], added at the end.
        activation: 'none' or 'gelu' (the one with erf).

    Returns:
        bf16 [T, N].
    """
    return VISION_LINEAR.run(x, weight, bias, residual, activation, out)  # type: ignore[no-any-return]


def silu_mul(gate_up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """silu(gate) * up of bf16 [T, 2I], the gate first: bf16 [T, I]."""
    return SILU_MUL.run(gate_up, out)  # type: ignore[no-any-return]


def image_rope(qkv: Tensor, place: Tensor, table: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Turn queries and keys by the row and column of their patch.

    Args:
        qkv: bf16 [T, 3, h, d]. place: i32 [T, 3], image, row, column. table: f32 [P, d/4, 2], cosine and sine.

    Returns:
        bf16 [T, 3, h, d].
    """
    return IMAGE_ROPE.run(qkv, place, table, out)  # type: ignore[no-any-return]


def image_attention(
    q: Tensor, k: Tensor, v: Tensor, begin: Tensor, end: Tensor, scale: float, *, out: Tensor | None = None
) -> Tensor:
    """Full attention of each row over its own range of keys.

    Args:
        q: bf16 [T, h, d]. k, v: bf16 [M, h, d]; rows of all three may be strided.
        begin, end: i32 [T], the keys of a row. scale: factor of q.k.

    Returns:
        bf16 [T, h, d].
    """
    return IMAGE_ATTENTION.run(q, k, v, begin, end, scale, out)  # type: ignore[no-any-return]


def merge_patches(x: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Put neighbouring patches into one vector, channel by channel.

    Args:
        x: bf16 [N, C]. source: i32 [M, S], patches of each vector; an index outside [0, N) stands for zeros.

    Returns:
        bf16 [M, C*S].
    """
    return MERGE_PATCHES.run(x, source, out)  # type: ignore[no-any-return]


def scatter_embeds(x: Tensor, values: Tensor, marks: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Overwrite the streams of image rows.

    Args:
        x: bf16 [T, m, D]. values: bf16 [V, D], embeddings of image tokens. marks: bf16 [K, D], learned vectors.
        source: i32 [T]: s >= 0 takes values[s], -1 leaves the row, s <= -2 takes marks[-2 - s].

    Returns:
        bf16 [T, m, D].
    """
    return SCATTER_EMBEDS.run(x, values, marks, source, out)  # type: ignore[no-any-return]
