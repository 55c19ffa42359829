// The decoder's attention to encoder states themselves, instead of keys and values that are made of them.
//
// A query that is multiplied by the weights of its head's keys can be compared with encoder states; and the weighted
// states, multiplied by the weights of the head's values, are the head's output. Both products are in
// `states_attention.py`. The states are the same for all layers and heads, so that this kernel reads, in every layer,
// half of what keys and values would take.
//
// One block attends from all heads of one token to some splits of the encoder states of its window, one after another, 16
// states at a time: the more rows there are, the more splits a block has. On an H200 with large-v3, a block takes 8 us to
// begin and to end, and 25 us for a split. Each split has a result of its own, which is the same whatever block computes it.
//
// Each warp has a part of the states' numbers: it adds up its part of the scores, and once the warps' parts are added and
// the weights of the softmax are known, its part of the weighted states. So each state is read from memory once, and from
// shared memory twice. Three tiles of states are in work between two barriers: the scores of one, the softmax of the one
// before it, and the weighted states of the one before that.
//
// Source of the idea: DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1.2, where weights are absorbed in the same way.
//
// The names in capitals come from the compiler's command line:
// D width, HEADS, SPLITS and SPLIT_STATES of the states, WARPS, STAGES of tiles in shared memory, SHARED_BYTES, IS_BF16.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int THREADS = 32 * WARPS;
constexpr int PART = D / WARPS;                   // numbers of a state that a warp has
constexpr int BLOCKS = PART / 16;                 // of 16 numbers each
constexpr int HEAD_TILES = (HEADS + 7) / 8;       // of 8 heads each
constexpr int PADDED_HEADS = 8 * HEAD_TILES;
constexpr int TILE = 16;                          // states that are loaded at a time
constexpr int PITCH = D + 8;                      // 16-bit numbers between states in shared memory: other banks
constexpr int SCORE_PITCH = TILE + 4;             // floats between heads
constexpr int SCORE_FLOATS = PADDED_HEADS * SCORE_PITCH;  // of one warp
constexpr int WEIGHT_PITCH = TILE + 8;            // 16-bit numbers between heads
constexpr float LOWEST = -1e30f;
constexpr float HEADROOM = 8.0f;                  // how far scores, in powers of two, may lie above those weighed with
constexpr int SPLIT_TILES = SPLIT_STATES / TILE;
constexpr int WEIGHERS = PADDED_HEADS / 4;        // warps that compute the softmax, of four heads each

static_assert(PART % 16 == 0 && WARPS * PART == D, "a warp has blocks of 16 numbers");
static_assert(WEIGHERS < WARPS, "the last warp loads tiles meanwhile");
static_assert(SPLIT_STATES % TILE == 0, "a split has whole tiles");

struct Arguments {
    const u16 *queries;  // (rows * n_tokens, HEADS, D)
    const u16 *states;   // (slots, n_states, D)
    const i64 *slots;    // (rows)
    const int *lengths;  // encoder states of each slot
    u16 *partials;       // (rows * n_tokens, SPLITS, HEADS, D): the weighted mean of each split
    float *stats;        // (rows * n_tokens, SPLITS, HEADS, 2): what the weights are relative to, and their sum
    int n_tokens, n_states;
    int n_block_splits;  // of a block
    float scale;
};

__device__ __forceinline__ u32 shared_address(const void *pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void load_matrices(u32 (&out)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(address));
}

__device__ __forceinline__ void load_two_matrices(u32 (&out)[2], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(out[0]), "=r"(out[1]) : "r"(address));
}

__device__ __forceinline__ void load_transposed(u32 (&out)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(address));
}

__device__ __forceinline__ void multiply_add(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if IS_BF16
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u16 to_16_bits(float x) {
    u16 out;
#if IS_BF16
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
#endif
    return out;
}

__device__ __forceinline__ u32 pair(float low, float high) { return u32(to_16_bits(low)) | u32(to_16_bits(high)) << 16; }

// Rows become columns, of 8 x 8 numbers that a warp holds.
__device__ __forceinline__ u32 transposed(u32 x) {
    u32 out;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(x));
    return out;
}

