// Exact top-k of rows: one read of the scores, bit-equal to the reference, ties to the lower index, ids ascending.
//
// A CTA, or a cluster of CTAs that cut the row into segments, serves a row:
//
//   1. The first chunk stays in registers. Elements form groups of a few neighbours; the k-th largest of the groups'
//      maxima is at most the k-th largest element, so its histogram bin's lower edge is a threshold that loses nothing
//      and lets few elements past (about 1.1 k of random scores).
//   2. Elements at or above the threshold enter a list in shared memory, in index order (a warp's segment is contiguous,
//      places come from prefix sums). When the list would overflow, it is cut to its exact k best first, and from then
//      on only strictly larger elements enter: ties belong to the lower index. The list holds k + one chunk, so the
//      second attempt always fits: no input overflows.
//   3. The k-th largest of the list by histograms of 2048 bins over the range of keys that is left, the last few by
//      comparison; then the list is compacted to the result, still in index order.
//
// Nothing depends on the order in which threads run: atomics only count. Keys are order-preserving images of the values
// (NaN is 1, below every number; -0 and +0 have one image), so ties and NaN need no code of their own.
//
// TOPK_EMULATED replaces the device layer for tests without a GPU (tests/support/cuda_emulator.h).

#ifndef TOPK_EMULATED
#define DEVICE static __device__ __forceinline__

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

DEVICE uint4 load16(const void* address) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
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
DEVICE void store_peer(unsigned* local, unsigned rank, unsigned value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(peer(local, rank)), "r"(value) : "memory");
}
#endif

typedef unsigned long long u64;

constexpr int BINS = 2048;
constexpr int BIN_BITS = 11;
constexpr int FEW = 32;
constexpr int GROUPS = 4;  // per thread and chunk
constexpr unsigned KEY_NAN = 1;
constexpr unsigned KEY_NONE = 0;

// What the launch gives; rows are contiguous.
struct Arguments {
    const void* scores;
    const int* visible;
    const int* blocks;  // [rows, block_count] of compact rows, or null
    int* out;           // [rows, k]
    int lanes;          // elements of a row in memory
    int k;
    int block_size;
    int block_count;
    int capacity;  // of the list: a multiple of 4, at least k + a chunk, and the cluster's size times k
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

// fp32 elements, keys of 32 bits.
struct F32 {
    static constexpr int VECTORS = 4, WIDTH = 4, SIZE = 4;
    static constexpr unsigned KEY_LOWEST = 0x007FFFFF;  // of -infinity

    DEVICE unsigned key(float value) {
        if (value != value) return KEY_NAN;
        unsigned bits = as_bits(value);
        bits = bits == 0x80000000u ? 0 : bits;
        return bits ^ (((unsigned)((int)bits >> 31)) | 0x80000000u);
    }
    DEVICE float value_of(unsigned key) { return as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }
    DEVICE float element(const uint4& v, int i) {
        return as_float(i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w);
    }
    // The elements of a 16-byte line that lie in [first, last); the line starts at element `at`.
    DEVICE uint4 load_part(const char* row, int at, int first, int last) {
        unsigned word[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + i >= first && at + i < last) word[i] = ((const unsigned*)row)[at + i];
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
};

// bf16 elements, keys of 16 bits.
struct BF16 {
    static constexpr int VECTORS = 2, WIDTH = 8, SIZE = 2;
    static constexpr unsigned KEY_LOWEST = 0x007F;

