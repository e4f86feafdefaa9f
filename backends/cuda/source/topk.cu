// Exact top-k of rows: one read of the scores, bit-equal to the reference, ties to the lower index, ids ascending.
//
// A CTA, or a cluster of CTAs that cut the row into segments, serves a row:
//
//   1. The first chunk stays in registers. Elements form groups of a few neighbours; the k-th largest of the groups'
//      maxima is at most the k-th largest element, so its histogram bin's lower edge is a threshold that loses nothing
//      and lets few elements past (about 1.1 k of random scores).
//   2. Elements at or above the threshold enter a list in shared memory, in index order (a warp's segment is contiguous,
//      places come from prefix sums). A chunk that does not fit comes again in parts of 4,096 elements. Where a part does
//      not fit, the list is first cut to its exact k best, and from then on only strictly larger elements enter: ties
//      belong to the lower index. The list holds k + one part, so the second attempt always fits: no input overflows.
//   3. The k-th largest of the list by histograms of 1024 bins over the range of keys that is left, the last few by
//      comparison; then the list is compacted to the result, still in index order.
//
// Nothing depends on the order in which threads run: atomics only count. Keys are order-preserving images of the values
// (NaN is 1, below every number; -0 and +0 have one image), so ties and NaN need no code of their own.
//
// TOPK_EMULATED replaces the device layer for tests without a GPU (tests/support/cuda_emulator.h).

#ifndef TOPK_EMULATED
#define DEVICE static __device__ __forceinline__
#define DEVICE_CALL static __device__ __noinline__

DEVICE int thread_index() { return threadIdx.x; }
DEVICE unsigned block_index() { return blockIdx.x; }
DEVICE void cta_sync() { __syncthreads(); }
DEVICE unsigned shuffle(unsigned value, int lane) { return __shfl_sync(~0u, value, lane); }
DEVICE unsigned shuffle_up(unsigned value, int by) { return __shfl_up_sync(~0u, value, by); }
DEVICE unsigned vote(bool value) { return __ballot_sync(~0u, value); }
DEVICE unsigned warp_sum(unsigned value) { return __reduce_add_sync(~0u, value); }
DEVICE unsigned warp_max(unsigned value) { return __reduce_max_sync(~0u, value); }
DEVICE unsigned warp_min(unsigned value) { return __reduce_min_sync(~0u, value); }
DEVICE unsigned count_atomically(unsigned* counter) { return atomicAdd(counter, 1u); }

// Of two pairs of bf16 numbers: 0xFFFF in each half where a >= b (not for NaN); the larger ones (a NaN loses).
DEVICE unsigned at_least2(unsigned a, unsigned b) {
    unsigned mask;
    asm("set.ge.u32.bf16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
    return mask;
}
DEVICE unsigned larger2(unsigned a, unsigned b) {
    unsigned most;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
}

DEVICE uint4 load16(const void* address) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
}

// Predicated, where a branch would cost more than the store.
DEVICE void store_if(bool wanted, uint2* at, unsigned first, unsigned second) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.shared.u32 [%1], %2;\n@p st.shared.u32 [%1+4], %3;\n}"
                 ::"r"((unsigned)wanted), "r"((unsigned)__cvta_generic_to_shared(at)), "r"(first), "r"(second)
                 : "memory");
}

DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Address of the same shared variable in another CTA of the cluster.
DEVICE unsigned peer(const unsigned* local, unsigned rank) {
    unsigned remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"((unsigned)__cvta_generic_to_shared(local)), "r"(rank));
    return remote;
}
DEVICE unsigned load_peer(const unsigned* local, unsigned rank) {
    unsigned value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(peer(local, rank)) : "memory");
    return value;
}
DEVICE void store_peer(uint2* local, unsigned rank, uint2 value) {
    asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" ::"r"(peer((const unsigned*)local, rank)), "r"(value.x), "r"(value.y)
                 : "memory");
}
#endif

typedef unsigned long long u64;

constexpr int BIN_BITS = 10;
constexpr int BINS = 1 << BIN_BITS;
constexpr int FEW = 32;
constexpr int PART = 4096;  // elements that the list has room for beside its k best
constexpr unsigned KEY_NAN = 1;
constexpr unsigned KEY_NONE = 0;

// What the launch gives; rows are contiguous.
struct Arguments {
    const void* scores;
    const int* visible;
    const int* blocks;  // [rows, block_count] of compact rows, or null
    const int* row_seq;  // rows of sequence -1 see nothing; or null
    int* out;            // [rows, k]
    void* chosen;        // [rows, k]: the scores of what was chosen, or null
    int lanes;          // elements of a row in memory
    int k;
    int block_size;
    int block_count;
    int capacity;  // of the list: even, at least k + PART, and the cluster's size times k
};