__device__ __forceinline__ float power_of_2(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// Of 8 lanes.
__device__ __forceinline__ float largest(float x) {
#pragma unroll
    for (int distance = 4; distance; distance /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

__device__ __forceinline__ float total(float x) {
#pragma unroll
    for (int distance = 4; distance; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

__device__ __forceinline__ void begin_barrier(u32 barrier) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

// Say how many bytes will arrive.
__device__ __forceinline__ void expect(u32 barrier, u32 n_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes) : "memory");
}

// Copy `D` numbers to shared memory, in the background.
__device__ __forceinline__ void copy_row(u16 *to, const u16 *from, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(D * 2), "r"(barrier) : "memory");
}

__device__ __forceinline__ void wait_until_loaded(u32 barrier, u32 parity) {
    u32 is_there;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_there) : "r"(barrier), "r"(parity) : "memory");
    } while (!is_there);
}

// Until it has written what this kernel reads. The next kernel is not set up meanwhile, as others do it: its blocks would
// all wait on the few multiprocessors that are free first.
__device__ __forceinline__ void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// What a block has in shared memory.
struct Shared {
    u16 tiles[STAGES][TILE][PITCH];
    union {
        float scores[2][WARPS][SCORE_FLOATS];
        u16 queries[HEADS][PITCH];  // before there are scores
    };
    u16 weights[2][PADDED_HEADS * WEIGHT_PITCH];
    float shrinks[2][PADDED_HEADS];
    float inverses[2][PADDED_HEADS];  // of the sums of weights, of this split and the one before
    int shrunk[2];                    // the last tile for which sums shrink
    u64 loaded[STAGES], query_loaded;
};

static_assert(sizeof(Shared) <= SHARED_BYTES, "the launch gives this much");

struct Block {
    Shared &shared;
    const u16 *states;  // of the slot
    int begin, end, n_tiles;
    float scale;
    int warp, lane, group, place;
    u32 query[BLOCKS][HEAD_TILES][2];
    float sum[BLOCKS][HEAD_TILES][4];

    // One warp begins to load a tile. The last state stands in for those after the end.
    __device__ __forceinline__ void load(int index) {
        const u32 barrier = shared_address(&shared.loaded[index % STAGES]);
        if (lane == 0) expect(barrier, TILE * D * 2);
        __syncwarp();
        if (lane < TILE) {
            const i64 state = min(begin + index * TILE + lane, end - 1);
            copy_row(shared.tiles[index % STAGES][lane], states + state * D, barrier);
        }
    }

    // One warp loads the queries of all heads, and each takes its part of them.
    __device__ __forceinline__ void load_queries(const u16 *queries, bool is_loader) {
        const u32 barrier = shared_address(&shared.query_loaded);
        if (is_loader) {
            if (lane == 0) expect(barrier, HEADS * D * 2);
            __syncwarp();
            if (lane < HEADS) copy_row(shared.queries[lane], queries + lane * D, barrier);
        }
        wait_until_loaded(barrier, 0);
#pragma unroll
        for (int n = 0; n < HEAD_TILES; ++n) {
            const int head = 8 * n + lane % 8;
            const u32 address = shared_address(&shared.queries[min(head, HEADS - 1)][warp * PART + lane / 8 % 2 * 8]);
#pragma unroll
            for (int index = 0; index < BLOCKS; ++index) {
                load_two_matrices(query[index][n], address + 32 * index);
                if (8 * n + group >= HEADS) query[index][n][0] = query[index][n][1] = 0;
            }
        }
    }

    // Until a tile is there.
    __device__ __forceinline__ void wait(int index) {
        wait_until_loaded(shared_address(&shared.loaded[index % STAGES]), index / STAGES % 2);
    }

