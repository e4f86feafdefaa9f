"""Which kernels of tests/backends/ascend/kernels use which call and which form of it; read from the sources.

`python tests/support/ascend_coverage.py` prints the table of calls and kernels.
"""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "backends" / "ascend" / "kernels"

# A form of a call: what a statement of a kernel looks like that uses it.
NZ2ND = r"false, true, false, false\)"
FORMS = {
    "GM to UB, one burst": r"asc_copy_gm2ub_align\([^;]*, 1, [^;]*0, 0, false",
    "GM to UB, strided bursts": r"asc_copy_gm2ub_align\([^;]*, (rows|half_rows), [^;]*0, 0, false",
    "GM to UB, padded": r"asc_copy_gm2ub_align\([^;]*left, right, constant",
    "UB to GM, one burst": r"asc_copy_ub2gm_align\([^;]*, 1, ",
    "UB to GM, strided bursts": r"asc_copy_ub2gm_align\([^;]*, (rows|half_rows|M), ",
    "UB to GM, added to what is there": r"asc_set_atomic_add_float\(\);\s*asc_copy_ub2gm_align",
    "UB to L1, with gaps": r"asc_copy_ub2l1\([^;]*, 1, M - half_rows\)",
    "GM to L1, rows to fractals, 8 bit": r"float8_e4m3_t\* a1[^}]*asc_copy_gm2l1_nd2nz\(a1",
    "GM to L1, rows to fractals, 16 bit": r"bfloat16_t\* a1[^}]*asc_copy_gm2l1_nd2nz\(a1",
    "GM to L1, rows to fractals, 32 bit": r"float\* bias1[\s\S]*asc_copy_gm2l1_nd2nz\(bias1",
    "GM to L1, columns to fractals, 16 bit": r"half\* a1[^}]*asc_copy_gm2l1_dn2nz\(a1",
    "GM to L1, scales of pairs": r"asc_copy_gm2l1_dn2nz\(sa1",
    "L1, filled": r"asc_fill_l1\(",
    "L1 to L0A": r"asc_copy_l12l0a\(",
    "L1 to L0B": r"asc_copy_l12l0b\(",
    "L1 to L0A, a slice of K": r"asc_copy_l12l0a\([^;]*0, s \* 2",
    "L1 to L0A, turned": r"asc_copy_l12l0a_transpose\(",
    "L1 to L0B, turned": r"asc_copy_l12l0b_transpose\(",
    "L1 to L0A, scales": r"asc_copy_l12l0a_mx\(",
    "L1 to L0B, scales": r"asc_copy_l12l0b_mx\(",
    "L1 to bias table": r"asc_copy_l12bt\(",
    "product, bf16": r"asc_mmad\([^;]*bfloat16_t\*\)",
    "product, fp16": r"asc_mmad\([^;]*half\*\)",
    "product, e4m3": r"float8_e4m3_t\* a0[^}]*asc_mmad\(",
    "product, from zero": r"asc_mmad\([^;]*false, true\);",
    "product, going on": r"asc_mmad\([^;]*false, s == 0\);",
    "product, from the bias": r"asc_mmad\([^;]*true, true, false\);",
    "product, e4m3 with scales": r"float8_e4m3_t\* a0[^}]*asc_mmad_mx\(",
    "product, e2m1 with scales": r"float4_e2m1x2_t\* a0[^}]*asc_mmad_mx\(",
    "L0C to GM, float32": r"asc_copy_l0c2gm\([^;]*quant_mode>\(0\)[^;]*" + NZ2ND,
    "L0C to GM, fp16": r"asc_copy_l0c2gm\([^;]*quant_mode>\(1\)[^;]*" + NZ2ND,
    "L0C to GM, bf16": r"asc_copy_l0c2gm\([^;]*quant_mode>\(16\)[^;]*" + NZ2ND,
    "L0C to GM, ReLU": r"asc_copy_l0c2gm\([^;]*relu_pre_mode>\(relu\)",
    "L0C to UB, one core, bf16, ReLU": r"asc_copy_l0c2ub\([^;]*quant_mode>\(16\)[^;]*relu_pre_mode>\(1\)",
    "L0C to UB, halves": r"asc_copy_l0c2ub\([^;]*dual_dst_mode>\(dual\)",
    "flags between pipes": r"asc_sync_notify\(PIPE_MTE2, PIPE_V[^}]*asc_sync_wait\(PIPE_MTE2, PIPE_V",
    "flags, set before a loop": r"asc_sync_notify\([^}]*\n  for \(",
    "flags to the program": r"asc_sync_wait\(PIPE_MTE2, PIPE_S",
    "barrier of a pipe": r"asc_sync_pipe\(",
    "mutexes": r"asc_lock\([^}]*asc_unlock\(",
    "cube core to vector cores": r"asc_sync_intra_arrive\(PIPE_FIX",
    "vector cores to cube core": r"asc_sync_intra_arrive\(PIPE_MTE3",
    "all cores of a kind": r"asc_sync_inter_arrive\([^}]*asc_sync_inter_wait\(",
    "SIMT, launch": r"asc_vf_call<",
    "SIMT, two dimensions": r"cce::dim3\(\d+, \d+\)",
    "SIMT, barriers": r"asc_syncthreads\(",
    "SIMT, atomics on UB": r"asc_atomic_add\(bins",
    "SIMT, atomics on GM": r"asc_atomic_add\(counts",
    "SIMT, collectives of a warp": r"asc_reduce_add\([^}]*asc_shfl_xor\(",
    "SIMD, tail mask": r"asc_update_mask_b32\(",
    "SIMD, arithmetic": r"asc_mul\([^}]*asc_exp\([^}]*asc_div\(",
    "SIMD, comparison and choice": r"asc_lt_scalar\([^}]*asc_select\(",
    "SIMD, reductions": r"asc_reduce_sum\([^}]*asc_reduce_max\([^}]*asc_reduce_min\(",
    "SIMD, conversion": r"vcvt\(",
    "SIMD, unpack and pack": r"asc_loadalign_unpack\([^}]*asc_storealign_pack\(",
    "SIMD, strided blocks": r"asc_storealign\([^;]*uint16_t\(rows\), uint16_t\(1\)",
    "SIMD, gather and scatter": r"asc_gather\([^}]*asc_scatter\(",
}


def read(names: list[str]) -> dict[str, str]:
    """Sources of kernels by name, comments left out."""
    return {name: re.sub(r"//[^\n]*", "", (SOURCES / f"{name}.cpp").read_text(encoding="utf-8")) for name in names}


def forms(texts: dict[str, str]) -> dict[str, list[str]]:
    """Kernels that use each form."""
    return {form: [n for n, text in texts.items() if re.search(pattern, text)] for form, pattern in FORMS.items()}


def calls(texts: dict[str, str]) -> dict[str, list[str]]:
    """Kernels that use each call of the C API."""
    found: dict[str, list[str]] = {}
    for name, text in texts.items():
        for call in sorted(set(re.findall(r"\b(asc_\w+|vcvt)(?=[(<])", text))):
            found.setdefault(call, []).append(name)
    return {call: found[call] for call in sorted(found) if not call.endswith("_mode")}


def table(rows: dict[str, list[str]], columns: list[str]) -> str:
    """Rows and kernels as a Markdown table, x where a kernel has the row."""
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {row} | " + " | ".join("x" if c in used else "" for c in columns) + " |" for row, used in rows.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    from ascend_written import KERNELS

    sources = read(list(KERNELS))
    print(table(calls(sources), list(sources)), table(forms(sources), list(sources)), sep="\n\n")
