# mypy: ignore-errors
"""Metadata and tokens of a step's rows, SIMT: a thread for each row, or for each token of a row's n-gram.

A thread finds its sequence by adding up the lengths, which are few and the same for all threads.
"""

import tilelang.ascend.language as T

U8, I32, I64 = T.uint8, T.int32, T.int64


def step_metadata(threads=256):
    """`ops.step.step_metadata`; the cores share blocks of `threads` rows, and of as many sequences."""
    Q, m, R = T.dynamic("Q"), T.dynamic("m"), T.dynamic("R")

    @T.prim_func
    def step_metadata(
        COUNT: T.Tensor((Q,), I32),
        LENGTH: T.Tensor((Q,), I32),
        VALID: T.Tensor((Q,), I32),
        RATIO: T.Tensor((R,), I32),
        POSITION: T.Tensor((m,), I32),
        OWNER: T.Tensor((m,), I32),
        FIRST: T.Tensor((m,), I32),
        START: T.Tensor((Q,), I32),
        END: T.Tensor((Q,), I32),
        BEGIN: T.Tensor((Q,), I32),
        VISIBLE: T.Tensor((R, m), I32),
        blocks: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            T.assume(0 < cores)
            for i in T.serial(T.ceildiv(blocks - bx, cores)):
                base = (bx + i * cores) * threads
                with T.SimtVF(threads=threads):
                    owner = T.alloc_fragment((threads,), I32)
                    first = T.alloc_fragment((threads,), I32)
                    total = T.alloc_fragment((threads,), I32)
                    position = T.alloc_fragment((threads,), I32)
                    before = T.alloc_fragment((threads,), I32)
                    for j in T.Parallel(threads):
                        owner[j] = -1
                        first[j] = 0
                        total[j] = 0
                        before[j] = 0
                        for s in T.serial(Q):
                            if (total[j] <= base + j) and (base + j < total[j] + COUNT[s]):
                                owner[j] = s
                                first[j] = total[j]
                            if s < base + j:
                                before[j] = before[j] + COUNT[s]
                            total[j] = total[j] + COUNT[s]
                        if base + j < m:
                            OWNER[base + j] = owner[j]
                            if owner[j] >= 0:
                                position[j] = LENGTH[owner[j]] - COUNT[owner[j]] + base + j - first[j]
                                POSITION[base + j] = position[j]
                                FIRST[base + j] = VALID[owner[j]]
                                for k in T.serial(R):
                                    VISIBLE[k, base + j] = T.truncdiv(position[j] + 1, RATIO[k])
                            else:
                                POSITION[base + j] = 0
                                FIRST[base + j] = 0
                                for k in T.serial(R):
                                    VISIBLE[k, base + j] = 0
                        if base + j < Q:
                            START[base + j] = LENGTH[base + j] - COUNT[base + j]
                            END[base + j] = LENGTH[base + j]
                            BEGIN[base + j] = before[j]

    return step_metadata


def step_tokens(threads=256):
    """`ops.step.step_tokens`; the cores share blocks of `threads` tokens of n-grams, `size` to a row."""
    Q, m, F, Z, D, H, G = (T.dynamic(name) for name in ("Q", "m", "F", "Z", "D", "H", "G"))

    @T.prim_func
    def step_tokens(
        AT: T.Tensor((m,), I32),
        OWNER: T.Tensor((m,), I32),
        START: T.Tensor((Q,), I32),
        SLOT: T.Tensor((Q,), I32),
        FRESH: T.Tensor((F,), I32),
        FIRST: T.Tensor((Q,), I32),
        LAST: T.Tensor((Z,), I32),
        DRAFT: T.Tensor((D,), I32),
        HISTORY: T.Tensor((H,), I32),
        SKIP: T.Tensor((Q,), I32),
        TOKEN: T.Tensor((m,), I32),
        GRAM: T.Tensor((G,), I32),
        IMAGE: T.Tensor((m,), U8),
        vocab: T.int32,
        size: T.int32,
        drafts: T.int32,
        past: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            T.assume(0 < cores)
            T.assume(0 < size)
            for i in T.serial(T.ceildiv(T.ceildiv(items, threads) - bx, cores)):
                base = (bx + i * cores) * threads
                with T.SimtVF(threads=threads):
                    row = T.alloc_fragment((threads,), I32)
                    owner = T.alloc_fragment((threads,), I32)
                    place = T.alloc_fragment((threads,), I32)
                    far = T.alloc_fragment((threads,), I32)
                    slot = T.alloc_fragment((threads,), I32)
                    token = T.alloc_fragment((threads,), I32)
                    for j in T.Parallel(threads):
                        if base + j < items:
                            row[j] = T.truncdiv(base + j, size)
                            token[j] = -1
                            owner[j] = OWNER[row[j]]
                            if owner[j] >= 0:
                                place[j] = AT[row[j]] - (base + j - row[j] * size)
                                far[j] = place[j] - START[owner[j]]
                                if far[j] >= 0:
                                    slot[j] = SLOT[owner[j]]
                                    if slot[j] < 0:
                                        token[j] = FRESH[FIRST[owner[j]] + far[j]]
                                    else:
                                        if far[j] == 0:
                                            token[j] = LAST[slot[j]]
                                        else:
                                            token[j] = DRAFT[T.cast(slot[j], I64) * drafts + far[j] - 1]
                                else:
                                    if (place[j] >= 0) and (-1 - far[j] < past - SKIP[owner[j]]):
                                        token[j] = HISTORY[T.cast(owner[j], I64) * past + SKIP[owner[j]] - far[j] - 1]
                            GRAM[base + j] = token[j]
                            if base + j == row[j] * size:
                                TOKEN[row[j]] = token[j]
                                IMAGE[row[j]] = T.if_then_else(token[j] >= vocab, T.uint8(1), T.uint8(0))

    return step_tokens
