# mypy: ignore-errors
"""Records of keys: rows rotated and quantised on the way into them, and read back as plain keys."""

import tilelang.ascend.language as T
from parts_records import (
    LARGEST,
    LEAST,
    codes_of_4_bits,
    codes_of_8_bits,
    e4m3_scales,
    magnitudes,
    power_scales,
    rotate,
)

BF16, F32, U8, I32, I64 = T.bfloat16, T.float32, T.uint8, T.int32, T.int64
LANES = 64


def window_pack(most=4096, pairs=256):
    """Rows of K channels turned by the angle of their position and quantised: K codes, then K / 32 scale bytes."""
    S = T.simd
    m, K, M, turned = T.dynamic("m"), T.dynamic("K"), T.dynamic("M"), T.dynamic("turned")

    @T.prim_func
    def window_pack(
        X: T.Tensor((m, K), BF16),
        AT: T.Tensor((m,), I32),
        ANGLE: T.Tensor((M, turned), F32),
        Y: T.Tensor((m, K + K // 32), U8),
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), BF16)
            table = T.alloc_shared((2 * pairs + LANES,), F32)
            top = T.alloc_shared((most // 8 + LANES,), I32)
            inverse = T.alloc_shared((most // 8 + LANES,), I32)
            q = T.alloc_shared((most,), U8)
            e = T.alloc_shared((most // 32 + 16,), U8)
            T.assume(0 < K)
            T.assume(K <= most)
            T.assume(K % 32 == 0)
            T.assume(0 < turned)
            T.assume(turned <= 2 * pairs)
            T.assume(turned <= K)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                p = AT[r]
                T.assume(0 <= p)
                T.assume(p < M)
                T.copy(X[r, 0:K], x[0:K])
                T.copy(ANGLE[p, 0:turned], table[0:turned])
                with T.SimdVF():
                    rotate(x, table, K - turned, turned)
                    S.mem_bar("VST_VLD")
                    magnitudes(x, top, K)
                    S.mem_bar("VST_VLD")
                    power_scales(top, inverse, e, K, LEAST["fp8_32"], *LARGEST["fp8_32"])
                    S.mem_bar("VST_VLD")
                    codes_of_8_bits(x, q, inverse, K)
                T.copy(q[0:K], Y[r, 0:K])
                T.copy(e[0 : K // 32], Y[r, K : K + K // 32])

    return window_pack


def store_entries(record="fp4_16", most=2048, pairs=256):
    """Rows that complete an entry, turned by the angle of the entry's first token and quantised into their page.

    Entry j of a sequence is at slot j % E of page block_table[j // E], E = 128 / ratio. Its codes begin `code_pitch`
    bytes behind those of the slot before, its scales at `scale_offset` and `scale_pitch` bytes a slot.
    """
    S = T.simd
    bits, group = 8 if record == "fp8_32" else 4, 16 if record == "fp4_16" else 32
    m, K, M, turned = T.dynamic("m"), T.dynamic("K"), T.dynamic("M"), T.dynamic("turned")
    Q, B, span = T.dynamic("Q"), T.dynamic("B"), T.dynamic("span", "int64")

    @T.prim_func
    def store_entries(
        X: T.Tensor((m, K), BF16),
        PAGES: T.Tensor((span,), U8),
        AT: T.Tensor((m,), I32),
        OWNER: T.Tensor((m,), I32),
        BLOCKS: T.Tensor((Q, B), I32),
        ANGLE: T.Tensor((M, turned), F32),
        stride: T.int64,
        code_pitch: T.int32,
        scale_offset: T.int32,
        scale_pitch: T.int32,
        ratio: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), BF16)
            table = T.alloc_shared((2 * pairs + LANES,), F32)
            top = T.alloc_shared((most // 8 + LANES,), I32)
            inverse = T.alloc_shared((most // 8 + LANES,), I32)
            q = T.alloc_shared((most,), U8)
            e = T.alloc_shared((most // group + 32,), U8)
            T.assume(0 < K)
            T.assume(K <= most)
            T.assume(K % group == 0)
            T.assume(0 < turned)
            T.assume(turned <= 2 * pairs)
            T.assume(turned <= K)
            T.assume(0 < ratio)
            T.assume(ratio <= 2)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                owner = OWNER[r]
                p = AT[r]
                T.assume(0 <= p)
                if (owner >= 0) and (T.truncmod(p + 1, ratio) == 0):
                    T.assume(owner < Q)
                    j = T.truncdiv(p + 1, ratio) - 1
                    column = T.truncdiv(j, T.truncdiv(128, ratio))
                    slot = T.truncmod(j, T.truncdiv(128, ratio))
                    T.assume(0 <= column)
                    T.assume(column < B)
                    T.assume(0 <= slot)
                    page = T.cast(BLOCKS[owner, column], I64) * stride
                    codes = page + slot * code_pitch
                    scales = page + scale_offset + slot * scale_pitch
                    T.assume(0 <= codes)
                    T.assume(codes + K * bits // 8 <= span)
                    T.assume(0 <= scales)
                    T.assume(scales + K // group <= span)
                    T.assume(ratio - 1 <= p)
                    T.assume(p < M)
                    T.copy(X[r, 0:K], x[0:K])
                    T.copy(ANGLE[p + 1 - ratio, 0:turned], table[0:turned])
                    with T.SimdVF():
                        rotate(x, table, K - turned, turned)
                        S.mem_bar("VST_VLD")
                        magnitudes(x, top, K)
                        S.mem_bar("VST_VLD")
                        if record == "fp4_16":
                            e4m3_scales(top, inverse, e, K)
                        else:
                            power_scales(top, inverse, e, K, LEAST[record], *LARGEST[record])
                        S.mem_bar("VST_VLD")
                        if bits == 8:
                            codes_of_8_bits(x, q, inverse, K)
                        else:
                            codes_of_4_bits(x, q, inverse, K)
                    T.copy(q[0 : K * bits // 8], PAGES[codes : codes + K * bits // 8])
                    T.copy(e[0 : K // group], PAGES[scales : scales + K // group])

    return store_entries


def load_records(bits=8, most=4096):
    """Entries of pages as plain keys, K channels of bf16, in the order of a plan (page or -1, begin, end, first row).

    Rows that no plan row fills are left as they are. The cores share the plan's rows by `entries`, slot by slot. Scales
    are E8M0, or E4M3 where `small` is 1; `shift` is the logarithm of the channels that share one.
    """
    S = T.simd
    m, K, N, span = T.dynamic("m"), T.dynamic("K"), T.dynamic("N"), T.dynamic("span", "int64")

    @T.macro
    def scale_factors(e, factor, groups, small):
        for g in T.serial(T.ceildiv(groups, LANES)):
            some = S.update_mask(groups - g * LANES, 32)
            byte = S.vld(e[g * LANES], dist="UNPK4_B8")
            number = T.reinterpret(byte, "int32x64")
            least = S.vcmps(number, T.int32(0), op="eq")
            nan = S.vcmps(number, T.int32(255), op="eq")
            power = S.vsel(S.vdup(T.int32(0x400000), "int32"), S.vshls(number, T.int16(23)), least)
            eighth = T.reinterpret(S.vsel(S.vdup(T.int32(0x7FC00000), "int32"), power, nan), "float32x64")
            fp8 = S.vcvt(T.reinterpret(byte, "float8_e4m3fnx256"), "float32", part=0)
            kind = S.vcmps(S.vdup(small, "int32"), T.int32(1), op="eq")
            S.vsts(factor[g * LANES], S.vsel(fp8, eighth, kind), mask=some)

    @T.macro
    def decode_8_bits(q, factor, y, K, shift):
        for c in T.serial(T.ceildiv(K, LANES)):
            some = S.update_mask(K - c * LANES, 32)
            code = T.reinterpret(S.vld(q[c * LANES], dist="UNPK4_B8"), "float8_e4m3fnx256")
            group = S.vshrs(S.vci(c * LANES, "int32"), shift)
            scale = S.vgather2(factor[0], T.reinterpret(group, "uint32x64"), mask=some)
            value = S.vmul(S.vcvt(code, "float32", part=0), scale, mask=some)
            S.vsts(y[c * LANES], S.vcvt(value, "bfloat16", part=0), mask=some, dist="PK_B32")

    @T.macro
    def store_4_bits(code, factor, y, first, K, shift):
        """64 codes: twice a magnitude is the largest of t, 2t - 4 and 4t - 16, t the last three bits."""
        some = S.update_mask(K - first, 32)
        t = S.vand(code, S.vdup(T.int32(7), "int32"))
        twice = S.vmax(t, S.vadds(S.vshls(t, T.int16(1)), T.int32(-4)))
        larger = S.vmax(twice, S.vadds(S.vshls(t, T.int16(2)), T.int32(-16)))
        size = S.vmuls(S.vcvt(larger, "float32"), T.float32(0.5))
        sign = S.vshls(S.vshrs(code, T.int16(3)), T.int16(31))
        with_sign = T.reinterpret(S.vor(T.reinterpret(size, "int32x64"), sign), "float32x64")
        group = S.vshrs(S.vci(first, "int32"), shift)
        scale = S.vgather2(factor[0], T.reinterpret(group, "uint32x64"), mask=some)
        S.vsts(y[first], S.vcvt(S.vmul(with_sign, scale, mask=some), "bfloat16", part=0), mask=some, dist="PK_B32")

    @T.macro
    def decode_4_bits(q, factor, y, K, shift):
        for c in T.serial(T.ceildiv(K, 2 * LANES)):
            pair = T.reinterpret(S.vld(q[c * LANES], dist="UNPK4_B8"), "int32x64")
            low = S.vand(pair, S.vdup(T.int32(15), "int32"))
            left, right = S.vintlv(low, S.vshrs(pair, T.int16(4)))
            store_4_bits(left, factor, y, c * 2 * LANES, K, shift)
            if c * 2 * LANES + LANES < K:
                store_4_bits(right, factor, y, c * 2 * LANES + LANES, K, shift)

    @T.prim_func
    def load_records(
        PAGES: T.Tensor((span,), U8),
        PLAN: T.Tensor((N, 4), I32),
        Y: T.Tensor((m, K), BF16),
        stride: T.int64,
        code_pitch: T.int32,
        scale_offset: T.int32,
        scale_pitch: T.int32,
        groups: T.int32,
        shift: T.int16,
        small: T.int32,
        entries: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            q = T.alloc_shared((most + LANES,), U8)
            e = T.alloc_shared((most // 16 + LANES,), U8)
            factor = T.alloc_shared((most // 16 + LANES,), F32)
            y = T.alloc_shared((most,), BF16)
            T.assume(0 < K)
            T.assume(K <= most)
            T.assume(K % 2 == 0)
            T.assume(0 < groups)
            T.assume(groups <= most // 16)
            T.assume(0 < entries)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(items - bx, cores), num_stages=2):
                n = (bx + i * cores) // entries
                slot = PLAN[n, 1] + (bx + i * cores) % entries
                T.assume(0 <= n)
                T.assume(n < N)
                if (PLAN[n, 0] >= 0) and (slot < PLAN[n, 2]):
                    r = PLAN[n, 3] + (bx + i * cores) % entries
                    T.assume(0 <= r)
                    T.assume(r < m)
                    T.assume(0 <= slot)
                    page = T.cast(PLAN[n, 0], I64) * stride
                    codes = page + slot * code_pitch
                    scales = page + scale_offset + slot * scale_pitch
                    T.assume(0 <= codes)
                    T.assume(codes + K * bits // 8 <= span)
                    T.assume(0 <= scales)
                    T.assume(scales + groups <= span)
                    T.copy(PAGES[codes : codes + K * bits // 8], q[0 : K * bits // 8])
                    T.copy(PAGES[scales : scales + groups], e[0:groups])
                    with T.SimdVF():
                        scale_factors(e, factor, groups, small)
                        S.mem_bar("VST_VLD")
                        if bits == 8:
                            decode_8_bits(q, factor, y, K, shift)
                        else:
                            decode_4_bits(q, factor, y, K, shift)
                    T.copy(y[0:K], Y[r, 0:K])

    return load_records
