// One decode step of a few rows in one kernel: from tokens to logits, through all layers.
//
// One block runs on each multiprocessor. Eight warps compute; a ninth copies weights to shared memory ahead of them, and
// never waits for other blocks. So what a step waits for is the latency of its stages, while the weights arrive.
//
// Blocks pass numbers to one another through memory, without a flag or a fence: a word that is not written yet holds
// `EMPTY`, which is no number that is ever computed, and a block reads it until it holds another one. There are two copies
// of this memory. While a layer uses one of them, each writer empties its words of the other, for the next layer; and at
// the end of a layer all blocks wait for one another, so that the next layer finds the words empty.
//
// Every sum has the order of the Triton kernels beside this file, so that a row has the same bits here and there:
// products add 16 inputs at a time with the tensor cores, and the sums of a norm or a softmax follow the layouts that
// Triton chooses. `engine/cuda/row_step.py` compares the two before it uses this kernel.
//
// The names in capitals come from the compiler's command line:
// D width, HEADS, ROWS, SPLITS and SPLIT_STATES of cross-attention, CHAINS of products with D inputs, IS_BF16, and
// INT8_CROSS where the keys and values of cross-attention are in 8 bits.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int HEAD_DIM = 64;
constexpr int WARPS = 8;
constexpr int THREADS = 32 * WARPS;  // that compute
constexpr int K_SPLITS = 4;
constexpr int PART = D / K_SPLITS;  // inputs of a part of a product with D inputs
constexpr int TILE = 8;             // outputs that a warp computes at a time
constexpr int X_PITCH = D + 8;      // 16-bit numbers between rows in shared memory, so that rows start in other banks
constexpr int BUFFER_BYTES = TILE * X_PITCH * 2;
constexpr int MAX_BUFFERS = 8;
constexpr int CHUNK = 192;  // keys in shared memory
constexpr int KV_BYTES = CHUNK * HEAD_DIM * 2;
constexpr u32 SPIN_LIMIT = 1u << 24;

static_assert(SPLITS == 8 && SPLIT_STATES == CHUNK, "the sums below are written for these");
static_assert(D % 256 == 0 && HEADS * HEAD_DIM == D && D <= 2048, "sizes");

struct Layer {
    const u16 *own_norm, *own_norm_bias, *qkv, *qkv_bias, *own_out, *own_out_bias;
    const u16 *cross_norm, *cross_norm_bias, *query, *query_bias, *cross_out, *cross_out_bias;
    const u16 *mlp_norm, *mlp_norm_bias, *fc1, *fc1_bias, *fc2, *fc2_bias;
};

struct Model {
    const Layer *layers;
    const u16 *tokens, *positions, *norm, *norm_bias;  // embeddings, and the last norm
    u16 *own_cache;           // (layers, 2, slots, heads, n_positions, 64)
    const u8 *cross_cache;    // (layers, 2, slots, heads, n_states, 64), in 16 or in 8 bits
    const u16 *cross_scales;  // (layers, 2, slots, heads, n_states): of keys and values in 8 bits
    const i64 *row_tokens, *row_positions, *row_slots;
    const int *lengths;       // encoder states of each slot
    u8 *scratch;
    u32 *barrier;             // two counters, both 0 between steps
    float *logits;
    int n_layers, n_cache_slots, n_positions, n_states, n_vocabulary, n_buffers;
    float eps, scale, width;  // `width` is D, as a number that the compiler cannot divide by ahead of time
};

// Global scratch, by bytes. Each stage has a buffer of its own, in two copies, except the last one of a layer.
constexpr int QKV_AT = 0;
constexpr int HEADS_AT = QKV_AT + ROWS * 3 * D * 2;
constexpr int OWN_SUMS_AT = HEADS_AT + ROWS * D * 2;
constexpr int QUERY_AT = OWN_SUMS_AT + K_SPLITS * ROWS * D * 4;
constexpr int PARTIALS_AT = QUERY_AT + ROWS * D * 2;
constexpr int STATS_AT = PARTIALS_AT + ROWS * HEADS * SPLITS * HEAD_DIM * 4;
constexpr int CROSS_SUMS_AT = STATS_AT + ROWS * HEADS * SPLITS * 2 * 4;
constexpr int HIDDEN_AT = CROSS_SUMS_AT + K_SPLITS * ROWS * D * 4;
constexpr int COPY_BYTES = HIDDEN_AT + ROWS * 4 * D * 2;
constexpr int MLP_SUMS_AT = 2 * COPY_BYTES;
constexpr u32 EMPTY = 0xffffffffu;  // two numbers in 16 bits, or one in 32, that are none

// ---- instructions

#if IS_BF16
#define HALF "bf16"
#else
#define HALF "f16"
#endif

__device__ __forceinline__ float widen(u16 x) {
#if IS_BF16
    return __uint_as_float(u32(x) << 16);
#else
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
#endif
}
__device__ __forceinline__ u16 round16(float x) {
    u16 y;
    asm("cvt.rn." HALF ".f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ u32 pair16(float low, float high) { return u32(round16(low)) | (u32(round16(high)) << 16); }
__device__ __forceinline__ float divide(float x, float y) {
    float z;
    asm("div.full.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}
__device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float rsqrt_of(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// These keep the compiler from joining or splitting multiplications and additions.
__device__ __forceinline__ float plus(float x, float y) { return __fadd_rn(x, y); }
__device__ __forceinline__ float times(float x, float y) { return __fmul_rn(x, y); }
__device__ __forceinline__ float fused(float x, float y, float z) { return __fmaf_rn(x, y, z); }
__device__ __forceinline__ float bfly(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

// c += a @ b for 16 rows, 8 outputs and 16 inputs. Rows from the ninth on are zero.
__device__ __forceinline__ void multiply(float (&c)[4], u32 a0, u32 a2, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALF "." HALF ".f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%5}, {%7,%8}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(0), "r"(a2), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void load_matrices(u32 (&m)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_transposed(u32 (&m)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ uint4 read16(const void *p) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ u32 read4(const void *p) {
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ bool is_empty(uint4 v) { return v.x == EMPTY || v.y == EMPTY || v.z == EMPTY || v.w == EMPTY; }
__device__ __forceinline__ void count_spin(u32 &n) {
    if (++n == SPIN_LIMIT) __trap();
}
// Read what another block writes, once it is there.
__device__ __forceinline__ uint4 take16(const void *p) {
    uint4 v = read16(p);
    for (u32 n = 0; is_empty(v); count_spin(n)) v = read16(p);
    return v;
}
__device__ __forceinline__ u32 take4(const void *p) {
    u32 v = read4(p);
    for (u32 n = 0; v == EMPTY; count_spin(n)) v = read4(p);
    return v;
}
// Write for other blocks, and empty the same place of the other copy.
struct Passed {
    u8 *now, *next;

    __device__ __forceinline__ void put4(int at, u32 x) const {
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(now + at), "r"(x) : "memory");
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(next + at), "r"(EMPTY) : "memory");
    }
    __device__ __forceinline__ void put8(int at, float x, float y) const {
        asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1,%2};" ::"l"(now + at), "f"(x), "f"(y) : "memory");
        asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%1};" ::"l"(next + at), "r"(EMPTY) : "memory");
    }
};
__device__ __forceinline__ u32 shared_address(const void *p) { return u32(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void sync_threads(int id, int n) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}
__device__ __forceinline__ void sync_all() { sync_threads(1, THREADS); }

// ---- waiting, for copies and for other blocks

__device__ __forceinline__ void init_count(u32 at, u32 n) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(n) : "memory");
}
__device__ __forceinline__ void await_phase(u32 at, u32 parity) {
    for (u32 n = 0; n < SPIN_LIMIT; n++) {
        u32 done;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at), "r"(parity) : "memory");
        if (done) return;
    }
    __trap();
}
__device__ __forceinline__ void arrive(u32 at) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at) : "memory");
}