    // This warp's part of the scores: states by heads.
    __device__ __forceinline__ void score(int index) {
        float part[HEAD_TILES][4] = {};
        const u32 address = shared_address(&shared.tiles[index % STAGES][lane % 16][warp * PART + lane / 16 * 8]);
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            u32 a[4];
            load_matrices(a, address + 32 * block);
#pragma unroll
            for (int n = 0; n < HEAD_TILES; ++n) multiply_add(part[n], a, query[block][n][0], query[block][n][1]);
        }
        float *own = shared.scores[index % 2][warp] + 2 * place * SCORE_PITCH + group;
#pragma unroll
        for (int n = 0; n < HEAD_TILES; ++n, own += 8 * SCORE_PITCH) {
            own[0] = part[n][0];
            own[SCORE_PITCH] = part[n][1];
            own[8] = part[n][2];
            own[SCORE_PITCH + 8] = part[n][3];
        }
    }

    // The head whose softmax this quarter of a warp computes. The scores of heads that are four apart are in different banks.
    __device__ __forceinline__ int softmax_head() const {
        return warp / 2 * 8 + warp % 2 * 2 + lane / 16 + lane / 8 % 2 * 4;
    }

    // The warps' parts are added, and the softmax goes on: a head in each quarter of a warp, two states in each lane.
    __device__ __forceinline__ void weigh(int index, float &peak, float &weight_sum) {
        const int head = softmax_head(), state = lane % 8 * 2;
        const float *source = &shared.scores[index % 2][0][head * SCORE_PITCH + state];
        float parts[2][2] = {};
#pragma unroll
        for (int other = 0; other < WARPS; ++other) {
            const float2 part = *reinterpret_cast<const float2 *>(source + other * SCORE_FLOATS);
            parts[other % 2][0] += part.x;
            parts[other % 2][1] += part.y;
        }
        const int n_there = end - begin - index * TILE - state;
        const float first = n_there > 0 ? (parts[0][0] + parts[1][0]) * scale : LOWEST;
        const float second = n_there > 1 ? (parts[0][1] + parts[1][1]) * scale : LOWEST;
        const float before = peak, top = largest(fmaxf(first, second));
        if (top > peak + HEADROOM) peak = top;
        const float first_weight = n_there > 0 ? power_of_2(first - peak) : 0.0f;
        const float second_weight = n_there > 1 ? power_of_2(second - peak) : 0.0f;
        const float shrink = power_of_2(before - peak);
        weight_sum = weight_sum * shrink + total(first_weight + second_weight);
        if (head < HEADS) {
            *reinterpret_cast<u32 *>(shared.weights[index % 2] + head * WEIGHT_PITCH + state) =
                pair(first_weight, second_weight);
            if (state == 0) shared.shrinks[index % 2][head] = shrink;
            if (state == 0 && shrink != 1.0f) shared.shrunk[index % 2] = index;
        }
    }

    // This warp's part of the weighted states: numbers by heads.
    __device__ __forceinline__ void add(int index) {
        if (shared.shrunk[index % 2] == index) {
#pragma unroll
            for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
                for (int side = 0; side < 2; ++side) {
                    const float shrink = shared.shrinks[index % 2][8 * n + 2 * place + side];
#pragma unroll
                    for (int block = 0; block < BLOCKS; ++block) {
                        sum[block][n][side] *= shrink;
                        sum[block][n][side + 2] *= shrink;
                    }
                }
        }
        u32 weight[HEAD_TILES][2];
#pragma unroll
        for (int n = 0; n < HEAD_TILES; ++n) {
            const u16 *source = shared.weights[index % 2] + (8 * n + group) * WEIGHT_PITCH + 2 * place;
            weight[n][0] = *reinterpret_cast<const u32 *>(source);
            weight[n][1] = *reinterpret_cast<const u32 *>(source + 8);
        }
        const int state = lane / 16 * 8 + lane % 8, column = warp * PART + lane / 8 % 2 * 8;
        const u32 address = shared_address(&shared.tiles[index % STAGES][state][column]);
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            u32 a[4];
            load_transposed(a, address + 32 * block);
#pragma unroll
            for (int n = 0; n < HEAD_TILES; ++n) multiply_add(sum[block][n], a, weight[n][0], weight[n][1]);
        }
    }

    __device__ __forceinline__ void clear_sums() {
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
            for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
                for (int at = 0; at < 4; ++at) sum[block][n][at] = 0.0f;
    }

    // The softmax of a split ends.
    __device__ __forceinline__ void end_softmax(int split, float *stats, float peak, float weight_sum) {
        const int head = softmax_head();
        if (head < HEADS && lane % 8 == 0) {
            stats[2 * head] = peak;
            stats[2 * head + 1] = weight_sum;
            shared.inverses[split % 2][head] = 1.0f / weight_sum;
        }
    }

    // The weighted means of a split leave, and sums begin again.
    __device__ __forceinline__ void end_sums(int split, u16 *partials) {
        const int column = warp * PART + lane % 2 * 8 + lane / 2 % 2 * 4;
#pragma unroll
        for (int n = 0; n < HEAD_TILES; ++n) {
            const float *inverses = shared.inverses[split % 2] + 8 * n + 2 * place;
            const float first = inverses[0], second = inverses[1];
            u16 *to = partials + (8 * n + group) * D + column;
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                const float(&own)[4] = sum[block][n];
                const u32 low = transposed(pair(own[0] * first, own[1] * second));
                const u32 high = transposed(pair(own[2] * first, own[3] * second));
                // Two lanes exchange halves, so that each has four numbers that lie together.
                const u32 other = __shfl_xor_sync(~0u, lane % 2 ? low : high, 1);
                const uint2 out = lane % 2 ? make_uint2(other, high) : make_uint2(low, other);
                if (8 * n + group < HEADS) *reinterpret_cast<uint2 *>(to + 16 * block) = out;
            }
        }
        clear_sums();
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) states_attention(const Arguments arguments) {
    extern __shared__ __align__(16) unsigned char memory[];
    Shared &shared = *reinterpret_cast<Shared *>(memory);

    // The tokens of a row come first: blocks that run at the same time read the same states.
    const int n_parts = (SPLITS + arguments.n_block_splits - 1) / arguments.n_block_splits;
    const int token = blockIdx.x % arguments.n_tokens, row = blockIdx.x / arguments.n_tokens / n_parts;
    const int first_split = blockIdx.x / arguments.n_tokens % n_parts * arguments.n_block_splits;
    const i64 entry = static_cast<i64>(row) * arguments.n_tokens + token;
    const i64 slot = arguments.slots[row];
    const int begin = first_split * SPLIT_STATES;
    const int end = min(begin + arguments.n_block_splits * SPLIT_STATES, arguments.lengths[slot]);
    if (begin >= end) {
        wait_for_previous_kernel();
        return;
    }

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool is_loader = warp == WARPS - 1;
    Block block{shared, arguments.states + slot * arguments.n_states * D, begin, end, (end - begin + TILE - 1) / TILE,
                arguments.scale, warp, lane, lane / 4, lane % 4};
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) begin_barrier(shared_address(&shared.loaded[stage]));
        begin_barrier(shared_address(&shared.query_loaded));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    // The weights of heads that only fill up a tile stay zero.
    for (int index = threadIdx.x; index < 2 * PADDED_HEADS * WEIGHT_PITCH; index += THREADS) {
        shared.weights[0][index] = 0;
    }
    if (threadIdx.x < 2) shared.shrunk[threadIdx.x] = -1;
    __syncthreads();
    // The states were there before the queries, and so were slots and lengths: whatever wrote them has ended, because the
    // kernel before this one, which makes the queries, allows this one only once it has waited itself.
    if (is_loader) {
        for (int index = 0; index < min(STAGES, block.n_tiles); ++index) block.load(index);
    }
    wait_for_previous_kernel();
    block.load_queries(arguments.queries + entry * HEADS * D, is_loader);
    __syncthreads();

    const bool is_weigher = warp < WEIGHERS;
    float *stats = arguments.stats + (entry * SPLITS + first_split) * HEADS * 2;
    u16 *partials = arguments.partials + (entry * SPLITS + first_split) * HEADS * D;
    float peak = LOWEST, weight_sum = 0.0f;
    int split = 0, n_left = SPLIT_TILES;  // tiles of the split that are to be weighed
    block.clear_sums();
    block.wait(0);
    block.score(0);
    for (int index = 0; index < block.n_tiles; ++index) {
        __syncthreads();
        if (is_loader && index >= 2 && index - 2 + STAGES < block.n_tiles) block.load(index - 2 + STAGES);
        if (is_weigher) {
            block.weigh(index, peak, weight_sum);
            if (n_left == 1 || index + 1 == block.n_tiles) {
                block.end_softmax(split, stats + split * HEADS * 2, peak, weight_sum);
                peak = LOWEST, weight_sum = 0.0f;
            }
        }
        if (index > 0) {
            block.add(index - 1);
            if (n_left == SPLIT_TILES) block.end_sums(split - 1, partials + (split - 1) * HEADS * D);
        }
        if (--n_left == 0) ++split, n_left = SPLIT_TILES;
        if (index + 1 < block.n_tiles) {
            block.wait(index + 1);
            block.score(index + 1);
        }
    }
    __syncthreads();
    block.add(block.n_tiles - 1);
    const int last_split = (block.n_tiles - 1) / SPLIT_TILES;
    block.end_sums(last_split, partials + last_split * HEADS * D);
}