    DEVICE unsigned key(float value) {
        unsigned wide = F32::key(value);
        return wide == KEY_NAN ? KEY_NAN : wide >> 16;
    }
    DEVICE float value_of(unsigned key) { return as_float((key & 0x8000u ? key ^ 0x8000u : ~key) << 16); }
    DEVICE float element(const uint4& v, int i) {
        unsigned word = i / 2 == 0 ? v.x : i / 2 == 1 ? v.y : i / 2 == 2 ? v.z : v.w;
        return as_float(i % 2 ? word & 0xFFFF0000u : word << 16);
    }
    DEVICE uint4 load_part(const char* row, int at, int first, int last) {
        unsigned word[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (at + i >= first && at + i < last) word[i / 2] |= (unsigned)((const unsigned short*)row)[at + i] << (16 * (i % 2));
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
};

// Blocks of bf16 elements: the value of one is its maximum, no more than the largest finite number.
struct Blocks : BF16 {
    static constexpr int VECTORS = 4, WIDTH = 1;

    DEVICE float capped(float value) {
        const float most = as_float(0x7F7F0000u);
        return value > most ? most : value;  // NaN stays
    }
    DEVICE float most_of(const uint4& v) {
        float most = BF16::element(v, 0);
#pragma unroll
        for (int i = 1; i < 8; i++) most = fmaxf(most, BF16::element(v, i));  // a NaN loses
        return most;
    }
};

// ---- reading ---------------------------------------------------------------------------------------------------------

// The segment of a row that a CTA reads: elements [first, last), of which those below `visible` exist.
template <class F>
struct Segment {
    const char* row;   // first element
    const char* base;  // the 16-byte line it lies in (for blocks: the row)
    int skew;          // elements of that line before the row
    int block_size;
    int first, last;
    int lanes;  // elements in memory, for blocks: of the row

    DEVICE Segment make(const Arguments& a, unsigned row_index, int rank, int ctas) {
        Segment s;
        s.row = (const char*)a.scores + (u64)row_index * a.lanes * F::SIZE;
        s.base = (const char*)((u64)s.row & ~(u64)15);
        s.skew = (int)(s.row - s.base) / F::SIZE;
        s.block_size = a.block_size;
        s.lanes = a.lanes;
        const int lines = (int)(((u64)a.lanes + s.skew + F::WIDTH - 1) / F::WIDTH);
        const int share = ((lines + ctas - 1) / ctas + 31) / 32 * 32;
        const u64 from = (u64)share * rank * F::WIDTH, to = from + (u64)share * F::WIDTH, end = (u64)a.lanes + s.skew;
        s.first = (int)(from < (u64)s.skew ? 0 : (from < end ? from : end) - s.skew);
        s.last = (int)((to < end ? to : end) - s.skew);
        return s;
    }
    // Element that line `line` of the segment starts with; may lie before the segment.
    DEVICE int start(const Segment& s, int line) { return (s.first + s.skew) / F::WIDTH * F::WIDTH - s.skew + line * F::WIDTH; }
    DEVICE uint4 load(const Segment& s, int line) {
        const int at = start(s, line);
        if (at >= s.first && at + F::WIDTH <= s.last) return load16(s.base + (u64)(at + s.skew) * F::SIZE);
        return F::load_part(s.row, at, s.first, s.last);
    }
    DEVICE float value(const Segment&, const uint4& v, int, int i) { return F::element(v, i); }
    DEVICE int lines_of_chunk(int threads) { return threads * F::VECTORS; }
};

template <>
struct Segment<Blocks> {
    const char* row;
    int block_size;
    int first, last;  // in blocks
    int whole;        // blocks that lie wholly in memory
    bool fast;        // a block is one aligned line

    DEVICE Segment make(const Arguments& a, unsigned row_index, int rank, int ctas) {
        Segment s;
        s.row = (const char*)a.scores + (u64)row_index * a.lanes * 2;
        s.block_size = a.block_size;
        s.whole = a.lanes / a.block_size;
        s.fast = a.block_size == 8 && ((u64)s.row & 15) == 0;
        const int all = s.whole + (a.lanes % a.block_size != 0), share = ((all + ctas - 1) / ctas + 31) / 32 * 32;
        const u64 from = (u64)share * rank, to = from + share;
        s.first = (int)(from < (u64)all ? from : (u64)all);
        s.last = (int)(to < (u64)all ? to : (u64)all);
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
        for (int i = 0; i < s.block_size; i++) {
            const float value = as_float((unsigned)((const unsigned short*)at)[i] << 16);
            most = i == 0 ? value : fmaxf(most, value);
        }
        return make_uint4(as_bits(most), 0, 0, 0);
    }
    DEVICE float value(const Segment& s, const uint4& v, int block, int visible) {
        if (block == visible - 1) return as_float(0x7F800000u);
        return Blocks::capped(s.fast ? Blocks::most_of(v) : as_float(v.x));
    }
};

// ---- prefix sums and the bin of the k-th element ---------------------------------------------------------------------

DEVICE unsigned warp_prefix(unsigned value, int lane) {  // inclusive
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
        const unsigned other = shuffle_up(value, by);
        value += lane >= by ? other : 0;
    }
    return value;
}

// One CTA at work on a row. `phase` alternates between two arrays of warp sums, so that one barrier is enough.
template <class F, int THREADS, int CTAS>
struct Worker {
    static constexpr int WARPS = THREADS / 32;
    static constexpr int ITEMS = F::VECTORS * F::WIDTH;
    static constexpr int FIELD = 32 / F::VECTORS;  // bits of a packed count; a warp's line holds at most 32 * WIDTH
    static constexpr int CHUNK_LINES = THREADS * F::VECTORS;