struct Blocks {
    u32 *counter;
    u32 target;

    // Say that a stage is done here. What it wrote may come later: who reads it looks whether it is there.
    __device__ __forceinline__ void pass() {
        sync_all();
        target += gridDim.x;
        if (threadIdx.x == 0) asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    }
    // Wait until all blocks have said so. This alone would be slow: reading the words themselves again and again keeps
    // the memory busy.
    __device__ __forceinline__ void expect() {
        if (threadIdx.x == 0)
            for (u32 n = 0; read4(counter) < target; count_spin(n)) {}
        sync_all();
    }
    // All that this block wrote before is seen by the blocks that wait for it.
    __device__ __forceinline__ void arrive() {
        sync_all();
        target += gridDim.x;
        if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    }
    __device__ __forceinline__ void wait() {
        if (threadIdx.x == 0) {
            for (u32 n = 0;; n++) {
                u32 found;
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(counter) : "memory");
                if (found >= target) break;
                if (n == SPIN_LIMIT) __trap();
            }
        }
        sync_all();
    }
};

// ---- the tiles of a product that belong to this block, in the order in which it computes them

struct Tiles {
    int first, step, n, split;

    static __device__ __forceinline__ Tiles whole(int n_outputs) {
        int n = (n_outputs + TILE - 1) / TILE, block = blockIdx.x;
        return {block, int(gridDim.x), block < n ? (n - block - 1) / int(gridDim.x) + 1 : 0, 0};
    }
    // Of the parts of the inputs, a block computes one.
    static __device__ __forceinline__ Tiles split_up(int n_outputs) {
        int n = n_outputs / TILE, split = blockIdx.x % K_SPLITS, member = blockIdx.x / K_SPLITS;
        int members = (int(gridDim.x) - split + K_SPLITS - 1) / K_SPLITS;
        return {member, members, member < n ? (n - member - 1) / members + 1 : 0, split};
    }
    __device__ __forceinline__ int output(int index) const { return (first + index * step) * TILE; }
};

struct Ring {
    u32 data, full, empty;  // shared memory: buffers, and two counts for each
    int n_buffers;
    u32 index;              // of the next tile, counted from the begin of the step
};

// The ninth warp: copy the tiles of one product.
__device__ void copy_tiles(Ring &ring, const u16 *weight, Tiles tiles, int n_outputs, int n_inputs, int part) {
    int lane = threadIdx.x & 31;
    for (int i = 0; i < tiles.n; i++, ring.index++) {
        u32 buffer = ring.index % ring.n_buffers, round = ring.index / ring.n_buffers;
        await_phase(ring.empty + 8 * buffer, (round & 1) ^ 1);
        int output = tiles.output(i), n = min(TILE, n_outputs - output);
        u32 full = ring.full + 8 * buffer;
        if (lane == 0)
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full), "r"(n * part * 2) : "memory");
        __syncwarp();
        if (lane < n) {
            const u16 *source = weight + u64(output + lane) * n_inputs + tiles.split * part;
            u32 to = ring.data + buffer * BUFFER_BYTES + lane * (part + 8) * 2;
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                         ::"r"(to), "l"(source), "r"(part * 2), "r"(full) : "memory");
        }
    }
}

__device__ void copy_weights(const Model &model, Ring ring) {
    for (int i = 0; i < model.n_layers; i++) {
        const Layer &layer = model.layers[i];
        copy_tiles(ring, layer.qkv, Tiles::whole(3 * D), 3 * D, D, D);
        copy_tiles(ring, layer.own_out, Tiles::split_up(D), D, D, PART);
        copy_tiles(ring, layer.query, Tiles::whole(D), D, D, D);
        copy_tiles(ring, layer.cross_out, Tiles::split_up(D), D, D, PART);
        copy_tiles(ring, layer.fc1, Tiles::whole(4 * D), 4 * D, D, D);
        copy_tiles(ring, layer.fc2, Tiles::split_up(D), D, 4 * D, D);
    }
    copy_tiles(ring, model.tokens, Tiles::whole(model.n_vocabulary), model.n_vocabulary, D, D);
}

// ---- shared memory of a block

// Where a pair of inputs lies in a row in shared memory: of 32 inputs, those that a lane needs lie beside one another.
__device__ __forceinline__ int pair_place(int pair) { return (pair & ~15) | ((pair & 3) << 2) | ((pair >> 2) & 3); }

struct Shared {
    u16 *x;         // (ROWS, X_PITCH): inputs of the product, in the order of `pair_place`
    u16 *residual;  // (ROWS, D)
    float *scores;  // (CHUNK)
    float *sums;    // (2, WARPS)
    u32 keys, values;  // (CHUNK, 64) each, in 16-byte parts whose order changes from row to row

    __device__ __forceinline__ u32 *pairs(int row) const { return reinterpret_cast<u32 *>(x + row * X_PITCH); }
};

// ---- products

