"""Mutants of ops' kernels that change nothing which any input could show, each with its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deepinfer.backends.ascend.sim.mutate import Mutant

PLACE = "@"
"""Stands in a pattern where the mutant does; no kernel has it elsewhere."""


@dataclass(frozen=True)
class Equivalent:
    """Mutants that no data betrays.

    Attributes:
        programs: what their labels match.
        kind: "pair" or an operator, or what several of them match.
        text: what a part of the line that they stand in matches; PLACE in it is where they stand.
        why: in a few words, as the table prints it.
        within: what the name of the function matches that they stand in; "" for any.
    """

    programs: str
    kind: str
    text: str
    why: str
    within: str = ""


KNOWN: tuple[Equivalent, ...] = (
    # What asc_sync_pipe keeps apart are stores to slots that a row or position has for itself.
    Equivalent("store_last_rows-.*", "pair", "asc_sync_pipe", "distinct slots"),
    Equivalent("ring_move-.*", "pair", "asc_sync_pipe", "distinct slots"),
    Equivalent("load_records-.*", "pair", "asc_sync_pipe", "distinct rows"),
    Equivalent("copy_slots-.*|moe_dispatch-.*", "pair", "asc_sync_pipe", "distinct slots"),
    Equivalent("embed_streams-.*", "pair", "asc_sync_pipe", "distinct rows"),
    # Between two loads that it keeps apart is a use, which waits for the first and is waited for by the second.
    Equivalent("scatter_embeds-.*|number_products-.*", "pair", "asc_sync_pipe", "loads in turn"),
    # What it keeps apart are fills and copies of rows below n, rows from n on, and channels behind K: where two of them
    # overlap, both are zeros.
    Equivalent("linear_bf16-.*", "pair", "asc_sync_pipe", "zeros over zeros"),
    # The launcher takes these texts for whole steps of 64 (256) channels only.
    Equivalent("linear_fp8-.*", "clamp", r"@min\((64|256), max\(\(K - ", "whole steps of channels"),
    Equivalent("linear_fp8-channels_256", "clamp", r"@min\(4, max\(\(\(K >> 6\) - ", "whole steps of channels"),
    # Zeros below the last rows of a weight are of columns that are not stored; the rows come after them.
    Equivalent(
        "linear_fp8-channels_256",
        "block",
        r"^asc_fill_l1\([^{]*\(\(\(k \+ ([^{]*@block_idx[^{]*\{|.*\.dst_gap = .*@block_idx)",
        "not stored",
    ),
    # The launcher takes this text for at most 16 rows, so there is one tile of rows.
    Equivalent(
        "linear_bf16-out_float32-rows_16",
        "block",
        r"@block_idx\)+ \+ [^%/]*% \(*(int64_t\))?across\b",
        "one tile of rows",
    ),
    # Of the pieces of a row the last writes its weights of streams in place of the first.
    Equivalent(
        "embed_streams-.*", "block", r"^__cond_0 = .*@block_idx.* % pieces\) == 0\)\);$", "one piece of each row"
    ),
    # Width is groups + 1, and at < groups here, so the next byte is of the same row; the bound holds for any at >= 0.
    Equivalent(
        "pair_scales-.*",
        "thread",
        r"@\(int32_t\)threadIdx\.x\)+ / \(*(int64_t\))?width\)+ \* \(*(int64_t\))?groups",
        "same row",
    ),
    Equivalent(
        "pair_scales-.*", "block|thread", r"^if \(\(\(0 <= \(\(S\[[^]]*\] \* groups\) \+ [^%]*@", "never below zero"
    ),
    # Offset, width, height and a place inside of an image are at least 0, whichever of them is taken.
    Equivalent("image_patches-.*", "subscript", r"^condval_[56] = I\[@", "never below zero"),
    Equivalent("image_patches-.*", "thread", r"^if \(+int64_t\)0 <= [^<&]*@\(int32_t\)threadIdx", "never below zero"),
    # The sum of all lanes was given to each of them, and what follows takes each for itself.
    Equivalent("draft_confidence-.*", "source", r"@\(__ubuf__ uint8_t\*\).*\[16448\]\)+, 1, 4, ", "in all lanes"),
    Equivalent("block_tops", "source", r"@\(__ubuf__ uint8_t\*\).*\[32800\]\)+, 1, 4, ", "in all lanes"),
    # A chunk has no more blocks than fit in it. What is computed behind the last block stays in UB; what is behind the
    # visible lanes of the last block is hidden by its score, which is infinite in any case.
    Equivalent("block_tops", "clamp", r"c < \(\(@min\(\(min\(\(16384 / size\)", "at most a chunk anyway"),
    Equivalent("block_tops", "clamp", r"(c|c_1) < \(\((min\(\()?@min\(\(16384 / size\)", "behind the last block"),
    Equivalent("block_tops", "clamp", r"update_mask_b32\(\(@min\(\(16384 / size\)", "behind the last block"),
    Equivalent("block_tops", "clamp", r"update_mask_b32\(max\(\(@min\(16384, \(visible", "in the last block"),
    # A row of a stream has the whole piece of UB for itself.
    Equivalent("hc_expand-.*", "clamp", r"(c < \(|update_mask_b32\()\(@min\(2048, ", "behind the tail"),
    # Which lanes hold entries matters to those behind them alone, and behind the last entry nothing is copied out.
    Equivalent("number_products-.*", "threads", "simt_vf_1>", "behind the tail"),
    Equivalent("number_products-.*", "clamp|thread|subscript", r"1088\)\] = min\(512, \(part", "behind the tail"),
    # A round's lanes behind its 32 are the first of the next round, which come later; the last one has no more than 32.
    Equivalent("store_entries-.*fp4_(16|32)", "clamp", r"update_mask_b32\(@min\(\(\(K >> ", "written anew"),
    Equivalent("store_entries-.*", "pair", "asc_sync_pipe", "distinct slots"),
    # Not equivalent on a device. In the model a core lets others go only when none of its pipes can, so what M and FIX
    # can do is done, under every schedule, before the vector cores have widened the weight that MTE1 waits for.
    Equivalent("grouped_linear", "pair", "PIPE_(M->PIPE_MTE1|FIX->PIPE_M)$", "never behind in the model"),
    # `begin` is at least 0, so is the remainder of a sum with it, and its sign bit is clear.
    Equivalent("ring_move-.*", "block", r"[LR] & \(\(\(at \+ \(+\(int32_t\)@block_idx", "sign of a remainder"),
    # Padding is zero in all rows of a sequence, whichever of its threads writes which; each has one for its own values.
    Equivalent(
        "draft_inputs-.*", "block|thread", r"^Y7\[.*@.* % \(\(int64_t\)d\)\).*= \(int64_t\)0;$", "zeros permuted"
    ),
    Equivalent("draft_inputs-.*", "block|thread", r"^if \(.*@.* % d\) == 0\) \{$", "one thread of each sequence"),
    # A remainder by the number of replicas is in the table's range, whichever token it is of; what makes it the one of
    # a negative number is never come to.
    Equivalent(
        "choose_experts-.*", "block|thread", r"^int32_t rmod(_1)? = \(\(own \+ [^%/]*@[^%/]*/ slots", "remainders"
    ),
    Equivalent(
        "choose_experts-.*",
        "subscript|thread",
        r"\|\| [^|&?]*@[^|&?]* < [^&?]*&& \(rmod|\? rmod\w* : \(rmod\w* \+ [^]]*@",
        "remainders",
    ),
    # Rows behind the last one, of those that are done at once, are computed from what is in UB, and stay there.
    Equivalent("hc_sums-.*", "clamp", r"(o|b|b_1) < \(?@min\(rows, ", "rows stay in UB"),
    Equivalent("hc_mix-.*", "clamp", r"update_mask_b32\(@min\(64, ", "rows stay in UB"),
    # The last round adds what stands before lanes behind lane 63 of 64.
    Equivalent("(moe_pack|place_rows)-.*", "loop", r"y(_1)? < 64", "nothing behind lane 63"),
    # The first slot of a tile is there, and written after; which number below 0 the others hold is asked by nobody.
    Equivalent("place_rows-.*", "subscript|thread", r"\+ 12544\)\] = -2;", "written anew"),
    # Asked for its sign alone.
    Equivalent("place_rows-.*", "block|thread", r"^int64_t rmod_1 = .*@", "remainders"),
    # What is added to the total is NaN where the maximum is infinite; there the total is NaN or 0 as it is, and its
    # quotient NaN.
    Equivalent("image_attention", "destination", r"\(@state \+ TOTAL, ", "NaN in any case", within="finish"),
    # Codes behind those of 64 channels are written anew by the next round; the last has no more than those.
    Equivalent("index_query_pack", "clamp", r"pairs = K - c @< LANES ", "written anew"),
    # Vector and store units have waited for all loads of a stream, and the loads of the next one wait for them.
    Equivalent("engram_gate-.*", "pair", "asc_sync_pipe", "loads in turn"),
    # All loads of a pass over the row have been waited for before those of the next one begin.
    Equivalent("topk_select-.*", "pair", "asc_sync_pipe", "loads in turn"),
    # What lies behind the row's end stays in UB, as without blocks; of the blocks' list, all chunks are whole but the
    # last, and that one ends with the list. More of the list than a chunk needs has room, and is not looked at.
    Equivalent(
        "topk_select-blocks_True-.*", "clamp", r"c < \(\(@min\(16384, ", "behind the tail", within=r".*_simd_vf_[25]"
    ),
    # The blocks of lanes behind the row's end, in its last register, are what fills a copy of the list up to 32 bytes:
    # -1 in the model.
    Equivalent(
        "topk_select-blocks_True-.*",
        "clamp",
        r"\(\(@min\(16384, .* - \(c \* 64\)",
        "unwritten blocks are -1",
        within=r".*_simd_vf_[25]",
    ),
    Equivalent("topk_select-blocks_True-.*", "clamp", r"^int32_t r(mod|div)_\d+ = \(@min\(16384, ", "the list's end"),
    Equivalent(
        "topk_select-blocks_True-.*", "clamp", r"\(min\(@min\(\(KB - |, 1, \(@min\(min\(\(KB - ", "the list's end"
    ),
    # The maximum, the sum and what comes of them are in all lanes of their registers, and one or two lanes are read.
    Equivalent("log_sums", "source", r"\[(17408|17536)\]\)+, @0\)", "in all lanes", within=".*_simd_vf_4"),
    Equivalent("log_sums", "source", r"&\(P\[.*@\(__ubuf__ uint8_t\*\)", "in all lanes"),
    # Lanes that a row sees come first: blocks ascend, and what is none comes after them. So the first lane of a tile
    # tells whether there is one, and only the last one is left out.
    Equivalent("index_score", "loop", r"^@for \(int32_t l = lane; l < lane \+ LANES", "seen lanes come first"),
    # What is reduced over a warp is in all of its threads, whichever of them adds it to the row's.
    Equivalent("select_tokens", "thread", r"^if \(@threadIdx\.x % 32 == 0\)", "one thread of each warp"),
    # min_p is at most ONE, and there it is the same with the clamp and without.
    Equivalent("select_tokens", "clamp", r"uint64_t\(min_p\) @< ONE \? ", "at most so anyway"),
    # The border is below the best key here, so there is one above it, and none is above that of +infinity: no row with
    # a NaN comes here.
    Equivalent("select_tokens", "count", r"@uint32_t next = 0xFFFFFFFFu;", "no key so large", within="lowest_above"),
    # Only read where the edge is above LOWEST, with which it begins: each place that moves the edge there sets the ties
    # too, and a place that was found is above LOWEST, so that it is not compared with an edge that was not moved.
    Equivalent("select_tokens", "count", r"@uint32_t ties = 0;", "set with the edge", within="filter"),
    # Every lane of what is copied out holds the row's number.
    Equivalent("sample_draw", "source", r"&\(Y\[.*@\(__ubuf__ uint8_t\*\)", "in all lanes"),
    Equivalent("token_weights", "source", r"\(M \+ r\), @\(__ubuf__ uint8_t\*\)BEST", "in all lanes"),
    Equivalent("verify_drafts", "source", r"\([NFYB] \+ r\), @\(__ubuf__ uint8_t\*\)(OUT|FLAG)", "in all lanes"),
    # The end is a whole number of steps of 256 tokens: a step that begins below it begins below the number before it.
    Equivalent("verify_drafts", "loop", r"^@for \(int32_t c = 0; c < end; c \+= 4 \* LANES\)", "whole steps"),
    # The loop goes on behind a list's end. What nothing wrote is -1 in the model, an id that is not looked up; behind
    # the last of several pieces stand ids of the same row with their values.
    Equivalent("lookup_candidates-.*", "clamp", r"k < @min\(8192, ", "unwritten ids are -1"),
    # The loop goes on to the end of a whole piece, and asks of each token whether the row has it.
    Equivalent("sample_draw", "clamp", r"c < \(\(@min\(8192, ", "tested in the loop"),
    Equivalent("mask_rows-.*", "clamp", r"@min\(8192, ", "tested in the loop"),
    # Lane l of patch p goes to place l s + p of UB: behind the s channels that are copied out for each lane of the row.
    Equivalent("merge_patches-.*", "clamp", r"@min\(1024, .*(\) >> 7\)|\(c \* 128\))", "behind the tail"),
)


def reason(label: str, mutant: Mutant) -> str:
    """Why a mutant is equivalent, "" where nobody has said so."""
    line, column = mutant.text, mutant.column
    marked = line if column < 0 else line[:column] + PLACE + line[column:]
    for known in KNOWN:
        if known.within and not re.fullmatch(known.within, mutant.function):
            continue
        if re.fullmatch(known.kind, mutant.kind) and re.fullmatch(known.programs, label):
            if re.search(known.text, marked if PLACE in known.text else line):
                return known.why
    return ""
