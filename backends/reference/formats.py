"""Number formats of weights and cache records: E4M3, E2M1, E8M0 and the three block quantisers.

Everything here is elementwise or a maximum over a group, so a value's code depends on its group alone. Codes are
exact: each backend must give the same bytes. Quantisers take any leading dims and group along the last one.

===========  ==========  =====  =========================  ==========================================
quantiser    code        group  scale                      used for
===========  ==========  =====  =========================  ==========================================
fp8          E4M3        32     E8M0 byte (power of two)   activations, window records
fp4_pow2     E2M1 pairs  32     E8M0 byte (power of two)   index queries and keys
fp4_e4m3     E2M1 pairs  16     E4M3 byte                  compressed records
===========  ==========  =====  =========================  ==========================================
"""

from __future__ import annotations

import torch
from torch import Tensor

FP8_GROUP = 32
FP4_POW2_GROUP = 32
FP4_E4M3_GROUP = 16

E4M3_MAX = 448.0
E2M1_MAX = 6.0
FP8_FLOOR = 1e-4
FP4_POW2_FLOOR = 6.0 * 2.0**-126
FP4_E4M3_FLOOR = 6.0 * 2.0**-9

_E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
# Largest fp32 magnitude that still rounds to code i. Halfway points belong to the even code, so every second border
# is the fp32 number just below the halfway point.
_E2M1_BORDERS = (
    0.25,
    0.75 - 2.0**-24,
    1.25,
    1.75 - 2.0**-23,
    2.5,
    3.5 - 2.0**-22,
    5.0,
)
_tables: dict[tuple[str, torch.device], Tensor] = {}


def encode_e4m3(x: Tensor) -> Tensor:
    """Round fp32 to E4M3 (nearest, ties to even), saturating at 448; NaN of either sign gives the byte 0x7F.

    Saturation comes first: the cast itself gives NaN beyond 464 in some versions of torch and on some devices.
    """
    codes = x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    codes.view(torch.uint8).masked_fill_(x.isnan(), 0x7F)
    return codes


def decode_e4m3(codes: Tensor) -> Tensor:
    """fp32 values of E4M3 codes, given as float8_e4m3fn or as their bytes; exact."""
    return _lookup("e4m3", codes.view(torch.uint8)).view(codes.shape)


def encode_e2m1(x: Tensor) -> Tensor:
    """Round fp32 to E2M1 codes 0..15 (nearest, ties to the even code), saturating at 6; uint8, one code a byte.

    The sign is kept, also that of zero. NaN has no code and becomes 0; the group's scale carries it instead.
    """
    code = torch.bucketize(x.abs(), _table("e2m1_borders", x.device), out_int32=True).to(torch.uint8)
    code = code | (x.signbit().to(torch.uint8) << 3)
    return code.masked_fill_(x.isnan(), 0)


def pack_e2m1(codes: Tensor) -> Tensor:
    """Two codes to a byte along the last dim: even element in the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_e2m1(packed: Tensor) -> Tensor:
    """fp32 values [..., 2n] of packed bytes [..., n]."""
    pairs = _lookup("e2m1_pairs", packed).view(torch.float32)
    return pairs.view(*packed.shape[:-1], 2 * packed.shape[-1])


def decode_e8m0(scale: Tensor) -> Tensor:
    """fp32 2^(b-127) of scale bytes; byte 0 is the subnormal 2^-127, byte 255 is NaN."""
    return _lookup("e8m0", scale).view(scale.shape)


def encode_e8m0_ceil(amax: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """The smallest power of two 2^e >= amax / limit: its scale byte e + 127 (uint8) and 2^-e (fp32).

    `amax` must be a normal fp32 number with amax / limit >= 2^-126; infinity and NaN give 255 and NaN.
    The product with the fp32 reciprocal of `limit` (448 or 6) lands in the right binade for every fp32 mantissa.
    """
    below = (amax * (1.0 / limit)).view(torch.int32).sub_(1).bitwise_right_shift_(23)  # e + 126; 254, 255 if not finite
    return (
        _lookup("e8m0_ceil_byte", below).view(amax.shape),
        _lookup("e8m0_ceil_inverse", below).view(amax.shape),
    )


def quantize_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Q8: groups of 32 channels, E4M3 codes, one power-of-two scale each.

    Args:
        x: fp32 [..., K], K a multiple of 32.

    Returns:
        codes float8_e4m3fn [..., K] and scale bytes uint8 [..., K/32]. An all-zero group has scale byte 105 (the
        maximum is taken as at least 1e-4). A group holding NaN or infinity has scale byte 255 and codes 0x7F.
    """
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // FP8_GROUP, FP8_GROUP)
    scale, inverse = encode_e8m0_ceil(groups.abs().amax(-1).clamp_(min=FP8_FLOOR), E4M3_MAX)
    return encode_e4m3(groups * inverse.unsqueeze(-1)).view(x.shape), scale