// Multiply the rows in shared memory by one tile of a weight. Adds 16 inputs at a time, in order.
template <int K>
__device__ __forceinline__ void multiply_tile(float (&c)[4], u32 tile, const u16 *x, int lane) {
    bool is_row = lane / 4 < ROWS;
    u32 at = tile + ((lane & 7) * (K + 8) + (lane >> 3) * 8) * 2;
    const uint4 *own = reinterpret_cast<const uint4 *>(x + (is_row ? lane / 4 : 0) * X_PITCH) + (lane & 3);
    // Two sums at a time where `linear.py` has two, so that one need not wait for the other.
    constexpr int N_CHAINS = K == D ? CHAINS : 1, LENGTH = K / N_CHAINS;
    float sums[N_CHAINS][4];
#pragma unroll
    for (int i = 0; i < N_CHAINS; i++) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.0f;
#pragma unroll 10
    for (int k = 0; k < LENGTH; k += 32) {
        u32 b[N_CHAINS][4];
        uint4 a[N_CHAINS];
#pragma unroll
        for (int i = 0; i < N_CHAINS; i++) {
            load_matrices(b[i], at + (i * LENGTH + k) * 2);
            a[i] = own[(i * LENGTH + k) / 8];
            if (!is_row) a[i] = make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < N_CHAINS; i++) multiply(sums[i], a[i].x, a[i].y, b[i][0], b[i][1]);
#pragma unroll
        for (int i = 0; i < N_CHAINS; i++) multiply(sums[i], a[i].z, a[i].w, b[i][2], b[i][3]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] = N_CHAINS == 2 ? plus(sums[0][i], sums[N_CHAINS - 1][i]) : sums[0][i];
}

// Compute this block's tiles. `store(row, output, biases, first, second)` gets two neighbouring outputs of a row.
template <int K, class Store>
__device__ __forceinline__ void product(Ring &ring, Tiles tiles, const Shared &shared, const u16 *bias, Store store) {
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    int n_warps = min(WARPS, ring.n_buffers);  // a warp never waits for the second next tile of a buffer
    if (warp < n_warps) {
        for (int i = warp; i < tiles.n; i += n_warps) {
            u32 index = ring.index + i, buffer = index % ring.n_buffers;
            int output = tiles.output(i) + 2 * (lane & 3);
            u32 biases = bias ? *reinterpret_cast<const u32 *>(bias + output) : 0;
            await_phase(ring.full + 8 * buffer, (index / ring.n_buffers) & 1);
            float c[4];
            multiply_tile<K>(c, ring.data + buffer * BUFFER_BYTES, shared.x, lane);
            if (lane / 4 < ROWS) store(lane / 4, output, biases, c[0], c[1]);
            __syncwarp();
            if (lane == 0) arrive(ring.empty + 8 * buffer);
        }
    }
    ring.index += tiles.n;
}

// As `gelu` in `linear.py`.
__device__ __forceinline__ float gelu(float x) {
    float t = fminf(times(fabsf(x), 0.7071067811865476f), 4.0f);
    float power = fused(t, -4.5358371e-05f, 4.4550523e-04f);
    power = fused(power, t, -1.4894322e-03f);
    power = fused(power, t, -7.7464717e-04f);
    power = fused(power, t, 2.8253699e-02f);
    power = fused(power, t, -1.4848162e-01f);
    power = fused(power, t, -9.1841638e-01f);
    power = fused(power, t, -1.6279086f);
    float erf = plus(1.0f, -exp2_of(times(power, t)));
    return times(times(0.5f, x), plus(1.0f, x < 0.0f ? -erf : erf));
}

template <bool GELU>
__device__ __forceinline__ u32 with_bias(u32 biases, float x, float y) {
    x = plus(x, widen(u16(biases)));
    y = plus(y, widen(u16(biases >> 16)));
    if (GELU) {
        x = gelu(widen(round16(x)));
        y = gelu(widen(round16(y)));
    }
    return pair16(x, y);
}

// ---- the norm of the sum of a row and a product's parts, by four warps, each row as Triton's layout adds it up

constexpr int NORM_BLOCK = D > 1024 ? 2048 : D > 512 ? 1024 : D > 256 ? 512 : 256;
constexpr int EACH = NORM_BLOCK / 128 < 8 ? NORM_BLOCK / 128 : 8;  // neighbouring columns of a thread
constexpr int TIMES = NORM_BLOCK / (128 * EACH);

// A thread's part of the weights of a norm, loaded before it waits for other blocks.
struct NormWeights {
    u32 weight[TIMES][EACH / 2], bias[TIMES][EACH / 2], sum_bias[TIMES][EACH / 2];

    __device__ __forceinline__ void load(const u16 *weights, const u16 *biases, const u16 *sum_biases) {
#pragma unroll
        for (int i = 0; i < TIMES; i++) {
            int column = i * 128 * EACH + (threadIdx.x & 127) * EACH;
#pragma unroll
            for (int j = 0; j < EACH / 2; j++) {
                bool is_inside = column < D;
                weight[i][j] = is_inside ? reinterpret_cast<const u32 *>(weights + column)[j] : 0;
                bias[i][j] = is_inside ? reinterpret_cast<const u32 *>(biases + column)[j] : 0;
                sum_bias[i][j] = is_inside && sum_biases ? reinterpret_cast<const u32 *>(sum_biases + column)[j] : 0;
            }
        }
    }
};

__device__ __forceinline__ float half_of(const u32 *pairs, int i) { return widen(u16(pairs[i / 2] >> (16 * (i & 1)))); }

// Add up the numbers of 128 threads.
__device__ __forceinline__ float add_up(float x, float *sums, int group) {
    for (int mask = 16; mask > 0; mask /= 2) x = plus(x, bfly(x, mask));
    int warp = (threadIdx.x / 32) & 3;
    if ((threadIdx.x & 31) == 0) sums[group * 4 + warp] = x;
    sync_threads(2 + group, 128);
    float a = sums[group * 4], b = sums[group * 4 + 1], c = sums[group * 4 + 2], d = sums[group * 4 + 3];
    sync_threads(2 + group, 128);
    return plus(plus(a, c), plus(b, d));
}

__device__ void norm(const Model &model, const Shared &shared, const NormWeights &weights, const u8 *sums) {
    int group = threadIdx.x / 128;
    float reciprocal;
    asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(model.width));
    for (int row = group; row < ROWS; row += 2) {
        float x[TIMES][EACH];
        float parts[TIMES][K_SPLITS][EACH];
        bool is_missing = sums != nullptr;
        for (u32 n = 0; is_missing; count_spin(n)) {
            is_missing = false;
#pragma unroll
            for (int i = 0; i < TIMES; i++) {
                int column = i * 128 * EACH + (threadIdx.x & 127) * EACH;
#pragma unroll
                for (int part = 0; part < K_SPLITS; part++) {
                    const float *source = reinterpret_cast<const float *>(sums) + (part * ROWS + row) * D + column;
#pragma unroll
                    for (int j = 0; j < EACH; j += (EACH < 4 ? 1 : 4)) {
                        if (EACH < 4) {
                            u32 v = column < D ? read4(source + j) : 0;
                            is_missing |= v == EMPTY;
                            parts[i][part][j] = __uint_as_float(v);
                        } else {
                            uint4 v = column < D ? read16(source + j) : make_uint4(0, 0, 0, 0);
                            is_missing |= is_empty(v);
                            parts[i][part][j] = __uint_as_float(v.x);
                            parts[i][part][(j + 1) % EACH] = __uint_as_float(v.y);
                            parts[i][part][(j + 2) % EACH] = __uint_as_float(v.z);
                            parts[i][part][(j + 3) % EACH] = __uint_as_float(v.w);
                        }
                    }
                }
            }
        }
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < TIMES; i++) {
            int column = i * 128 * EACH + (threadIdx.x & 127) * EACH;
            u16 *own = shared.residual + row * D + column;
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                x[i][j] = column < D ? widen(own[j]) : 0.0f;
                if (sums && column < D) {
                    float y = plus(plus(plus(parts[i][0][j], parts[i][1][j]), parts[i][2][j]), parts[i][3][j]);
                    u16 sum = round16(plus(x[i][j], plus(y, half_of(weights.sum_bias[i], j))));
                    own[j] = sum;
                    x[i][j] = widen(sum);
                }
                total = i + j == 0 ? x[i][j] : plus(total, x[i][j]);
            }
        }
        // Divisions by the width are products with its reciprocal, joined with the sum that follows.
        float sum = add_up(total, shared.sums, group);
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < TIMES; i++) {
            int column = i * 128 * EACH + (threadIdx.x & 127) * EACH;
#pragma unroll
            for (int j = 0; j < EACH; j++) x[i][j] = column < D ? fused(reciprocal, -sum, x[i][j]) : 0.0f;
            if (i == 0) squares = fused(x[0][0], x[0][0], times(x[0][1], x[0][1]));
#pragma unroll
            for (int j = i == 0 ? 2 : 0; j < EACH; j++) squares = fused(x[i][j], x[i][j], squares);
        }
        float factor = rsqrt_of(fused(reciprocal, add_up(squares, shared.sums, group), model.eps));
