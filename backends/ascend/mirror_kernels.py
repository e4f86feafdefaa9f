# mypy: ignore-errors
"""Rows of a rank in the mirror layout, SIMT: a thread for each row, which finds its sequence by adding up lengths.

A sequence of q rows is cut into 2 * ranks pieces of `ps` rows; rank r has the pieces r and 2 * ranks - 1 - r, and as
many local rows, `ps` for each. One rank has its q rows without padding, which is the same but for how many there are.
"""

import tilelang.ascend.language as T

I32, I64 = T.int32, T.int64


def piece(q, ranks):
    """Rows of a piece of a sequence."""
    return T.truncdiv(q + 2 * ranks - 1, 2 * ranks)


def local(q, ranks):
    """Local rows of a sequence."""
    return T.if_then_else(ranks == 1, q, 2 * piece(q, ranks))


def mirror_rows(threads=256):
    """`ops.mirror.mirror_rows`; the cores share blocks of `threads` local rows, and of as many packed ones."""
    Q, m, M, R = T.dynamic("Q"), T.dynamic("m"), T.dynamic("M"), T.dynamic("R")

    @T.prim_func
    def mirror_rows(
        COUNT: T.Tensor((Q,), I32),
        LENGTH: T.Tensor((Q,), I32),
        VALID: T.Tensor((Q,), I32),
        RATIO: T.Tensor((R,), I32),
        LOCAL: T.Tensor((m,), I32),
        INVERSE: T.Tensor((M,), I32),
        POSITION: T.Tensor((m,), I32),
        OWNER: T.Tensor((m,), I32),
        FIRST: T.Tensor((m,), I32),
        VISIBLE: T.Tensor((R, m), I32),
        ranks: T.int32,
        own: T.int32,
        blocks: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            T.assume(0 < cores)
            T.assume(0 < ranks)
            for i in T.serial(T.ceildiv(blocks - bx, cores)):
                base = (bx + i * cores) * threads
                with T.SimtVF(threads=threads):
                    packed = T.alloc_fragment((threads,), I32)  # rows before the sequence, packed and local
                    near = T.alloc_fragment((threads,), I32)
                    owner = T.alloc_fragment((threads,), I32)
                    begin = T.alloc_fragment((threads,), I32)
                    place = T.alloc_fragment((threads,), I32)
                    other = T.alloc_fragment((threads,), I32)
                    there = T.alloc_fragment((threads,), I32)
                    away = T.alloc_fragment((threads,), I32)
                    ps = T.alloc_fragment((threads,), I32)
                    half = T.alloc_fragment((threads,), I32)
                    token = T.alloc_fragment((threads,), I32)
                    q = T.alloc_fragment((threads,), I32)
                    for j in T.Parallel(threads):
                        packed[j] = 0
                        near[j] = 0
                        owner[j] = -1
                        other[j] = -1
                        for s in T.serial(Q):
                            q[j] = COUNT[s]
                            ps[j] = local(q[j], ranks)
                            if (near[j] <= base + j) and (base + j < near[j] + ps[j]):
                                owner[j] = s
                                begin[j] = packed[j]
                                place[j] = base + j - near[j]
                            if (packed[j] <= base + j) and (base + j < packed[j] + q[j]):
                                other[j] = s
                                there[j] = base + j - packed[j]
                                away[j] = near[j]
                            packed[j] = packed[j] + q[j]
                            near[j] = near[j] + ps[j]
                        if base + j < m:
                            token[j] = -1
                            if owner[j] >= 0:
                                q[j] = COUNT[owner[j]]
                                ps[j] = piece(q[j], ranks)
                                half[j] = T.if_then_else(place[j] < ps[j], 0, 1)
                                token[j] = place[j] + (T.if_then_else(half[j] == 0, own, 2 * ranks - 2 - own)) * ps[j]
                                if token[j] >= q[j]:
                                    token[j] = -1
                            if token[j] >= 0:
                                LOCAL[base + j] = begin[j] + token[j]
                                OWNER[base + j] = owner[j]
                                FIRST[base + j] = VALID[owner[j]]
                                place[j] = LENGTH[owner[j]] - q[j] + token[j]
                                POSITION[base + j] = place[j]
                                for k in T.serial(R):
                                    VISIBLE[k, base + j] = T.truncdiv(place[j] + 1, RATIO[k])
                            else:
                                LOCAL[base + j] = -1
                                OWNER[base + j] = -1
                                FIRST[base + j] = 0
                                POSITION[base + j] = 0
                                for k in T.serial(R):
                                    VISIBLE[k, base + j] = 0
                        if base + j < M:
                            if other[j] >= 0:
                                ps[j] = piece(COUNT[other[j]], ranks)
                                half[j] = T.truncdiv(there[j], ps[j])  # the piece
                                if half[j] < ranks:
                                    INVERSE[base + j] = half[j] * m + away[j] + there[j] - half[j] * ps[j]
                                else:
                                    INVERSE[base + j] = (
                                        (2 * ranks - 1 - half[j]) * m + away[j] + ps[j] + there[j] - half[j] * ps[j]
                                    )
                            else:
                                INVERSE[base + j] = -1

    return mirror_rows


def replay_rows(threads=256):
    """`ops.mirror.replay_rows`; the cores share blocks of `threads` contributions, and of as many rows behind them."""
    Q, m, K = T.dynamic("Q"), T.dynamic("m"), T.dynamic("K")

    @T.prim_func
    def replay_rows(
        COUNT: T.Tensor((Q,), I32),
        KEEP: T.Tensor((Q,), I32),
        CONTRIBUTION: T.Tensor((K,), I32),
        INVERSE: T.Tensor((m,), I32),
        ranks: T.int32,
        own: T.int32,
        blocks: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            T.assume(0 < cores)
            T.assume(0 < ranks)
            for i in T.serial(T.ceildiv(blocks - bx, cores)):
                base = (bx + i * cores) * threads
                with T.SimtVF(threads=threads):
                    near = T.alloc_fragment((threads,), I32)  # local rows before the sequence, in either layout
                    kept = T.alloc_fragment((threads,), I32)  # contributions before the piece
                    found = T.alloc_fragment((threads,), I32)
                    owner = T.alloc_fragment((threads,), I32)
                    token = T.alloc_fragment((threads,), I32)
                    q = T.alloc_fragment((threads,), I32)
                    ps = T.alloc_fragment((threads,), I32)
                    first = T.alloc_fragment((threads,), I32)
                    count = T.alloc_fragment((threads,), I32)
                    at = T.alloc_fragment((threads,), I32)
                    rank = T.alloc_fragment((threads,), I32)
                    for j in T.Parallel(threads):
                        if base + j < K:
                            near[j] = 0
                            kept[j] = 0
                            found[j] = -1
                            for s in T.serial(Q):
                                q[j] = COUNT[s]
                                ps[j] = piece(q[j], ranks)
                                for h in T.serial(2):
                                    at[j] = (own + h * (2 * ranks - 1 - 2 * own)) * ps[j]
                                    first[j] = T.max(at[j], q[j] - KEEP[s])
                                    count[j] = T.max(T.min(at[j] + ps[j], q[j]) - first[j], 0)
                                    if (kept[j] <= base + j) and (base + j < kept[j] + count[j]):
                                        found[j] = near[j] + h * ps[j] + first[j] - at[j] + base + j - kept[j]
                                    kept[j] = kept[j] + count[j]
                                near[j] = near[j] + local(q[j], ranks)
                            CONTRIBUTION[base + j] = found[j]
                        if base + j < m:
                            near[j] = 0
                            owner[j] = -1
                            token[j] = -1
                            found[j] = -1
                            for s in T.serial(Q):
                                q[j] = KEEP[s]
                                count[j] = local(q[j], ranks)
                                if (near[j] <= base + j) and (base + j < near[j] + count[j]):
                                    ps[j] = piece(q[j], ranks)
                                    at[j] = base + j - near[j]
                                    token[j] = at[j] + T.if_then_else(at[j] < ps[j], own, 2 * ranks - 2 - own) * ps[j]
                                    if token[j] < q[j]:
                                        owner[j] = s
                                        token[j] = COUNT[s] - q[j] + token[j]
                                near[j] = near[j] + count[j]
                            if owner[j] >= 0:
                                at[j] = T.truncdiv(token[j], piece(COUNT[owner[j]], ranks))
                                rank[j] = T.if_then_else(at[j] < ranks, at[j], 2 * ranks - 1 - at[j])
                                kept[j] = 0
                                for s in T.serial(Q):
                                    if s <= owner[j]:
                                        q[j] = COUNT[s]
                                        ps[j] = piece(q[j], ranks)
                                        for h in T.serial(2):
                                            at[j] = (rank[j] + h * (2 * ranks - 1 - 2 * rank[j])) * ps[j]
                                            first[j] = T.max(at[j], q[j] - KEEP[s])
                                            count[j] = T.max(T.min(at[j] + ps[j], q[j]) - first[j], 0)
                                            if s == owner[j]:
                                                if (first[j] <= token[j]) and (token[j] < first[j] + count[j]):
                                                    found[j] = rank[j] * K + kept[j] + token[j] - first[j]
                                            kept[j] = kept[j] + count[j]
                            INVERSE[base + j] = found[j]

    return replay_rows