def dequantize_fp8(codes: Tensor, scale: Tensor) -> Tensor:
    """fp32 [..., K] of E4M3 codes (or their bytes) [..., K] and E8M0 bytes [..., K/32]; exact."""
    groups = decode_e4m3(codes).view(*scale.shape, FP8_GROUP)
    return groups.mul_(decode_e8m0(scale).unsqueeze(-1)).view(codes.shape)


def quantize_fp4_pow2(x: Tensor) -> tuple[Tensor, Tensor]:
    """Q4p: groups of 32 channels, E2M1 codes, one power-of-two scale each.

    Args:
        x: fp32 [..., K], K a multiple of 32.

    Returns:
        packed codes uint8 [..., K/2] and scale bytes uint8 [..., K/32]. An all-zero group has scale byte 1 (the
        maximum is taken as at least 6 * 2^-126). A group holding NaN or infinity has scale byte 255 and codes 0.
    """
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // FP4_POW2_GROUP, FP4_POW2_GROUP)
    scale, inverse = encode_e8m0_ceil(groups.abs().amax(-1).clamp_(min=FP4_POW2_FLOOR), E2M1_MAX)
    return pack_e2m1(encode_e2m1(groups * inverse.unsqueeze(-1)).view(x.shape)), scale


def dequantize_fp4_pow2(packed: Tensor, scale: Tensor) -> Tensor:
    """fp32 [..., K] of packed E2M1 codes [..., K/2] and E8M0 bytes [..., K/32]; exact."""
    groups = unpack_e2m1(packed).view(*scale.shape, FP4_POW2_GROUP)
    return groups.mul_(decode_e8m0(scale).unsqueeze(-1)).view(*packed.shape[:-1], 2 * packed.shape[-1])


def quantize_fp4_e4m3(x: Tensor) -> tuple[Tensor, Tensor]:
    """Q4e: groups of 16 channels, E2M1 codes, one E4M3 scale each, no second level.

    Args:
        x: fp32 [..., K], K a multiple of 16.

    Returns:
        packed codes uint8 [..., K/2] and E4M3 scale bytes uint8 [..., K/16]. The maximum is taken as at least
        6 * 2^-9; scales saturate at 448, so values beyond 2688 (infinity too) become +-2688. A group holding NaN
        has scale byte 0x7F and codes 0.
    """
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // FP4_E4M3_GROUP, FP4_E4M3_GROUP)
    amax = groups.abs().amax(-1).clamp_(min=FP4_E4M3_FLOOR)
    scale = encode_e4m3((amax * (1.0 / E2M1_MAX)).clamp_(max=E4M3_MAX))
    # The format is defined by the product with the rounded reciprocal: a division would flip some ties.
    reciprocal = 1.0 / scale.to(torch.float32)
    codes = encode_e2m1(groups * reciprocal.unsqueeze(-1))
    return pack_e2m1(codes.view(x.shape)), scale.view(torch.uint8)


def dequantize_fp4_e4m3(packed: Tensor, scale: Tensor) -> Tensor:
    """fp32 [..., K] of packed E2M1 codes [..., K/2] and E4M3 scale bytes [..., K/16]; exact."""
    groups = unpack_e2m1(packed).view(*scale.shape, FP4_E4M3_GROUP)
    return groups.mul_(decode_e4m3(scale).unsqueeze(-1)).view(*packed.shape[:-1], 2 * packed.shape[-1])


def _lookup(name: str, index: Tensor) -> Tensor:
    """Entries of a constant table, flat. index_select over one dim is several times faster than a cast or indexing."""
    flat = index.reshape(-1)
    return torch.index_select(_table(name, index.device), 0, flat if flat.dtype == torch.int32 else flat.int())


def _table(name: str, device: torch.device) -> Tensor:
    """Constant lookup tables, made once per device."""
    table = _tables.get((name, device))
    if table is None:
        table = _tables[name, device] = _make_table(name).to(device)
    return table


def _make_table(name: str) -> Tensor:
    if name == "e2m1_borders":
        return torch.tensor(_E2M1_BORDERS, dtype=torch.float32)
    if name == "e2m1_pairs":
        values = torch.tensor(_E2M1_VALUES, dtype=torch.float32)
        byte = torch.arange(256)
        pairs = torch.stack((values[byte & 15], values[byte >> 4]), dim=-1)
        return pairs.view(torch.int64).view(256)  # one 8-byte element per pair of values
    if name == "e4m3":
        return torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).to(torch.float32)
    byte = torch.arange(256, dtype=torch.int32)
    if name == "e8m0_ceil_byte":  # indexed by e + 126
        return (byte + 1).clamp_(max=255).to(torch.uint8)
    if name == "e8m0_ceil_inverse":  # 2^-e; the quantisers make e from -126 to 126
        bits = (253 - byte).clamp_(min=0) << 23
        bits[254:] = 0x7FC00000
        return bits.view(torch.float32)
    bits = byte << 23
    bits[0], bits[255] = 0x00400000, 0x7FC00000
    return bits.view(torch.float32)