#pragma unroll
        for (int i = 0; i < TIMES; i++) {
            int column = i * 128 * EACH + (threadIdx.x & 127) * EACH;
            if (column < D) {
#pragma unroll
                for (int j = 0; j < EACH; j += 2) {
                    float first = fused(times(x[i][j], factor), half_of(weights.weight[i], j), half_of(weights.bias[i], j));
                    float second = fused(
                        times(x[i][j + 1], factor), half_of(weights.weight[i], j + 1), half_of(weights.bias[i], j + 1)
                    );
                    shared.pairs(row)[pair_place((column + j) / 2)] = pair16(first, second);
                }
            }
        }
    }
    sync_all();
}

// ---- attention of one row in one head to keys in shared memory

struct Softmax {
    float peak = -1e30f, total = 0.0f, acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};  // `acc`: eight dimensions of each warp
};

__device__ __forceinline__ u32 place(u32 base, int key, int part) { return base + key * 128 + ((part ^ (key & 7)) * 16); }

// Start to copy keys and values to shared memory. From `n` on they are zeros.
__device__ void copy_keys(const Shared &shared, const u16 *keys, const u16 *values, int n) {
    int n_parts = (n + 63) / 64 * 64 * 8;
    for (int i = threadIdx.x; i < n_parts; i += THREADS) {
        int key = i / 8, part = i & 7, bytes = key < n ? 16 : 0;
        u64 offset = key < n ? u64(key) * HEAD_DIM + part * 8 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     ::"r"(place(shared.keys, key, part)), "l"(keys + offset), "r"(bytes) : "memory");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     ::"r"(place(shared.values, key, part)), "l"(values + offset), "r"(bytes) : "memory");
    }
}
__device__ __forceinline__ void await_keys() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    sync_all();
}

// The query of a row and a head as operands of the tensor cores: row 0 of each is the query, the others are zero.
struct Query {
    u32 part[4][2];

    __device__ __forceinline__ void load(const u8 *query) {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            part[i][0] = lane < 4 ? read4(query + (16 * i + 2 * lane) * 2) : 0;
            part[i][1] = lane < 4 ? read4(query + (16 * i + 2 * lane + 8) * 2) : 0;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (part[i][0] == EMPTY) part[i][0] = take4(query + (16 * i + 2 * lane) * 2);
            if (part[i][1] == EMPTY) part[i][1] = take4(query + (16 * i + 2 * lane + 8) * 2);
        }
    }
};

// Add `n` keys in shared memory, in N blocks of 64, to a running softmax.
template <int N>
__device__ __forceinline__ void attend_to_blocks(
    const Shared &shared, const Query &query, int n, float scale, Softmax &softmax
) {
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    float c[N][4];
#pragma unroll
    for (int block = 0; block < N; block++) c[block][0] = c[block][1] = c[block][2] = c[block][3] = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 b[N][4];
#pragma unroll
        for (int block = 0; block < N; block++)
            load_matrices(b[block], place(shared.keys, block * 64 + warp * 8 + (lane & 7), half * 4 + (lane >> 3)));
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int block = 0; block < N; block++)
                multiply(
                    c[block], query.part[2 * half + i][0], query.part[2 * half + i][1], b[block][2 * i], b[block][2 * i + 1]
                );
    }
    if (lane < 4) {
#pragma unroll
        for (int block = 0; block < N; block++) {
            float *scores = shared.scores + block * 64 + warp * 8 + 2 * lane;
            *reinterpret_cast<float2 *>(scores) = make_float2(times(scale, c[block][0]), times(scale, c[block][1]));
        }
    }
    sync_all();

    // Lanes share the scores as the threads of Triton's four warps do: lanes 0 to 3 are of its first warp.
    int own = ((lane >> 2) & 3) * 8 + 2 * (lane & 3);
    float weights[N][4], peaks[N], shrinks[N], totals[N];
#pragma unroll
    for (int block = 0; block < N; block++) {
        peaks[block] = -1e30f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = block * 64 + own + (i & 1) + (i & 2) * 16;
            weights[block][i] = column < n ? shared.scores[column] : -1e30f;
            peaks[block] = fmaxf(peaks[block], weights[block][i]);
        }
    }
#pragma unroll
    for (int mask = 1; mask < 16; mask *= 2)
#pragma unroll
        for (int block = 0; block < N; block++) peaks[block] = fmaxf(peaks[block], bfly(peaks[block], mask));
    float peak = softmax.peak;
#pragma unroll
    for (int block = 0; block < N; block++) {
        float higher = fmaxf(peak, peaks[block]);
        shrinks[block] = exp2_of(plus(peak, -higher));
        peak = higher;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = block * 64 + own + (i & 1) + (i & 2) * 16;
            weights[block][i] = column < n ? exp2_of(plus(weights[block][i], -peak)) : 0.0f;
        }
        totals[block] = plus(plus(plus(weights[block][0], weights[block][1]), weights[block][2]), weights[block][3]);
    }
    softmax.peak = peak;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        constexpr int masks[4] = {2, 1, 8, 4};
#pragma unroll
        for (int block = 0; block < N; block++) totals[block] = plus(totals[block], bfly(totals[block], masks[i]));
    }