template <int WARPS>
struct Shared {
    unsigned histogram[BINS];
    unsigned sums[2][WARPS];
    unsigned top[WARPS], bottom[WARPS];
    unsigned bin, above, inside;
    unsigned few[FEW], few_count;
    unsigned count, low;  // of the list, for the cluster
};

DEVICE float as_float(unsigned bits) { return __uint_as_float(bits); }
DEVICE unsigned as_bits(float value) { return __float_as_uint(value); }
DEVICE unsigned smaller(unsigned a, unsigned b) { return a < b ? a : b; }
DEVICE unsigned larger(unsigned a, unsigned b) { return a > b ? a : b; }

// ---- formats ---------------------------------------------------------------------------------------------------------
//
// A thread holds a chunk as 32-bit words. `code` is an element's bit pattern, as the list holds it at first; `key` its
// image; `pass` has one bit per element that is at or above a threshold (NaN never is).

DEVICE unsigned word_of(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// fp32 elements, keys of 32 bits.
template <int LINES>
struct F32 {
    static constexpr int VECTORS = LINES, WIDTH = 4, SIZE = 4, WORDS = 4 * LINES, ITEMS = 4 * LINES;
    static constexpr unsigned KEY_LOWEST = 0x007FFFFF;  // of -infinity
    static constexpr unsigned LOWEST = 0xFF800000, NAN_CODE = 0x7FFFFFFF;

    DEVICE unsigned key(unsigned code) {
        if ((code & 0x7FFFFFFFu) > 0x7F800000u) return KEY_NAN;
        code = code == 0x80000000u ? 0 : code;
        return code ^ (((unsigned)((int)code >> 31)) | 0x80000000u);
    }
    DEVICE unsigned code_of(unsigned key) { return key & 0x80000000u ? key ^ 0x80000000u : ~key; }
    DEVICE unsigned code(const unsigned* words, int i) { return words[i]; }
    DEVICE void blank(unsigned* words, int i) { words[i] = NAN_CODE; }
    DEVICE unsigned pass(const unsigned* words, unsigned threshold) {
        const float border = as_float(threshold);
        unsigned bits = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) bits |= as_float(words[i]) >= border ? 1u << i : 0u;
        return bits;
    }
    // Key of the largest number of a group of words, KEY_NONE if there is none.
    DEVICE unsigned group_key(const unsigned* words, int size) {
        float most = as_float(words[0]);
#pragma unroll
        for (int i = 1; i < size; i++) most = fmaxf(most, as_float(words[i]));  // a NaN loses
        return most == most ? key(as_bits(most)) : KEY_NONE;
    }
    // The elements of a 16-byte line that lie in [first, last); the line starts at element `at`.
    DEVICE_CALL uint4 load_part(const char* row, int at, int first, int last) {
        unsigned word[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + i >= first && at + i < last) word[i] = ((const unsigned*)row)[at + i];
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
};

// bf16 elements, two in a word, keys of 16 bits.
template <int LINES>
struct BF16 {
    static constexpr int VECTORS = LINES, WIDTH = 8, SIZE = 2, WORDS = 4 * LINES, ITEMS = 8 * LINES;
    static constexpr unsigned KEY_LOWEST = 0x007F;
    static constexpr unsigned LOWEST = 0xFF80, NAN_CODE = 0x7FFF;

    DEVICE unsigned key(unsigned code) {
        const unsigned wide = F32<1>::key(code << 16);
        return wide == KEY_NAN ? KEY_NAN : wide >> 16;
    }
    DEVICE unsigned code_of(unsigned key) { return (key & 0x8000u ? key ^ 0x8000u : ~key) & 0xFFFFu; }
    DEVICE unsigned code(const unsigned* words, int i) { return i % 2 ? words[i / 2] >> 16 : words[i / 2] & 0xFFFFu; }
    DEVICE void blank(unsigned* words, int i) { words[i / 2] |= NAN_CODE << (16 * (i % 2)); }
    DEVICE unsigned pass(const unsigned* words, unsigned threshold) {
        const unsigned border = threshold | threshold << 16;
        unsigned all = 0;
#pragma unroll
        for (int half = 0; half < (WORDS + 7) / 8; half++) {
            unsigned bits = 0;
#pragma unroll
            for (int i = 0; i < 8; i++)
                bits |= at_least2(words[8 * half + i], border) & ((1u << 2 * i) | (2u << 2 * i << 16));
            all |= ((bits | bits >> 16) & 0xFFFFu) << (16 * half);
        }
        return all;
    }
    DEVICE unsigned group_key(const unsigned* words, int size) {
        unsigned pair = words[0];
#pragma unroll
        for (int i = 1; i < size; i++) pair = larger2(pair, words[i]);
        const float most = fmaxf(as_float(pair << 16), as_float(pair & 0xFFFF0000u));
        return most == most ? key(as_bits(most) >> 16) : KEY_NONE;
    }
    DEVICE_CALL uint4 load_part(const char* row, int at, int first, int last) {
        unsigned word[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (at + i >= first && at + i < last)
                word[i / 2] |= (unsigned)((const unsigned short*)row)[at + i] << (16 * (i % 2));
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
};

// Blocks of bf16 elements, one in a word: the value of a block is its maximum, no more than the largest finite number.
struct Blocks {
    static constexpr int VECTORS = 4, WIDTH = 1, SIZE = 2, WORDS = 4, ITEMS = 4;
    static constexpr unsigned KEY_LOWEST = BF16<2>::KEY_LOWEST, LOWEST = BF16<2>::LOWEST, NAN_CODE = BF16<2>::NAN_CODE;
    static constexpr unsigned MOST = 0x7F7F, INFINITE = 0x7F80;

    DEVICE unsigned key(unsigned code) { return BF16<2>::key(code); }
    DEVICE unsigned code_of(unsigned key) { return BF16<2>::code_of(key); }
    DEVICE unsigned code(const unsigned* words, int i) { return words[i]; }
    DEVICE void blank(unsigned* words, int i) { words[i] = NAN_CODE; }
    DEVICE unsigned pass(const unsigned* words, unsigned threshold) {
        unsigned bits = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) bits |= as_float(words[i] << 16) >= as_float(threshold << 16) ? 1u << i : 0u;
        return bits;
    }
    DEVICE unsigned group_key(const unsigned* words, int) {
        const unsigned image = key(words[0]);
        return image == KEY_NAN ? KEY_NONE : image;
    }
    DEVICE unsigned larger_half(unsigned pair) {
        return as_bits(fmaxf(as_float(pair << 16), as_float(pair & 0xFFFF0000u))) >> 16;
    }
};

// ---- reading ---------------------------------------------------------------------------------------------------------

// The segment of a row that a CTA reads: elements [first, last). Lines count from its start.
template <class F>
struct Segment {
    const char* row;   // first element
    const char* base;  // the 16-byte line it lies in
    int skew;          // elements of that line before the row
    int first, last;
    int origin;                  // element that line 0 starts with; the row's first line may start before it
    int whole_first, whole_last;  // lines that start in here lie wholly in the tensor

    DEVICE Segment make(const Arguments& a, unsigned row_index, unsigned rows, int rank, int ctas) {
        Segment s;
        s.row = (const char*)a.scores + (u64)row_index * a.lanes * F::SIZE;
        s.base = (const char*)((u64)s.row & ~(u64)15);
        s.skew = (int)(s.row - s.base) / F::SIZE;
        const u64 end = (u64)a.lanes + s.skew, lines = (end + F::WIDTH - 1) / F::WIDTH;
        const u64 share = ((lines + ctas - 1) / ctas + 31) / 32 * 32;
        const u64 from = share * rank * F::WIDTH, to = from + share * F::WIDTH;
        s.first = (int)(from < (u64)s.skew ? 0 : (from < end ? from : end) - s.skew);
        s.last = (int)((to < end ? to : end) - s.skew);
        s.origin = (s.first + s.skew) / F::WIDTH * F::WIDTH - s.skew;
        // A line may reach into the rows beside this one, but not out of the tensor.
        s.whole_first = row_index == 0 && s.skew && s.origin < 0 ? s.origin + F::WIDTH : s.origin;
        s.whole_last = row_index == rows - 1 && s.last == a.lanes ? (int)(end / F::WIDTH * F::WIDTH) - s.skew : s.last;
        return s;
    }
    DEVICE int start(const Segment& s, int line) { return s.origin + line * F::WIDTH; }
    DEVICE uint4 load(const Segment& s, int line) {
        const int at = start(s, line);
        uint4 v = make_uint4(0, 0, 0, 0);
        if (at >= s.whole_first && at < s.whole_last) v = load16(s.base + (long long)(at + s.skew) * F::SIZE);
        return v;
    }
    DEVICE void decode(const Segment& s, const uint4* lines, int at, int, unsigned* words) {
        const bool cut = s.whole_first != s.origin || s.whole_last < s.last;  // of the first or the last row
#pragma unroll
        for (int j = 0; j < F::VECTORS; j++, at += 32 * F::WIDTH) {
            uint4 v = lines[j];
            if (cut && at < s.last && (at < s.whole_first || at >= s.whole_last)) v = F::load_part(s.row, at, s.first, s.last);
#pragma unroll
            for (int i = 0; i < 4; i++) words[4 * j + i] = word_of(v, i);
        }
    }
};

template <>
struct Segment<Blocks> {
    const char* row;
    int block_size;
    int first, last;  // in blocks
    int whole;        // blocks that lie wholly in memory
    bool fast;        // a block is one aligned line

    DEVICE Segment make(const Arguments& a, unsigned row_index, unsigned, int rank, int ctas) {
        Segment s;
        s.row = (const char*)a.scores + (u64)row_index * a.lanes * 2;
        s.block_size = a.block_size;
        s.whole = a.lanes / a.block_size;
        s.fast = a.block_size == 8 && ((u64)s.row & 15) == 0;
        const u64 all = (u64)s.whole + (a.lanes % a.block_size != 0), share = ((all + ctas - 1) / ctas + 31) / 32 * 32;
        const u64 from = share * rank, to = from + share;
        s.first = (int)(from < all ? from : all);
        s.last = (int)(to < all ? to : all);
        return s;
    }
    DEVICE int start(const Segment& s, int line) { return s.first + line; }
    DEVICE uint4 load(const Segment& s, int line) {
        const int block = s.first + line;
        // The last visible block counts as infinite whatever it holds, and no other is cut short.
        if (block >= s.last || block >= s.whole) return make_uint4(0, 0, 0, 0);
        const char* at = s.row + (u64)block * s.block_size * 2;
        if (s.fast) return load16(at);
        float most = 0;
#pragma unroll 1
        for (int i = 0; i < s.block_size; i++) {
            const float value = as_float((unsigned)((const unsigned short*)at)[i] << 16);
            most = i == 0 ? value : fmaxf(most, value);  // a NaN loses
        }
        return make_uint4(as_bits(most) >> 16, 0, 0, 0);
    }
    DEVICE void decode(const Segment& s, const uint4* lines, int block, int visible, unsigned* words) {
#pragma unroll
        for (int j = 0; j < Blocks::VECTORS; j++, block += 32) {
            const uint4& v = lines[j];
            unsigned code = v.x;
            if (s.fast) code = Blocks::larger_half(larger2(larger2(v.x, v.y), larger2(v.z, v.w)));
            code = code == Blocks::INFINITE ? Blocks::MOST : code;
            words[j] = block == visible - 1 ? Blocks::INFINITE : code;
        }
    }
};

// ---- a CTA at work on a row ------------------------------------------------------------------------------------------

DEVICE unsigned warp_prefix(unsigned value, int lane) {  // inclusive
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
        const unsigned other = shuffle_up(value, by);
        value += lane >= by ? other : 0;
    }
    return value;
}

DEVICE int shift_of(unsigned span) {
    const int bits = 32 - __clz((int)span);
    return bits > BIN_BITS ? bits - BIN_BITS : 0;
}

// Smallest key of a bin, no less than `bottom`.
DEVICE unsigned edge_of(unsigned high, unsigned bin, int shift, unsigned bottom) {
    const unsigned depth = (bin << shift) + ((1u << shift) - 1);
    return depth >= high ? bottom : larger(bottom, high - depth);
}

// What a row sees, before its blocks and its end are looked at.
DEVICE int seen_by(const Arguments& a, unsigned row) {
    const int seen = a.row_seq != nullptr && a.row_seq[row] < 0 ? 0 : a.visible[row];
    return seen > 0 ? seen : 0;
}

// Entry of a lane of the row.
DEVICE int entry_of(const Arguments& a, unsigned row, unsigned lane) {
    if (a.blocks == nullptr) return lane;
    const unsigned size = a.block_size, place = lane / size;
    return a.blocks[(u64)row * a.block_count + place] * size + (lane - place * size);
}

template <class F, int THREADS, int CTAS>
struct Worker {
    static constexpr int WARPS = THREADS / 32;
    // A warp's counts of its lines, packed: a line has at most 32 * WIDTH elements.
    static constexpr int FIELD = F::WIDTH <= 4 ? 8 : 16, PER_WORD = 32 / FIELD, PACKS = (F::VECTORS + PER_WORD - 1) / PER_WORD;
    static constexpr int GROUPS = F::ITEMS == 32 && THREADS < 512 ? 8 : 4, GROUP_WORDS = F::WORDS / GROUPS;
    static constexpr int CHUNK = THREADS * F::ITEMS, PARTS = CHUNK > PART ? CHUNK / PART : 1;
    static constexpr int CHUNK_LINES = THREADS * F::VECTORS;

    Shared<WARPS>& s;
    uint2* list;  // key, lane; from item `keyed` on still the code in place of the key
    const int tid, lane, warp;
    int phase = 0;        // which array of warp sums is next: two of them make one barrier enough
    unsigned count = 0;   // items in the list
    unsigned keyed = 0;
    unsigned low = KEY_NAN;     // no key in the list is below
    unsigned threshold = 0;     // code: numbers at or above may enter,
    bool everything = true;     // or all, NaN included

    DEVICE Worker make(Shared<WARPS>& s, uint2* list) {
        const int tid = thread_index();
        return Worker{s, list, tid, tid & 31, tid >> 5};
    }

    // Sum of `value` over the CTA and over the warps before this one; `value` is the warp's, on every lane.
    DEVICE unsigned over_warps(Worker& w, unsigned value, unsigned& before) {
        if (w.lane == 0) w.s.sums[w.phase][w.warp] = value;
        cta_sync();
        const unsigned each = w.lane < WARPS ? w.s.sums[w.phase][w.lane] : 0;
        before = warp_sum(w.lane < w.warp ? each : 0);
        w.phase ^= 1;
        return warp_sum(each);
    }

    DEVICE void clear_histogram(Worker& w) {
#pragma unroll
        for (int i = 0; i < BINS / THREADS; i++) w.s.histogram[w.tid + i * THREADS] = 0;
    }

    // The bin that holds the k-th counted element (bin 0 has the largest): s.bin, elements in it, and those above it.
    // s.inside is 0 if fewer were counted. Counting must be over; the histogram is zero afterwards, after a barrier.
    DEVICE void find(Worker& w, unsigned k) {
        constexpr int EACH = BINS / THREADS;
        const unsigned* mine = w.s.histogram + w.tid * EACH;
        unsigned bins[EACH], sum = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) sum += bins[i] = mine[i];
        if (w.tid == 0) w.s.inside = 0;
        const unsigned upto = warp_prefix(sum, w.lane);
        unsigned before;
        over_warps(w, shuffle(upto, 31), before);
        before += upto - sum;
        if (before < k && k <= before + sum) {
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                if (before < k && k <= before + bins[i])
                    w.s.bin = w.tid * EACH + i, w.s.above = before, w.s.inside = bins[i];
                before += bins[i];
            }
        }
        clear_histogram(w);
        cta_sync();
    }

    DEVICE void admit_from(Worker& w, unsigned key) {
        w.everything = key <= KEY_NAN;
        w.threshold = key <= F::KEY_LOWEST ? F::LOWEST : F::code_of(key);
    }

    // 1: a threshold from the maxima of groups.
    DEVICE void first_threshold(Worker& w, const unsigned* words, unsigned elements, unsigned k) {
        unsigned keys[GROUPS], half[2] = {0, 0}, least = ~0u;  // KEY_NONE - 1 is the largest, too
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            keys[g] = F::group_key(words + g * GROUP_WORDS, GROUP_WORDS);
            half[g / (GROUPS / 2)] = larger(half[g / (GROUPS / 2)], keys[g]);
            least = smaller(least, keys[g] - 1);
        }
        unsigned most = larger(half[0], half[1]);
        // Bins are finer the less they cover. Where k threads have numbers, the k-th group is not below the least of
        // their maxima; or of the maxima of halves of threads.
        const unsigned threads = elements / (32 * F::ITEMS) * 32;
        if (threads >= k) least = most - 1;
        else if (2 * threads >= k) least = smaller(half[0] - 1, half[1] - 1);
        most = warp_max(most), least = warp_min(least);
        if (w.lane == 0) w.s.top[w.warp] = most, w.s.bottom[w.warp] = least;
        cta_sync();
        const unsigned high = warp_max(w.lane < WARPS ? w.s.top[w.lane] : 0);
        const unsigned bottom = warp_min(w.lane < WARPS ? w.s.bottom[w.lane] : ~0u) + 1;
        if (high == 0) return;  // no number in the chunk
        const int shift = shift_of(high - bottom);
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            if (keys[g] >= bottom) count_atomically(&w.s.histogram[(high - keys[g]) >> shift]);
        cta_sync();
        find(w, k);
        if (w.s.inside == 0) return;  // fewer than k such groups
        w.low = edge_of(high, w.s.bin, shift, bottom);
        admit_from(w, w.low);
    }

    // 2: the chunk's elements that pass enter the list, in order. False, and nothing has happened, if they do not fit.
    DEVICE bool append(Worker& w, const unsigned* words, unsigned pass, int start, unsigned capacity) {
        unsigned packed[PACKS], all[PACKS], total = 0;
#pragma unroll
        for (int p = 0; p < PACKS; p++) packed[p] = 0;
#pragma unroll
        for (int j = 0; j < F::VECTORS; j++)
            packed[j / PER_WORD] |= (unsigned)__popc(pass >> (j * F::WIDTH) & ((1u << F::WIDTH) - 1)) << (j % PER_WORD * FIELD);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const unsigned upto = warp_prefix(packed[p], w.lane);
            all[p] = shuffle(upto, 31), packed[p] = upto - packed[p];
        }