    Shared<WARPS>& s;
    unsigned* keys;
    unsigned* ids;
    const int capacity;
    const int tid, lane, warp;
    int phase;
    unsigned count;      // items in the list
    unsigned low;        // no key in the list is below
    unsigned top;        // largest key this thread put there
    float threshold;     // elements at or above may enter,
    bool everything;     // or all, NaN included

    DEVICE Worker make(Shared<WARPS>& s, unsigned* list, int capacity) {
        const int tid = thread_index();
        return Worker{s, list, list + capacity, capacity, tid, tid & 31, tid >> 5, 0, 0, KEY_NAN, 0, 0.0f, true};
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
        uint4* bins = (uint4*)w.s.histogram;
        for (int i = w.tid; i < BINS / 4; i += THREADS) bins[i] = make_uint4(0, 0, 0, 0);
    }

    DEVICE int shift_of(unsigned span) {
        const int bits = 32 - __clz((int)span);
        return bits > BIN_BITS ? bits - BIN_BITS : 0;
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
            int i = 0;
#pragma unroll
            for (int j = 0; j < EACH - 1; j++)
                if (i == j && k > before + bins[j]) before += bins[j], i++;
            unsigned inside = bins[0];
#pragma unroll
            for (int j = 1; j < EACH; j++) inside = i == j ? bins[j] : inside;
            w.s.bin = w.tid * EACH + i, w.s.above = before, w.s.inside = inside;
        }
        clear_histogram(w);
        cta_sync();
    }

    DEVICE void admit_from(Worker& w, unsigned key) {
        w.everything = key <= KEY_NAN;
        w.threshold = key <= F::KEY_LOWEST ? as_float(0xFF800000u) : F::value_of(key);
    }

    // ---- 1: a threshold from the maxima of groups --------------------------------------------------------------------

    DEVICE void first_threshold(Worker& w, const float* values, unsigned valid, unsigned k) {
        constexpr int EACH = ITEMS / GROUPS;
        unsigned keys[GROUPS], most = 0, least = ~0u;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            float best = as_float(0x7FC00000u);
#pragma unroll
            for (int i = g * EACH; i < g * EACH + EACH; i++) best = valid >> i & 1 ? fmaxf(best, values[i]) : best;
            keys[g] = best == best ? F::key(best) : KEY_NONE;
            most = larger(most, keys[g]);
            least = keys[g] ? smaller(least, keys[g]) : least;
        }
        most = warp_max(most), least = warp_min(least);
        if (w.lane == 0) w.s.top[w.warp] = most, w.s.bottom[w.warp] = least;
        cta_sync();
        const unsigned high = warp_max(w.lane < WARPS ? w.s.top[w.lane] : 0);
        const unsigned bottom = warp_min(w.lane < WARPS ? w.s.bottom[w.lane] : ~0u);
        if (high == 0) return;  // no number in the chunk
        const int shift = shift_of(high - bottom);
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            if (keys[g]) count_atomically(&w.s.histogram[(high - keys[g]) >> shift]);
        cta_sync();
        find(w, k);
        if (w.s.inside == 0) return;  // fewer than k groups
        w.low = edge(high, w.s.bin, shift, bottom);
        admit_from(w, w.low);
    }

    // Smallest key of a bin, no less than `bottom`.
    DEVICE unsigned edge(unsigned high, unsigned bin, int shift, unsigned bottom) {
        const unsigned depth = (bin << shift) + ((1u << shift) - 1);
        return depth >= high ? bottom : larger(bottom, high - depth);
    }