#pragma unroll
    for (int block = 0; block < N; block++) {
        softmax.total = fused(softmax.total, shrinks[block], totals[block]);
#pragma unroll
        for (int i = 0; i < 4; i++) softmax.acc[i] = times(softmax.acc[i], shrinks[block]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 pair = pair16(weights[block][2 * half], weights[block][2 * half + 1]), b[4];
            load_transposed(b, place(shared.values, block * 64 + half * 32 + lane, warp));
#pragma unroll
            for (int i = 0; i < 2; i++) {
                u32 a0 = __shfl_sync(0xffffffffu, pair, (2 * i) * 4 + (lane & 3));
                u32 a1 = __shfl_sync(0xffffffffu, pair, (2 * i + 1) * 4 + (lane & 3));
                multiply(softmax.acc, lane < 4 ? a0 : 0, lane < 4 ? a1 : 0, b[2 * i], b[2 * i + 1]);
            }
        }
    }
    sync_all();
}

// Add `n` keys in shared memory to a running softmax.
__device__ void attend(const Shared &shared, const Query &query, int n, float scale, Softmax &softmax) {
    if (n > 128) {
        attend_to_blocks<3>(shared, query, n, scale, softmax);
    } else if (n > 64) {
        attend_to_blocks<2>(shared, query, n, scale, softmax);
    } else if (n > 0) {
        attend_to_blocks<1>(shared, query, n, scale, softmax);
    }
}

// ---- self-attention

struct OwnUnit {
    int row, head, start, n;  // `n`: keys that are attended to, the new one included
    u16 *keys, *values;

    __device__ __forceinline__ OwnUnit(const Model &model, int layer, int unit) {
        row = unit / HEADS, head = unit % HEADS;
        i64 slot = model.row_slots[row], position = model.row_positions[row];
        start = int(position);
        n = min(start + 1, model.n_positions);
        u64 each = u64(model.n_cache_slots) * HEADS * model.n_positions * HEAD_DIM;
        u64 offset = (u64(slot) * HEADS + head) * model.n_positions * HEAD_DIM;
        keys = model.own_cache + (2 * u64(layer)) * each + offset;
        values = keys + each;
    }
    __device__ __forceinline__ void copy(const Shared &shared, int first) {
        // The new token's key is not there yet: `attend_to_own` adds it.
        copy_keys(shared, keys + u64(first) * HEAD_DIM, values + u64(first) * HEAD_DIM, min(CHUNK, min(n, start) - first));
        if (min(n, start) <= first) copy_keys_of_nothing(shared);
    }
    // Zeros for the block of keys in which the new one is the only one.
    static __device__ __forceinline__ void copy_keys_of_nothing(const Shared &shared) {
        for (int i = threadIdx.x; i < 64 * 8; i += THREADS) {
            asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(place(shared.keys, i / 8, i & 7)), "r"(0) : "memory");
            asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(place(shared.values, i / 8, i & 7)), "r"(0) : "memory");
        }
    }
    // Zeros after the last key, where the new one opens a block of 64.
    __device__ __forceinline__ void pad(const Shared &shared, int first) {
        int at = start - first;
        if (at > 0 && at < CHUNK && at % 64 == 0) {
            for (int i = threadIdx.x; i < 64 * 8; i += THREADS) {
                asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};"
                             ::"r"(place(shared.keys, at + i / 8, i & 7)), "r"(0) : "memory");
                asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};"
                             ::"r"(place(shared.values, at + i / 8, i & 7)), "r"(0) : "memory");
            }
        }
    }
};

__device__ void attend_to_own(const Model &model, const Shared &shared, OwnUnit unit, bool is_copied, Passed passed) {
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const u8 *qkv = passed.now + QKV_AT + (u64(unit.row) * 3 * D + unit.head * HEAD_DIM) * 2;
    Query query;
    query.load(qkv);
    Softmax softmax;
    for (int first = 0; first < unit.n; first += CHUNK) {
        if (first > 0 || !is_copied) unit.copy(shared, first);
        unit.pad(shared, first);
        await_keys();
        int at = unit.start - first;
        if (at < CHUNK && unit.start < model.n_positions && threadIdx.x < 16) {
            int part = threadIdx.x & 7, is_value = threadIdx.x / 8;
            uint4 v = take16(qkv + (1 + is_value) * D * 2 + part * 16);
            u32 to = place(is_value ? shared.values : shared.keys, at, part);
            asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
            *reinterpret_cast<uint4 *>((is_value ? unit.values : unit.keys) + u64(unit.start) * HEAD_DIM + part * 8) = v;
        }
        sync_all();
        attend(shared, query, min(CHUNK, unit.n - first), model.scale, softmax);
    }
    if (lane < 4) {
        float total = fmaxf(softmax.total, 1e-30f);
        int at = HEADS_AT + (unit.row * D + unit.head * HEAD_DIM + warp * 8 + 2 * lane) * 2;
        passed.put4(at, pair16(divide(softmax.acc[0], total), divide(softmax.acc[1], total)));
    }
}

// ---- cross-attention

struct CrossUnit {
    int entry, n;  // `entry` counts rows, heads and splits; `n`: encoder states of this split
    u64 keys, values;  // where they begin in the cache, in states

    __device__ __forceinline__ CrossUnit(const Model &model, int layer, int unit) {
        entry = unit;
        int split = unit % SPLITS, head = unit / SPLITS % HEADS, row = unit / SPLITS / HEADS;
        i64 slot = model.row_slots[row];
        n = max(0, min(SPLIT_STATES, model.lengths[slot] - split * SPLIT_STATES));
        u64 each = u64(model.n_cache_slots) * HEADS * model.n_states;
        keys = 2 * u64(layer) * each + (u64(slot) * HEADS + head) * model.n_states + split * SPLIT_STATES;
        values = keys + each;
    }
};

constexpr int N_CROSS = ROWS * HEADS * SPLITS;

#if INT8_CROSS

// Keys and values in 8 bits: four warps attend to a split as a program of `int8_attention.py` does, which has one warp.
// Each of them has eight keys of a round; four lanes share a key, of which each has four words.

constexpr int SPLIT_BYTES = SPLIT_STATES * HEAD_DIM;
constexpr int CROSS_UNITS = 2 * KV_BYTES / (2 * SPLIT_BYTES);  // splits at a time, by shared memory
constexpr int CROSS_THREADS = THREADS / CROSS_UNITS;           // of a split
constexpr int ROUND = CROSS_THREADS / 4;                       // keys
constexpr int ROUNDS = SPLIT_STATES / ROUND;
static_assert(ROUND == 32, "the sums below are written for it");

// The first split of this thread, which it attends to with `attend_to_states`.
__device__ __forceinline__ int first_cross_unit() {
    return int(blockIdx.x) + int(threadIdx.x) / CROSS_THREADS * int(gridDim.x);
}
__device__ __forceinline__ void sync_cross_unit() { sync_threads(2 + threadIdx.x / CROSS_THREADS, CROSS_THREADS); }

__device__ __forceinline__ u32 keys_of_unit(const Shared &shared) {
    return shared.keys + threadIdx.x / CROSS_THREADS * 2 * SPLIT_BYTES;
}