#pragma unroll
        for (int j = 0; j < F::VECTORS; j++) total += all[j / PER_WORD] >> (j % PER_WORD * FIELD) & ((1u << FIELD) - 1);
        unsigned before;
        const unsigned more = over_warps(w, total, before);
        if (w.count + more > capacity) return false;
        unsigned place = w.count + before;
#pragma unroll
        for (int j = 0; j < F::VECTORS; j++) {
            unsigned at = place + (packed[j / PER_WORD] >> (j % PER_WORD * FIELD) & ((1u << FIELD) - 1));
#pragma unroll
            for (int i = 0; i < F::WIDTH; i++) {
                const bool enters = pass >> (j * F::WIDTH + i) & 1;
                store_if(enters, w.list + at, F::code(words, j * F::WIDTH + i), start + j * 32 * F::WIDTH + i);
                at += enters;
            }
            place += all[j / PER_WORD] >> (j % PER_WORD * FIELD) & ((1u << FIELD) - 1);
        }
        w.count += more;
        return true;
    }

    // 3: elements of the list above `border`, and the first `ties` that equal it, are the k best. 1 <= k <= count.
    DEVICE void select(Worker& w, unsigned k, unsigned& border, unsigned& ties) {
        cta_sync();
        unsigned most = 0;
#pragma unroll 1
        for (unsigned i = w.tid; i < w.count; i += THREADS) {
            unsigned key = w.list[i].x;
            if (i >= w.keyed) w.list[i].x = key = F::key(key);
            most = larger(most, key);
        }
        w.keyed = w.count;
        most = warp_max(most);
        if (w.lane == 0) w.s.top[w.warp] = most;
        if (w.tid == 0) w.s.few_count = 0;
        cta_sync();
        unsigned high = warp_max(w.lane < WARPS ? w.s.top[w.lane] : 0), bottom = w.low;
#pragma unroll 1
        for (;;) {
            const int shift = shift_of(high - bottom);
#pragma unroll 1
            for (unsigned i = w.tid; i < w.count; i += THREADS) {
                const unsigned key = w.list[i].x;
                if (key >= bottom && key <= high) count_atomically(&w.s.histogram[(high - key) >> shift]);
            }
            cta_sync();
            find(w, k);
            const unsigned bin = w.s.bin, inside = w.s.inside;
            k -= w.s.above;
            if (shift == 0) {
                border = high - bin, ties = k;
                return;
            }
            bottom = edge_of(high, bin, shift, bottom), high -= bin << shift;
            if (inside == k) {
                border = bottom - 1, ties = 0;
                return;
            }
            if (inside <= FEW) break;
        }
#pragma unroll 1
        for (unsigned i = w.tid; i < w.count; i += THREADS) {
            const unsigned key = w.list[i].x;
            if (key >= bottom && key <= high) w.s.few[count_atomically(&w.s.few_count)] = key;
        }
        cta_sync();
        const unsigned few = w.s.few_count, key = w.lane < few ? w.s.few[w.lane] : KEY_NONE;
        unsigned over = 0, reach = 0;
#pragma unroll 1
        for (unsigned i = 0; i < few; i++) {
            const unsigned other = shuffle(key, i);
            over += other > key, reach += other >= key;
        }
        const unsigned hit = vote(w.lane < few && over < k && k <= reach);
        const int source = __ffs((int)hit) - 1;
        border = shuffle(key, source), ties = k - shuffle(over, source);
    }

    // Move the chosen elements to the front of the list; they stay in order.
    DEVICE void compact(Worker& w, unsigned border, unsigned ties) {
        unsigned over_base = 0, tie_base = 0;
#pragma unroll 1
        for (unsigned base = 0; base < w.count; base += 2 * THREADS) {
            const unsigned first = base + 2 * w.tid;
            uint4 pair = make_uint4(0, 0, 0, 0);
            if (first < w.count) pair = *(const uint4*)(w.list + first);
            if (first + 1 >= w.count) pair.z = KEY_NONE;
            const bool over0 = pair.x > border, over1 = pair.z > border;
            const bool tie0 = pair.x == border && border, tie1 = pair.z == border && border;
            const unsigned packed = over0 + over1 + ((tie0 + tie1) << 16), upto = warp_prefix(packed, w.lane);
            unsigned before;
            const unsigned total = over_warps(w, shuffle(upto, 31), before);
            before += upto - packed;
            const unsigned over = over_base + (before & 0xFFFF), tie = tie_base + (before >> 16);
            // No place is behind the element it is for, and the barrier has passed since this round's were read.
            store_if(over0 || (tie0 && tie < ties), w.list + over + smaller(tie, ties), pair.x, pair.y);
            store_if(over1 || (tie1 && tie + tie0 < ties), w.list + over + over0 + smaller(tie + tie0, ties), pair.z, pair.w);
            over_base += total & 0xFFFF, tie_base += total >> 16;
        }
    }

    // Bring the cluster's lists to its first CTA, in the order of the segments. False on the others, which are done.
    DEVICE bool gather(Worker& w, int rank) {
        if (w.tid == 0) w.s.count = w.count, w.s.low = w.count ? w.low : ~0u;
        cluster_sync();
        const unsigned each = w.lane < CTAS ? load_peer(&w.s.count, w.lane) : 0;
        const unsigned low = w.lane < CTAS ? load_peer(&w.s.low, w.lane) : ~0u;
        const unsigned place = warp_sum(w.lane < rank ? each : 0);
        if (rank != 0) {
#pragma unroll 1
            for (unsigned i = w.tid; i < w.count; i += THREADS) {
                uint2 item = w.list[i];
                if (i >= w.keyed) item.x = F::key(item.x);
                store_peer(w.list + place + i, 0, item);
            }
        } else {
#pragma unroll 1
            for (unsigned i = w.keyed + w.tid; i < w.count; i += THREADS) w.list[i].x = F::key(w.list[i].x);
        }
        cluster_sync();
        w.count = w.keyed = warp_sum(each), w.low = warp_min(low);
        return rank == 0;
    }

    // Elements of the row that are visible. Of compact rows they are a prefix too: block ids ascend, -1 after them.
    DEVICE int visible_elements(Worker& w, const Arguments& a, unsigned row) {
        const int seen = seen_by(a, row);
        if (a.blocks == nullptr) {
            const int lanes = seen < a.lanes ? seen : a.lanes;
            return F::WIDTH == 1 ? (int)(((u64)lanes + a.block_size - 1) / a.block_size) : lanes;
        }
        unsigned sum = 0;
#pragma unroll 1
        for (int i = w.tid; i < a.block_count; i += THREADS) {
            const int block = a.blocks[(u64)row * a.block_count + i];
            const long long left = seen - (long long)block * a.block_size;
            if (block >= 0 && left > 0) sum += left < a.block_size ? (int)left : a.block_size;
        }
        unsigned before;
        return (int)over_warps(w, warp_sum(sum), before);
    }
};