    // ---- 2: the list -------------------------------------------------------------------------------------------------

    DEVICE void append(Worker& w, const Segment<F>& segment, int line, const float* values, unsigned valid, unsigned k) {
        for (;;) {
            unsigned pass = 0;
#pragma unroll
            for (int i = 0; i < ITEMS; i++) pass |= (values[i] >= w.threshold ? 1u : 0u) << i;
            pass = (w.everything ? ~0u : pass) & valid;
            unsigned packed = 0;
#pragma unroll
            for (int j = 0; j < F::VECTORS; j++)
                packed |= (unsigned)__popc(pass >> (j * F::WIDTH) & ((1u << F::WIDTH) - 1)) << (j * FIELD);
            const unsigned upto = warp_prefix(packed, w.lane), all = shuffle(upto, 31), mine = upto - packed;
            unsigned total = 0;
#pragma unroll
            for (int j = 0; j < F::VECTORS; j++) total += all >> (j * FIELD) & ((1u << FIELD) - 1);
            unsigned before;
            const unsigned more = over_warps(w, total, before);
            if (w.count + more > (unsigned)w.capacity) {
                cut(w, k);
                continue;
            }
            unsigned place = w.count + before;
#pragma unroll
            for (int j = 0; j < F::VECTORS; j++) {
                unsigned at = place + (mine >> (j * FIELD) & ((1u << FIELD) - 1));
                const int start = Segment<F>::start(segment, line + j * 32);
#pragma unroll
                for (int i = 0; i < F::WIDTH; i++) {
                    if (pass >> (j * F::WIDTH + i) & 1) {
                        const unsigned key = F::key(values[j * F::WIDTH + i]);
                        w.keys[at] = key, w.ids[at] = start + i, at++;
                        w.top = larger(w.top, key);
                    }
                }
                place += all >> (j * FIELD) & ((1u << FIELD) - 1);
            }
            w.count += more;
            return;
        }
    }

    // Cut the list to its k best (it holds more). Later elements must be larger to enter.
    DEVICE void cut(Worker& w, unsigned k) {
        unsigned border, ties;
        select(w, k, border, ties);
        unsigned* keys = w.keys;
        unsigned* ids = w.ids;
        compact(w, border, ties, [keys, ids](unsigned place, unsigned key, unsigned id) { keys[place] = key, ids[place] = id; });
        w.count = k;
        w.low = ties ? border : border + 1;
        admit_from(w, border + 1);
        cta_sync();
    }

    // ---- 3: the k-th largest of the list -----------------------------------------------------------------------------

    // Elements of the list above `border`, and the first `ties` that equal it, are the k best. 1 <= k <= count.
    DEVICE void select(Worker& w, unsigned k, unsigned& border, unsigned& ties) {
        const unsigned most = warp_max(w.top);
        if (w.lane == 0) w.s.top[w.warp] = most;
        if (w.tid == 0) w.s.few_count = 0;
        cta_sync();
        unsigned high = warp_max(w.lane < WARPS ? w.s.top[w.lane] : 0), bottom = w.low;
        for (;;) {
            const int shift = shift_of(high - bottom);
            for (unsigned i = w.tid; i < w.count; i += THREADS) {
                const unsigned key = w.keys[i];
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
            bottom = edge(high, bin, shift, bottom), high -= bin << shift;
            if (inside == k) {
                border = bottom - 1, ties = 0;
                return;
            }
            if (inside <= FEW) break;
        }
        for (unsigned i = w.tid; i < w.count; i += THREADS) {
            const unsigned key = w.keys[i];
            if (key >= bottom && key <= high) w.s.few[count_atomically(&w.s.few_count)] = key;
        }
        cta_sync();
        const unsigned few = w.s.few_count, key = w.lane < few ? w.s.few[w.lane] : KEY_NONE;
        unsigned over = 0, reach = 0;
        for (unsigned i = 0; i < few; i++) {
            const unsigned other = shuffle(key, i);
            over += other > key, reach += other >= key;
        }
        const unsigned hit = vote(w.lane < few && over < k && k <= reach);
        const int source = __ffs((int)hit) - 1;
        border = shuffle(key, source), ties = k - shuffle(over, source);
    }

    // Hand the chosen elements to `take(place, key, id)` in list order.
    template <class Take>
    DEVICE void compact(Worker& w, unsigned border, unsigned ties, Take take) {
        unsigned over_base = 0, tie_base = 0;
        for (unsigned base = 0; base < w.count; base += 4 * THREADS) {
            const unsigned first = base + 4 * w.tid;
            unsigned key[4] = {0, 0, 0, 0}, id[4] = {0, 0, 0, 0}, packed = 0;
            if (first < w.count) {
                const uint4 a = *(const uint4*)(w.keys + first), b = *(const uint4*)(w.ids + first);
                key[0] = a.x, key[1] = a.y, key[2] = a.z, key[3] = a.w;
                id[0] = b.x, id[1] = b.y, id[2] = b.z, id[3] = b.w;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (first + i >= w.count) key[i] = KEY_NONE;
                packed += (key[i] > border ? 1u : 0u) + (key[i] == border && key[i] ? 1u << 16 : 0u);
            }
            const unsigned upto = warp_prefix(packed, w.lane);
            unsigned before;
            const unsigned total = over_warps(w, shuffle(upto, 31), before);
            before += upto - packed;
            unsigned over = over_base + (before & 0xFFFF), tie = tie_base + (before >> 16);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (key[i] > border) {
                    take(over + smaller(tie, ties), key[i], id[i]), over++;
                } else if (key[i] == border && key[i]) {
                    if (tie < ties) take(over + tie, key[i], id[i]);
                    tie++;
                }
            }
            over_base += total & 0xFFFF, tie_base += total >> 16;
        }
    }

