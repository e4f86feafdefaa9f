# mypy: ignore-errors
"""Bytes of pages, state slots and rings moved by DMA through UB; addresses are row times stride, in 64 bits."""

import tilelang.ascend.language as T

U8, I32, I64 = T.uint8, T.int32, T.int64
BYTES = 256


def copy_slots(chunk=32768):
    """For pairs (source, target): row `target` = row `source`, W bytes; source -1 clears, target -1 is unused.

    No target is a source, so that the order does not matter. The cores share the pieces of all rows.
    """
    S = T.simd
    span, N = T.dynamic("span", "int64"), T.dynamic("N")

    @T.prim_func
    def copy_slots(
        POOL: T.Tensor((span,), U8),
        PAIRS: T.Tensor((N, 2), I32),
        stride: T.int64,
        W: T.int32,
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((chunk,), U8)
            zero = T.alloc_shared((chunk,), U8)
            T.annotate_buffer_versions({zero: 1})
            T.assume(0 < W)
            T.assume(0 < pieces)
            T.assume(0 < cores)
            with T.SimdVF():
                for c in T.serial(chunk // BYTES):
                    S.vsts(zero[c * BYTES], S.vdup(T.uint8(0), "uint8"))
            for i in T.Pipelined(T.ceildiv(items - bx, cores), num_stages=2):
                item = bx + i * cores
                pair = item // pieces
                first = item % pieces * chunk
                count = T.min(chunk, W - first)
                T.assume(0 <= pair)
                T.assume(pair < N)
                T.assume(0 <= first)
                T.assume(0 < count)
                source = PAIRS[pair, 0]
                target = PAIRS[pair, 1]
                begin = T.cast(source, I64) * stride + first
                into = T.cast(target, I64) * stride + first
                if target >= 0:
                    T.assume(0 <= into)
                    T.assume(into + count <= span)
                    if source >= 0:
                        T.assume(0 <= begin)
                        T.assume(begin + count <= span)
                        T.copy(POOL[begin : begin + count], x[0:count])
                        T.copy(x[0:count], POOL[into : into + count])
                    else:
                        T.copy(zero[0:count], POOL[into : into + count])

    return copy_slots


def ring_move(chunk=32768):
    """Positions [begin, end) of each item from a ring of L slots to one of R slots, records of `rec` bytes.

    The cores share the items' positions, `most` of each: as many as the shorter ring has.
    """
    A, Z, N = T.dynamic("A", "int64"), T.dynamic("Z", "int64"), T.dynamic("N")

    @T.prim_func
    def ring_move(
        SOURCE: T.Tensor((A,), U8),
        TARGET: T.Tensor((Z,), U8),
        FROM: T.Tensor((N,), I32),
        INTO: T.Tensor((N,), I32),
        BEGIN: T.Tensor((N,), I32),
        END: T.Tensor((N,), I32),
        from_stride: T.int64,
        into_stride: T.int64,
        from_pitch: T.int64,
        into_pitch: T.int64,
        L: T.int32,
        R: T.int32,
        rec: T.int32,
        most: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((chunk,), U8)
            T.assume(0 < L)
            T.assume(0 < R)
            T.assume(0 < rec)
            T.assume(rec <= chunk)
            T.assume(0 < most)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(items - bx, cores), num_stages=2):
                n = (bx + i * cores) // most
                T.assume(0 <= n)
                T.assume(n < N)
                target = INTO[n]
                at = BEGIN[n]  # begin + most may not be a number of 32 bits
                T.assume(0 <= at)
                if target >= 0:
                    if (bx + i * cores) % most < END[n] - at:
                        source = FROM[n]
                        p = at + (bx + i * cores) % most
                        T.assume(0 <= p)
                        begin = T.cast(source, I64) * from_stride + T.cast(p % L, I64) * from_pitch
                        into = T.cast(target, I64) * into_stride + T.cast(p % R, I64) * into_pitch
                        T.assume(0 <= begin)
                        T.assume(begin + rec <= A)
                        T.assume(0 <= into)
                        T.assume(into + rec <= Z)
                        T.copy(SOURCE[begin : begin + rec], x[0:rec])
                        T.copy(x[0:rec], TARGET[into : into + rec])

    return ring_move