// A lane is the i-th of its row that was chosen.
template <class F>
DEVICE void write(const Arguments& a, unsigned row, int i, unsigned lane) {
    const u64 to = (u64)row * a.k + i, from = (u64)row * a.lanes + lane;
    a.out[to] = entry_of(a, row, lane);
    // From memory: of NaN and of -0 a key does not tell the bits.
    if (a.chosen == nullptr) return;
    if (F::SIZE == 4) ((unsigned*)a.chosen)[to] = ((const unsigned*)a.scores)[from];
    else ((unsigned short*)a.chosen)[to] = ((const unsigned short*)a.scores)[from];
}

// One row, or a CTA's share of it.
template <class F, int THREADS, int CTAS, bool PREFETCH>
DEVICE void top_k(const Arguments& a, unsigned ctas, Shared<THREADS / 32>& shared, uint2* list) {
    typedef Worker<F, THREADS, CTAS> W;
    typedef Segment<F> S;
    const unsigned row = block_index() / CTAS, k = a.k;
    const int rank = block_index() % CTAS;
    W w = W::make(shared, list);
    const S segment = S::make(a, row, ctas / CTAS, rank, CTAS);
    const int begin = w.warp * 32 * F::VECTORS + w.lane;
    uint4 next[F::VECTORS];
#pragma unroll
    for (int j = 0; j < F::VECTORS; j++) next[j] = S::load(segment, begin + j * 32);  // before `visible` is known
    W::clear_histogram(w);
    const int visible = W::visible_elements(w, a, row);
    if (visible <= a.k) {
#pragma unroll 1
        for (int i = rank * THREADS + w.tid; i < a.k; i += CTAS * THREADS) {
            if (i < visible) write<F>(a, row, i, i);
            else a.out[(u64)row * k + i] = -1;
        }
        return;
    }
    const int last = visible < segment.last ? visible : segment.last;
    bool loaded = true, gathered = CTAS == 1;
    int part = -1;  // of a chunk that did not fit at once, the warps whose elements come next
#pragma unroll 1
    for (int base = 0;;) {
        const int start = S::start(segment, base + begin);
        const bool more = S::start(segment, base) < last;
        if (more) {
            unsigned words[F::WORDS], pass = 0;
            if (!loaded) {
#pragma unroll
                for (int j = 0; j < F::VECTORS; j++) next[j] = S::load(segment, base + begin + j * 32);
            }
            S::decode(segment, next, start, visible, words);
            const bool inside = S::start(segment, base) >= segment.first && S::start(segment, base + W::CHUNK_LINES) <= last;
            if (PREFETCH && S::start(segment, base + W::CHUNK_LINES) < last) {
#pragma unroll
                for (int j = 0; j < F::VECTORS; j++)
                    next[j] = S::load(segment, base + W::CHUNK_LINES + begin + j * 32);
            }
            unsigned valid = ~0u >> (32 - F::ITEMS);
            if (!inside) {
                valid = 0;
#pragma unroll
                for (int i = 0; i < F::ITEMS; i++) {
                    const int at = start + i / F::WIDTH * 32 * F::WIDTH + i % F::WIDTH;
                    if (at >= segment.first && at < last) valid |= 1u << i;
                    else F::blank(words, i);
                }
            }
            if (base == 0 && w.everything) {
                cta_sync();  // the histogram is clear
                const int elements = last - segment.first < W::CHUNK ? last - segment.first : W::CHUNK;
                if (elements >= 2 * (long long)k) W::first_threshold(w, words, elements, k);
            }
            pass = w.everything ? valid : F::pass(words, w.threshold);
            if (part >= 0 && w.warp / (W::WARPS / W::PARTS) != part) pass = 0;
            if (W::append(w, words, pass, start, a.capacity)) {
                if (part < 0 || ++part == W::PARTS) base += W::CHUNK_LINES, part = -1;
                loaded = PREFETCH && part < 0 && loaded;
                continue;
            }
            loaded = false;
            if (part < 0 && W::PARTS > 1) {  // part by part: then the list holds over k where one does not fit
                part = 0;
                continue;
            }
        } else if (!gathered && w.count <= (unsigned)a.capacity / CTAS) {
            if (!W::gather(w, rank)) return;
            gathered = true;
        }
        // The row is read, or the list must be cut to its k best before more fits.
        const bool done = !more && gathered;
        unsigned border, ties;
        W::select(w, k, border, ties);
        W::compact(w, border, ties);
        if (done) break;
        w.count = w.keyed = k;
        w.low = ties ? border : border + 1;
        W::admit_from(w, border + 1);  // what ties with the k-th comes after it
    }
    cta_sync();
#pragma unroll 1
    for (int i = w.tid; i < a.k; i += THREADS) write<F>(a, row, i, w.list[i].y);
}