    // Bring the cluster's lists to its first CTA, in the order of the segments. False on the others, which are done.
    DEVICE bool gather(Worker& w, int rank, unsigned k) {
        if (w.count > (unsigned)w.capacity / CTAS) cut(w, k);
        if (w.tid == 0) w.s.count = w.count, w.s.low = w.count ? w.low : ~0u;
        cluster_sync();
        const unsigned each = w.lane < CTAS ? load_peer(&w.s.count, w.lane) : 0;
        const unsigned low = w.lane < CTAS ? load_peer(&w.s.low, w.lane) : ~0u;
        const unsigned place = warp_sum(w.lane < rank ? each : 0);
        if (rank != 0) {
            for (unsigned i = w.tid; i < w.count; i += THREADS) {
                store_peer(w.keys + place + i, 0, w.keys[i]);
                store_peer(w.ids + place + i, 0, w.ids[i]);
            }
        }
        cluster_sync();
        if (rank != 0) return false;
        w.count = warp_sum(each), w.low = warp_min(low);
        for (unsigned i = w.tid; i < w.count; i += THREADS) w.top = larger(w.top, w.keys[i]);
        return true;
    }
};

// ---- a row -----------------------------------------------------------------------------------------------------------

// Elements of the row that are visible. Of compact rows they are a prefix too: block ids ascend, -1 after them.
template <class W>
DEVICE int visible_elements(W& w, const Arguments& a, unsigned row, bool of_blocks) {
    const int seen = a.visible[row] > 0 ? a.visible[row] : 0;
    if (a.blocks == nullptr) {
        const int lanes = seen < a.lanes ? seen : a.lanes;
        return of_blocks ? (int)(((u64)lanes + a.block_size - 1) / a.block_size) : lanes;
    }
    unsigned sum = 0;
    for (int i = w.tid; i < a.block_count; i += W::WARPS * 32) {
        const int block = a.blocks[(u64)row * a.block_count + i];
        const long long left = seen - (long long)block * a.block_size;
        if (block >= 0 && left > 0) sum += left < a.block_size ? (int)left : a.block_size;
    }
    unsigned before;
    return (int)W::over_warps(w, warp_sum(sum), before);
}

DEVICE int entry_of(const Arguments& a, unsigned row, int lane) {
    if (a.blocks == nullptr) return lane;
    return a.blocks[(u64)row * a.block_count + lane / a.block_size] * a.block_size + lane % a.block_size;
}

template <class F, int THREADS, int CTAS>
DEVICE void top_k(const Arguments& a, Shared<THREADS / 32>& shared, unsigned* list) {
    typedef Worker<F, THREADS, CTAS> W;
    constexpr bool OF_BLOCKS = F::WIDTH == 1;
    const unsigned row = block_index() / CTAS, k = a.k;
    const int rank = block_index() % CTAS;
    W w = W::make(shared, list, a.capacity);
    const Segment<F> segment = Segment<F>::make(a, row, rank, CTAS);
    const int begin = w.warp * 32 * F::VECTORS + w.lane;
    uint4 next[F::VECTORS];
#pragma unroll
    for (int j = 0; j < F::VECTORS; j++) next[j] = Segment<F>::load(segment, begin + j * 32);
    W::clear_histogram(w);
    const int visible = visible_elements(w, a, row, OF_BLOCKS);
    int* out = a.out + (u64)row * k;
    if (visible <= a.k) {
        for (int i = rank * THREADS + w.tid; i < a.k; i += CTAS * THREADS) out[i] = i < visible ? entry_of(a, row, i) : -1;
        return;
    }
    const int last = visible < segment.last ? visible : segment.last;
    for (int base = 0; Segment<F>::start(segment, base) < last; base += W::CHUNK_LINES) {
        const int line = base + begin;
        uint4 now[F::VECTORS];
        float values[W::ITEMS];
        unsigned valid = 0;
#pragma unroll
        for (int j = 0; j < F::VECTORS; j++) now[j] = next[j];
        if (Segment<F>::start(segment, base + W::CHUNK_LINES) < last) {
#pragma unroll
            for (int j = 0; j < F::VECTORS; j++) next[j] = Segment<F>::load(segment, line + W::CHUNK_LINES + j * 32);
        }
#pragma unroll
        for (int j = 0; j < F::VECTORS; j++) {
            const int start = Segment<F>::start(segment, line + j * 32);
#pragma unroll
            for (int i = 0; i < F::WIDTH; i++) {
                values[j * F::WIDTH + i] = Segment<F>::value(segment, now[j], OF_BLOCKS ? start : 0, OF_BLOCKS ? visible : i);
                valid |= (start + i >= segment.first && start + i < last ? 1u : 0u) << (j * F::WIDTH + i);
            }
        }
        if (base == 0) {
            cta_sync();  // the histogram is clear
            if (last - segment.first >= 2 * a.k) W::first_threshold(w, values, valid, k);
        }
        W::append(w, segment, line, values, valid, k);
    }
    if (CTAS > 1 && !W::gather(w, rank, k)) return;
    unsigned border, ties;
    W::select(w, k, border, ties);
    W::compact(w, border, ties, [&a, out, row](unsigned place, unsigned, unsigned id) { out[place] = entry_of(a, row, id); });
}

#ifndef TOPK_EMULATED
#ifndef TOPK_THREADS
#define TOPK_THREADS 256
#endif
#define TOPK_KERNEL(NAME, FORMAT, CTAS)                                                                             \
    extern "C" __global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(TOPK_THREADS, 1024 / TOPK_THREADS)   \
        NAME(const void* scores, const int* visible, const int* blocks, int* out, int lanes, int k, int block_size, \
             int block_count, int capacity) {                                                                      \
        extern __shared__ __align__(16) unsigned list[];                                                           \
        __shared__ __align__(16) Shared<TOPK_THREADS / 32> shared;                                                 \
        const Arguments a{scores, visible, blocks, out, lanes, k, block_size, block_count, capacity};              \
        top_k<FORMAT, TOPK_THREADS, CTAS>(a, shared, list);                                                        \
    }

TOPK_KERNEL(topk_f32_1, F32, 1)
TOPK_KERNEL(topk_f32_2, F32, 2)
TOPK_KERNEL(topk_f32_4, F32, 4)
TOPK_KERNEL(topk_f32_8, F32, 8)
TOPK_KERNEL(topk_bf16_1, BF16, 1)
TOPK_KERNEL(topk_bf16_2, BF16, 2)
TOPK_KERNEL(topk_bf16_4, BF16, 4)
TOPK_KERNEL(topk_bf16_8, BF16, 8)
TOPK_KERNEL(topk_blocks_1, Blocks, 1)
TOPK_KERNEL(topk_blocks_4, Blocks, 4)
#endif