// Scales of this thread's keys, the low halves, and of their values.
struct CrossScales {
    u32 pairs[ROUNDS];
};

// Begin to copy the keys and values of a split.
__device__ CrossScales copy_states(const Model &model, const Shared &shared, const CrossUnit &unit) {
    int thread = threadIdx.x % CROSS_THREADS;
    CrossScales scales = {};
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        int key = round * ROUND + thread / 4;
        if (key < unit.n)
            scales.pairs[round] = model.cross_scales[unit.keys + key] | u32(model.cross_scales[unit.values + key]) << 16;
    }
    u32 keys = keys_of_unit(shared);
    for (int i = thread; i < unit.n * HEAD_DIM / 16; i += CROSS_THREADS) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     ::"r"(keys + i * 16), "l"(model.cross_cache + unit.keys * HEAD_DIM + i * 16) : "memory");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     ::"r"(keys + SPLIT_BYTES + i * 16), "l"(model.cross_cache + unit.values * HEAD_DIM + i * 16) : "memory");
    }
    return scales;
}

__device__ __forceinline__ float floor_of(float x) {
    float y;
    asm("cvt.rmi.ftz.f32.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ u32 to_f16(float x) {
    u16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float from_f16(u32 pair, int which) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(u16(pair >> (16 * which))));
    return y;
}
__device__ __forceinline__ int dot4(u32 x, u32 y, int sum) {
    int z;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "r"(sum));
    return z;
}
__device__ __forceinline__ int dot(const u32 (&x)[4], const u32 (&y)[4]) {
    int sum = dot4(x[3], y[3], dot4(x[2], y[2], dot4(x[1], y[1], dot4(x[0], y[0], 0))));
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 1);
}
__device__ __forceinline__ void load_words(u32 (&out)[4], u32 at, bool exists) {
    out[0] = out[1] = out[2] = out[3] = 0;
    if (exists)
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ u32 load_word(u32 at) {
    u32 x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}
__device__ __forceinline__ void store_word(u32 at, u32 x) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}
// As `_add_values` there: sums of two values each shrink, and the four values of a word are added with their weight.
__device__ __forceinline__ void add_values(u32 &first, u32 &second, u32 values, u32 weights, u32 shrinks) {
    asm("{ .reg .b32 unsigned, low, high;"
        "xor.b32 unsigned, %2, 0x80808080;"
        "prmt.b32 low, unsigned, 0x64646464, 0x4140;"
        "prmt.b32 high, unsigned, 0x64646464, 0x4342;"
        "sub.f16x2 low, low, %5;"
        "sub.f16x2 high, high, %5;"
        "mul.f16x2 %0, %0, %4;"
        "mul.f16x2 %1, %1, %4;"
        "fma.rn.f16x2 %0, low, %3, %0;"
        "fma.rn.f16x2 %1, high, %3, %1; }"
        : "+r"(first), "+r"(second) : "r"(values), "r"(weights), "r"(shrinks), "r"(0x64806480));
}

// A query as two in 8 bits. A lane has two numbers of it; it gets the words that it multiplies keys by.
struct Query8 {
    u32 coarse[4], fine[4];
    float scale;

    __device__ __forceinline__ Query8(u32 pair) {
        int lane = threadIdx.x & 31;
        float x[2] = {widen(u16(pair)), widen(u16(pair >> 16))};
        float largest = fmaxf(fabsf(x[0]), fabsf(x[1]));
        for (int mask = 16; mask > 0; mask /= 2) largest = fmaxf(largest, bfly(largest, mask));
        scale = fmaxf(times(largest, __uint_as_float(0x3c010204)), 1e-30f);
        u32 words[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float y = __fdiv_rn(x[i], scale), whole = floor_of(plus(y, 0.5f));
            float rest = floor_of(fused(plus(y, -whole), 254.0f, 0.5f));
            words[0] |= (u32(int(whole)) & 255) << ((lane & 1) * 16 + 8 * i);
            words[1] |= (u32(int(rest)) & 255) << ((lane & 1) * 16 + 8 * i);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) words[i] |= __shfl_xor_sync(0xffffffffu, words[i], 1);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            coarse[j] = __shfl_sync(0xffffffffu, words[0], (lane & 3) * 8 + 2 * j);
            fine[j] = __shfl_sync(0xffffffffu, words[1], (lane & 3) * 8 + 2 * j);
        }
    }
};

// A split, whose keys and values these warps have begun to copy.
__device__ void attend_to_split(
    const Model &model, const Shared &shared, const CrossUnit &unit, const CrossScales &scales, Passed passed
) {
    int thread = threadIdx.x % CROSS_THREADS, warp = thread / 32, lane = thread & 31, key = thread / 4, part = lane & 3;
    Query8 query(take4(passed.now + QUERY_AT + (unit.entry / SPLITS * HEAD_DIM + 2 * lane) * 2));
    float factor = times(model.scale, query.scale), scores[ROUNDS];
    asm volatile("cp.async.wait_all;" ::: "memory");
    sync_cross_unit();
    u32 keys = keys_of_unit(shared), at = keys + key * HEAD_DIM + part * 16;
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        bool exists = round * ROUND + key < unit.n;
        u32 words[4];
        load_words(words, at + round * ROUND * HEAD_DIM, exists);
        float coarse = float(dot(words, query.coarse)), fine = float(dot(words, query.fine));
        float score = fused(fine, __uint_as_float(0x3b810204), coarse);
        scores[round] = exists ? times(times(factor, widen(u16(scales.pairs[round]))), score) : -1e30f;
    }
    float peak = -1e30f, total = 0.0f;
    u32 first[4] = {}, second[4] = {};  // of words
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        bool exists = round * ROUND + key < unit.n;
        float higher = fmaxf(peak, scores[round]), weight = exists ? exp2_of(plus(scores[round], -higher)) : 0.0f;
        float shrink = exp2_of(plus(peak, -higher));
        peak = higher;
        total = fused(total, shrink, weight);
        u32 weights = to_f16(times(times(weight, widen(u16(scales.pairs[round] >> 16))), 8.0f)), shrinks = to_f16(shrink);
        u32 words[4];
        load_words(words, at + SPLIT_BYTES + round * ROUND * HEAD_DIM, exists);