// Name (of the shape of work, the format and the CTAs of a row), format, threads, CTAs, resident CTAs, prefetch.
//   small: many rows, several on an SM
//   stream: rows that pass by in chunks
//   long: 32,768 elements in flight
#define TOPK_KERNELS                                      \
    TOPK_KERNEL(small_f32_1, F32<4>, 256, 1, 4, true)     \
    TOPK_KERNEL(small_bf16_1, BF16<4>, 256, 1, 4, false)  \
    TOPK_KERNEL(stream_f32_1, F32<4>, 512, 1, 2, true)    \
    TOPK_KERNEL(stream_f32_2, F32<4>, 512, 2, 2, true)    \
    TOPK_KERNEL(stream_bf16_1, BF16<2>, 512, 1, 2, true)  \
    TOPK_KERNEL(long_bf16_1, BF16<4>, 1024, 1, 1, false)  \
    TOPK_KERNEL(long_bf16_2, BF16<4>, 1024, 2, 1, false)  \
    TOPK_KERNEL(long_bf16_4, BF16<4>, 1024, 4, 1, false)  \
    TOPK_KERNEL(stream_blocks_1, Blocks, 512, 1, 2, true) \
    TOPK_KERNEL(stream_blocks_2, Blocks, 512, 2, 2, true) \
    TOPK_KERNEL(stream_blocks_4, Blocks, 512, 4, 2, true)

#ifndef TOPK_EMULATED
#define TOPK_KERNEL(NAME, FORMAT, THREADS, CTAS, RESIDENT, PREFETCH)                                                \
    extern "C" __global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, RESIDENT)                   \
        NAME(const void* scores, const int* visible, const int* blocks, const int* row_seq, int* out, void* chosen, \
             int lanes, int k, int block_size, int block_count, int capacity) {                                    \
        extern __shared__ __align__(16) uint2 list[];                                                              \
        __shared__ __align__(16) Shared<THREADS / 32> shared;                                                      \
        const Arguments a{scores, visible, blocks, row_seq, out, chosen, lanes, k, block_size, block_count, capacity}; \
        top_k<FORMAT, THREADS, CTAS, PREFETCH>(a, gridDim.x, shared, list);                                        \
    }
TOPK_KERNELS
#endif
