"""The product of codes with block scales, which SM100's matrix unit takes as they are."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import INTERPRETED, dot, e2m1_to_f32, e4m3_to_f32
from .portable_weights import scaled


@jit
def dot_scaled(w, w_scale, x, x_scale, acc, FP4: tl.constexpr):
    """acc [N, T] + the product of weights [N, K] and rows of x [T, K], in fp32.

    w: E4M3 codes (uint8 [N, K]), with FP4 two E2M1 codes a byte, the low nibble first. x: E4M3 codes. w_scale, x_scale:
    E8M0 bytes [N, K/32] and [T, K/32].
    """
    if INTERPRETED:
        if FP4:
            codes = tl.join(w & 15, w >> 4)
            value = e2m1_to_f32(tl.reshape(codes, (w.shape[0], 2 * w.shape[1])))
        else:
            value = e4m3_to_f32(w)
        return dot(scaled(value, w_scale), tl.trans(scaled(e4m3_to_f32(x), x_scale)), acc)
    elif FP4:
        return tl.dot_scaled(w, w_scale, "e2m1", tl.trans(x), x_scale, "e4m3", acc)
    else:
        return tl.dot_scaled(w, w_scale, "e4m3", tl.trans(x), x_scale, "e4m3", acc)