#pragma unroll
        for (int j = 0; j < 4; j++)
            add_values(first[j], second[j], words[j], weights * 0x10001, shrinks * 0x10001);
    }
    // Where keys were, each warp finds the sums of one word of each part, and the softmax of all keys.
    sync_cross_unit();
    u32 softmax = keys + 8 * CROSS_THREADS * 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        store_word(keys + (2 * j * CROSS_THREADS + thread) * 4, first[j]);
        store_word(keys + ((2 * j + 1) * CROSS_THREADS + thread) * 4, second[j]);
    }
    if (part == 0) {
        store_word(softmax + key * 4, __float_as_uint(peak));
        store_word(softmax + (ROUND + key) * 4, __float_as_uint(total));
    }
    sync_cross_unit();
    peak = __uint_as_float(load_word(softmax + lane * 4));
    float largest = peak;
    for (int mask = 16; mask > 0; mask /= 2) largest = fmaxf(largest, bfly(largest, mask));
    float share = exp2_of(plus(peak, -largest)), part_share = divide(share, 8.0f), sums[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float own = __shfl_sync(0xffffffffu, part_share, lane / 4 + 8 * i);
        u32 from = keys + (2 * warp * CROSS_THREADS + 32 * i + lane) * 4;
        u32 pairs[2] = {load_word(from), load_word(from + CROSS_THREADS * 4)};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float x = times(from_f16(pairs[k / 2], k & 1), own);
            sums[k] = i == 0 ? x : plus(sums[k], x);
        }
    }
    for (int mask = 16; mask > 2; mask /= 2)
#pragma unroll
        for (int k = 0; k < 4; k++) sums[k] = plus(sums[k], bfly(sums[k], mask));
    if (lane < 4) {
        int to = PARTIALS_AT + (unit.entry * HEAD_DIM + (part * 4 + warp) * 4) * 4;
        passed.put8(to, sums[0], sums[1]);
        passed.put8(to + 8, sums[2], sums[3]);
    }
    if (warp == 0) {
        total = times(__uint_as_float(load_word(softmax + (ROUND + lane) * 4)), share);
        for (int mask = 16; mask > 0; mask /= 2) total = plus(total, bfly(total, mask));
        if (lane == 0) passed.put8(STATS_AT + unit.entry * 8, largest, total);
    }
    sync_cross_unit();
}

// Begin to copy what these warps attend to first.
__device__ CrossScales copy_first_states(const Model &model, const Shared &shared, int layer) {
    int unit = first_cross_unit();
    return unit < N_CROSS ? copy_states(model, shared, CrossUnit(model, layer, unit)) : CrossScales{};
}

__device__ void attend_to_states(
    const Model &model, const Shared &shared, int layer, const CrossScales &first_scales, Passed passed
) {
    CrossScales scales = first_scales;
    int begin = first_cross_unit();
    for (int i = begin; i < N_CROSS; i += CROSS_UNITS * gridDim.x) {
        CrossUnit unit(model, layer, i);
        if (i != begin) scales = copy_states(model, shared, unit);
        if (unit.n > 0) attend_to_split(model, shared, unit, scales, passed);
    }
}

#else

__device__ void copy_states(const Model &model, const Shared &shared, const CrossUnit &unit) {
    const u16 *cache = reinterpret_cast<const u16 *>(model.cross_cache);
    copy_keys(shared, cache + unit.keys * HEAD_DIM, cache + unit.values * HEAD_DIM, unit.n);
}

__device__ void attend_to_split(const Model &model, const Shared &shared, const CrossUnit &unit, Passed passed) {
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    Query query;
    query.load(passed.now + QUERY_AT + u64(unit.entry / SPLITS) * HEAD_DIM * 2);
    await_keys();
    Softmax softmax;
    attend(shared, query, unit.n, model.scale, softmax);
    if (lane < 4)
        passed.put8(PARTIALS_AT + (unit.entry * HEAD_DIM + warp * 8 + 2 * lane) * 4, softmax.acc[0], softmax.acc[1]);
    if (threadIdx.x == 0) passed.put8(STATS_AT + unit.entry * 8, softmax.peak, softmax.total);
}

struct CrossScales {};

// Begin to copy what this block attends to first.
__device__ CrossScales copy_first_states(const Model &model, const Shared &shared, int layer) {
    if (blockIdx.x < N_CROSS) copy_states(model, shared, CrossUnit(model, layer, blockIdx.x));
    return {};
}

__device__ void attend_to_states(const Model &model, const Shared &shared, int layer, CrossScales, Passed passed) {
    for (int i = blockIdx.x; i < N_CROSS; i += gridDim.x) {
        CrossUnit unit(model, layer, i);
        if (unit.n == 0) continue;
        if (i != blockIdx.x) copy_states(model, shared, unit);
        attend_to_split(model, shared, unit, passed);
    }
}

#endif

// Combine the splits of the heads that this block's part of the next product reads.
__device__ void combine_splits(const Model &model, const Shared &shared, int part, Passed passed) {
    constexpr int N_HEADS = PART / HEAD_DIM;
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    for (int unit = warp; unit < ROWS * N_HEADS; unit += WARPS) {
        int row = unit / N_HEADS, head = unit % N_HEADS;
        int entry = (row * HEADS + part * N_HEADS + head) * SPLITS;
        int length = model.lengths[model.row_slots[row]];
        const u8 *stats = passed.now + STATS_AT + entry * 8, *partials = passed.now + PARTIALS_AT + entry * 256;
        int own = lane & 7;
        bool is_used = own * SPLIT_STATES < length;
        uint4 words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int split = lane / 16 + 2 * i;
            words[i] = make_uint4(0, 0, 0, 0);
            if (split * SPLIT_STATES < length) words[i] = read16(partials + split * 256 + (lane & 15) * 16);
        }
        float peak = is_used ? __uint_as_float(take4(stats + own * 8)) : -1e30f;
        float total = is_used ? __uint_as_float(take4(stats + own * 8 + 4)) : 0.0f;
        float x[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int split = lane / 16 + 2 * i;
            uint4 v = words[i];
            if (is_empty(v)) v = take16(partials + split * 256 + (lane & 15) * 16);
            x[i][0] = __uint_as_float(v.x), x[i][1] = __uint_as_float(v.y);
            x[i][2] = __uint_as_float(v.z), x[i][3] = __uint_as_float(v.w);
        }
        float highest = peak;
        for (int mask = 4; mask > 0; mask /= 2) highest = fmaxf(highest, bfly(highest, mask));
        float share = exp2_of(plus(peak, -highest));
        float sum = fused(share, total, bfly(times(share, total), 4));
        sum = plus(sum, bfly(sum, 2));
        sum = plus(sum, bfly(sum, 1));
        sum = fmaxf(sum, 1e-30f);
        float shares[4], out[4];
#pragma unroll
        for (int i = 0; i < 4; i++) shares[i] = __shfl_sync(0xffffffffu, share, lane / 16 + 2 * i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float y = fused(shares[0], x[0][j], times(shares[1], x[1][j]));
            y = fused(shares[3], x[3][j], fused(shares[2], x[2][j], y));
            out[j] = divide(plus(y, bfly(y, 16)), sum);
        }
        if (lane < 16) {
            int pair = head * (HEAD_DIM / 2) + lane * 2;
            shared.pairs(row)[pair_place(pair)] = pair16(out[0], out[1]);
            shared.pairs(row)[pair_place(pair + 1)] = pair16(out[2], out[3]);
        }
    }
    sync_all();
}

