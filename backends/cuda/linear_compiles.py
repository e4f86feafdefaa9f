"""What is compiled ahead of linear layers, at the released widths: one row count for each way a call can go."""

from __future__ import annotations

from collections.abc import Iterator

from .compile_list import CompileCase
from .linear_launches import (
    BF16_FEW,
    FEW,
    GROUP,
    MANY,
    add_launch,
    dealt,
    few_launch,
    many_launch,
    packed_launch,
    part_of,
    unpack_launch,
)  # fmt: skip

FP8 = {
    "wq_a": (1, 1280, 5120), "wkv": (1, 512, 5120), "wq_b": (1, 32768, 1280), "wo_a": (8, 1024, 4096),
    "wo_b": (1, 5120, 8192), "shared w13": (1, 4608, 5120), "shared w2": (1, 5120, 2304), "index wq_b": (1, 4096, 1280),
    "engram wkv": (1, 25600, 6144), "draft main": (1, 5120, 15360),
}  # fmt: skip
"""Groups, outputs and channels."""
BF16 = {
    "router": (384, 5120, True), "draft router": (128, 5120, True), "head": (129280, 5120, True),
    "compressor": (512, 5120, True), "index keys": (128, 512, False), "index weights": (32, 5120, False),
}  # fmt: skip
"""Outputs, channels, whether the sums stay fp32."""
VISION = {
    "patches": (1024, 588, True, False, False), "wqkv": (3072, 1024, True, False, False),
    "wo": (1024, 1024, True, True, False), "w1": (5632, 1024, False, False, False),
    "w2": (1024, 2816, False, True, False), "project1": (5120, 9216, True, False, True),
    "project2": (5120, 5120, True, False, False),
}  # fmt: skip
"""Outputs, channels, whether there are a bias, a residual, the activation."""
ROWS = (16, 32, 64, 128, MANY)


def fp8_cases() -> Iterator[CompileCase]:
    """Unpacked on the way, at every tile; unpacked first; parts."""
    unpack: dict[str, str | None] = {"code_ptr": "*u8", "scale_ptr": "*u8", "out_ptr": "*bf16", "rows": "i32"}
    for k in sorted({k for _, _, k in FP8.values()}):
        yield unpack_launch(1, k, 1).case(f"rows of {k}", unpack)
        yield unpack_launch(1, k, GROUP, blocks=True).case(f"weights of {k}", unpack)
    for name, (groups, n, k) in FP8.items():
        part = part_of(groups * n, k)
        parts = -(-k // part)
        for rows in ROWS[:-1]:
            x8 = rows <= FEW
            types: dict[str, str | None] = {
                "x_ptr": "*u8" if x8 else "*bf16", "xs_ptr": "*u8" if x8 else None, "w_ptr": "*u8", "ws_ptr": "*u8",
                "out_ptr": "*bf16" if parts == 1 else "*fp32", "rows": "i32",
            }  # fmt: skip
            yield packed_launch(rows, groups, n, k, True, x8).case(f"{name}, {rows} rows", types)
            native = types | {"x_ptr": "*u8", "xs_ptr": "*u8"}
            chip = {"archs": ("sm_100",), "slow": name not in ("wq_b", "wo_b")}
            yield packed_launch(rows, groups, n, k, False, True, True).case(
                f"{name}, {rows} rows, native", native, **chip
            )
        yield many_launch(MANY, groups, n, dealt(k), part, False).case(name, _wide("*bf16"), slow=True)
        if parts > 1:
            yield add_launch(1, n, parts, False).case(name, _sums("*bf16"))


def _wide(out: str, bias: bool = False, residual: bool = False) -> dict[str, str | None]:
    return {
        "x_ptr": "*bf16", "w_ptr": "*bf16", "bias_ptr": "*bf16" if bias else None,
        "residual_ptr": "*bf16" if residual else None, "out_ptr": out, "rows": "i32",
    }  # fmt: skip


def _sums(out: str, bias: bool = False, residual: bool = False) -> dict[str, str | None]:
    types = _wide(out, bias, residual)
    return {"part_ptr": "*fp32", "elements": "i64", **{k: types[k] for k in ("bias_ptr", "residual_ptr", "out_ptr")}}


def bf16_cases(name: str, n: int, k: int, out: str, bias: bool, residual: bool, gelu: bool) -> Iterator[CompileCase]:
    """Few rows at every tile, many rows, parts."""
    part = part_of(n, k)
    parts = -(-k // part)
    for rows in (16, 32, BF16_FEW):
        if parts == 1:
            types = _wide(out, bias, residual)
            yield few_launch(rows, n, k, part, gelu).case(f"{name}, {rows} rows", types)
        else:
            yield few_launch(rows, n, k, part, False).case(f"{name}, {rows} rows", _wide("*fp32"))
    if parts > 1:
        yield add_launch(1, n, parts, gelu).case(name, _sums(out, bias, residual))
    yield many_launch(128, 1, n, k, part, gelu).case(name, _wide(out, bias, residual), slow=True)


def cases() -> Iterator[CompileCase]:
    """All of them."""
    yield from fp8_cases()
    for name, (n, k, fp32) in BF16.items():
        yield from bf16_cases(name, n, k, "*fp32" if fp32 else "*bf16", False, False, False)
    for name, (n, k, bias, residual, gelu) in VISION.items():
        yield from bf16_cases(f"vision {name}", n, k, "*bf16", bias, residual, gelu)


COMPILES = list(cases())