// Bring a part of each row to shared memory, as input of the next product.
__device__ void load_rows(const Shared &shared, const u8 *rows, int width, int first, int n) {
    for (int i = threadIdx.x; i < ROWS * n / 8; i += THREADS) {
        int row = i / (n / 8), column = i % (n / 8) * 8;
        uint4 v = take16(rows + (row * width + first + column) * 2);
        u32 *to = shared.pairs(row) + pair_place(column / 2);
        to[0] = v.x, to[4] = v.y, to[8] = v.z, to[12] = v.w;
    }
    sync_all();
}

// ---- the step

__device__ void run_layer(const Model &model, int index, const Shared &shared, Ring &ring, Blocks &blocks, NormWeights &weights) {
    const Layer &layer = model.layers[index];
    Passed passed = {model.scratch + (index & 1) * COPY_BYTES, model.scratch + (~index & 1) * COPY_BYTES};

    norm(model, shared, weights, index ? model.scratch + MLP_SUMS_AT : nullptr);
    product<D>(ring, Tiles::whole(3 * D), shared, layer.qkv_bias, [&](int row, int output, u32 biases, float x, float y) {
        passed.put4(QKV_AT + (row * 3 * D + output) * 2, with_bias<false>(biases, x, y));
    });
    blocks.pass();

    // The blocks with the last numbers do self-attention: they have the fewest tiles.
    int own = int(gridDim.x) - 1 - int(blockIdx.x);
    if (own < ROWS * HEADS) OwnUnit(model, index, own).copy(shared, 0);
    blocks.expect();
    for (int i = own; i < ROWS * HEADS; i += gridDim.x)
        attend_to_own(model, shared, OwnUnit(model, index, i), i == own, passed);
    blocks.pass();
    blocks.expect();

    Tiles split = Tiles::split_up(D);
    load_rows(shared, passed.now + HEADS_AT, D, split.split * PART, PART);
    product<PART>(ring, split, shared, nullptr, [&](int row, int output, u32, float x, float y) {
        passed.put8(OWN_SUMS_AT + ((split.split * ROWS + row) * D + output) * 4, x, y);
    });
    blocks.pass();
    weights.load(layer.cross_norm, layer.cross_norm_bias, layer.own_out_bias);
    blocks.expect();

    norm(model, shared, weights, passed.now + OWN_SUMS_AT);
    product<D>(ring, Tiles::whole(D), shared, layer.query_bias, [&](int row, int output, u32 biases, float x, float y) {
        passed.put4(QUERY_AT + (row * D + output) * 2, with_bias<false>(biases, x, y));
    });
    blocks.pass();

    CrossScales scales = copy_first_states(model, shared, index);
    blocks.expect();
    attend_to_states(model, shared, index, scales, passed);
    blocks.pass();
    blocks.expect();

    combine_splits(model, shared, split.split, passed);
    product<PART>(ring, split, shared, nullptr, [&](int row, int output, u32, float x, float y) {
        passed.put8(CROSS_SUMS_AT + ((split.split * ROWS + row) * D + output) * 4, x, y);
    });
    blocks.pass();
    weights.load(layer.mlp_norm, layer.mlp_norm_bias, layer.cross_out_bias);
    blocks.expect();

    norm(model, shared, weights, passed.now + CROSS_SUMS_AT);
    product<D>(ring, Tiles::whole(4 * D), shared, layer.fc1_bias, [&](int row, int output, u32 biases, float x, float y) {
        passed.put4(HIDDEN_AT + (row * 4 * D + output) * 2, with_bias<true>(biases, x, y));
    });
    blocks.pass();

    blocks.expect();
    load_rows(shared, passed.now + HIDDEN_AT, 4 * D, split.split * D, D);
    product<D>(ring, split, shared, nullptr, [&](int row, int output, u32, float x, float y) {
        float *out = reinterpret_cast<float *>(model.scratch + MLP_SUMS_AT) + (split.split * ROWS + row) * D + output;
        *reinterpret_cast<float2 *>(out) = make_float2(x, y);
    });
    blocks.arrive();
    bool is_last = index + 1 == model.n_layers;
    const Layer *next = model.layers + index + 1;
    weights.load(is_last ? model.norm : next->own_norm, is_last ? model.norm_bias : next->own_norm_bias, layer.fc2_bias);
    blocks.wait();
}

__device__ void embed(const Model &model, const Shared &shared) {
    for (int i = threadIdx.x; i < ROWS * D; i += THREADS) {
        int row = i / D, column = i % D;
        i64 position = min(model.row_positions[row], i64(model.n_positions - 1));
        float token = widen(model.tokens[u64(model.row_tokens[row]) * D + column]);
        shared.residual[i] = round16(plus(token, widen(model.positions[u64(position) * D + column])));
    }
    sync_all();
}

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1) row_step(const __grid_constant__ Model model) {
    extern __shared__ __align__(128) u8 memory[];
    u8 *at = memory;
    Shared shared;
    shared.keys = shared_address(at);
    shared.values = shared.keys + KV_BYTES;
    at += 2 * KV_BYTES;
    Ring ring = {shared_address(at), 0, 0, model.n_buffers, 0};
    at += model.n_buffers * BUFFER_BYTES;
    shared.x = reinterpret_cast<u16 *>(at);
    at += ROWS * X_PITCH * 2;
    shared.residual = reinterpret_cast<u16 *>(at);
    at += ROWS * D * 2;
    shared.scores = reinterpret_cast<float *>(at);
    at += CHUNK * 4;
    shared.sums = reinterpret_cast<float *>(at);
    at += 2 * WARPS * 4;
    ring.full = shared_address(at);
    ring.empty = ring.full + 8 * MAX_BUFFERS;

    if (threadIdx.x == 0) {
        for (int i = 0; i < ring.n_buffers; i++) {
            init_count(ring.full + 8 * i, 1);
            init_count(ring.empty + 8 * i, 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= THREADS) {
        copy_weights(model, ring);
        return;
    }
    Blocks blocks = {model.barrier, 0};
    NormWeights weights;
    weights.load(model.layers[0].own_norm, model.layers[0].own_norm_bias, nullptr);
    embed(model, shared);
    for (int i = 0; i < model.n_layers; i++) run_layer(model, i, shared, ring, blocks, weights);
    // All blocks have passed the last wait once the last of them comes here: it sets the counters back.
    if (threadIdx.x == 0 && atomicAdd(model.barrier + 1, 1) == gridDim.x - 1) {
        model.barrier[0] = 0;
        model.barrier[1] = 0;
    }
    norm(model, shared, weights, model.scratch + MLP_SUMS_AT);
    product<D>(ring, Tiles::whole(model.n_vocabulary), shared, nullptr, [&](int row, int output, u32, float x, float y) {
        float *out = model.logits + u64(row) * model.n_vocabulary + output;
        if (output < model.n_vocabulary) out[0] = x;
        if (output + 1 < model.n_vocabulary) out[1] = y;
    });
}
