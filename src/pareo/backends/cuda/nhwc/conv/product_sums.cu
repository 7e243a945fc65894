// Convolutions of single pixels in bfloat16 that also compute what batch normalisation sums over
// their results: out = a b', for a of (pixels, depth) and b of (channels, depth).
//
// One thread starts the copies of chunks to shared memory, by the tensor copy engine, as many ahead
// as there is room for. Two warpgroups compute tiles of ROWS pixels and N channels in turn: while one
// sums up and writes its tile, the other one multiplies. A block always has the same channels, and
// sums over all its tiles in registers. The first tiles are computed last: the next kernel begins
// with them, and they are still in the L2 cache.
#include "nhwc/conv/warpgroup.cuh"
#include "nhwc/kernels/activation.cuh"
#include "nhwc/kernels/block_sums.cuh"
#include "nhwc/kernels/vector.cuh"

const int ROWS = 128, DEPTH = 64, THREADS = 384, V = 8;  // V: channels of a thread, 16 bytes
const int LINE = DEPTH * 2;                              // bytes of a row of a chunk
const int WORKERS = 256;                                 // threads of the warpgroups that compute
const int WRITTEN = 1, ALL = 3, TURNS = 4;               // barriers: of each warpgroup, of both, turns

struct alignas(64) TensorMap {  // CUtensorMap
    unsigned long long opaque[16];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int N> __device__ constexpr int stage_bytes() { return (ROWS + N) * LINE; }
template <int N> __device__ constexpr int pitch() { return N * 2 + 16; }  // of a tile that is written

__device__ inline void copy_box(
    void* to, const TensorMap& from, int column, int row, unsigned long long* ready)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(place(to)), "l"(&from), "r"(column), "r"(row), "r"(place(ready)) : "memory");
}

// The threads that compute, as those of a block that sum.
template <int N> struct Workers {
    const int x = threadIdx.x, y = threadIdx.y, wide = N / V, high = WORKERS / (N / V);
    __device__ void wait() const { asm volatile("bar.sync %0, %1;" :: "n"(ALL), "n"(WORKERS) : "memory"); }
};

template <int N, int S> struct Block {
    char* shared;
    unsigned long long *full, *empty;
    int pixels, depth;

    __device__ Block(char* given, unsigned long long* barriers, int pixels, int depth)
        : shared(given + (-place(given) & 1023)), full(barriers), empty(barriers + S),
          pixels(pixels), depth(depth)
    {
        if (threadIdx.x + threadIdx.y == 0)
            for (int i = 0; i < S; i++) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(place(full + i)));
                asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place(empty + i)), "r"(ARRIVALS));
            }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        __syncthreads();
    }

    __device__ char* stage(int number) const { return shared + number % S * stage_bytes<N>(); }
    __device__ int first_tile() const { return (pixels + ROWS - 1) / ROWS - 1 - blockIdx.x; }

    // Copies the chunks of all tiles, in one thread.
    __device__ void load(const TensorMap& a, const TensorMap& b) const
    {
        int number = 0;
        for (int tile = first_tile(); tile >= 0; tile -= gridDim.x)
            for (int k = 0; k < depth; k += DEPTH, number++) {
                const int slot = number % S;
                wait(empty + slot, (number / S & 1) ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                             :: "r"(place(full + slot)), "r"(stage_bytes<N>()) : "memory");
                copy_box(stage(number), a, k, tile * ROWS, full + slot);
                copy_box(stage(number) + ROWS * LINE, b, k, blockIdx.y * N, full + slot);
            }
    }

    // Computes every other tile, in a warpgroup: calls begin(first pixel, turn) for each before its
    // products, and end(first pixel, turn, tile) when they are in shared memory.
    template <class Begin, class End> __device__ void compute(Begin begin, End end) const
    {
        const int thread = threadIdx.y * (N / V) + threadIdx.x, group = thread / 128;
        const int lane = thread % 32, warp = thread / 32 % 4, chunks = (depth + DEPTH - 1) / DEPTH;
        char* const written = shared + S * stage_bytes<N>() + group * ROWS * pitch<N>();
        // A barrier in shared memory tells apart two rounds only, so no warpgroup may wait for a chunk
        // before the other one has received those before it.
        const int mine = TURNS + group, next = TURNS + 1 - group;
        if (group == 1) asm volatile("bar.arrive %0, %1;" :: "r"(next), "n"(WORKERS) : "memory");
        int number = group * chunks;
        int turn = group;
        for (int tile = first_tile() - group * (int)gridDim.x; tile >= 0; tile -= 2 * gridDim.x, turn += 2) {
            begin(tile * ROWS, turn);
            float sums[2][N / 2] = {};
            asm volatile("bar.sync %0, %1;" :: "r"(mine), "n"(WORKERS) : "memory");
            for (int chunk = 0; chunk < chunks; chunk++, number++) {
                ::wait(full + number % S, number / S & 1);
                const unsigned long long rows = lines_at(stage(number)), columns = lines_at(stage(number) + ROWS * LINE);
#pragma unroll
                for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(sums[0][i]), "+f"(sums[1][i]) :: "memory");
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int i = 0; i < DEPTH / 16; i++)
#pragma unroll
                    for (int half = 0; half < 2; half++)
                        multiply_bfloat16<N>(sums[half], rows + half * (64 * LINE >> 4) + i * 2, columns + i * 2);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                if (chunk) {
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    warp_arrives(empty + (number - 1) % S, lane);
                }
            }
            if (tile >= (int)gridDim.x) asm volatile("bar.arrive %0, %1;" :: "r"(next), "n"(WORKERS) : "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
            for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(sums[0][i]), "+f"(sums[1][i]) :: "memory");
            warp_arrives(empty + (number - 1) % S, lane);
            number += chunks;  // those of the other warpgroup
            asm volatile("bar.sync %0, 128;" :: "r"(WRITTEN + group) : "memory");  // the last tile has been read
            char* to = written + (warp * 16 + lane / 4) * pitch<N>() + lane % 4 * 4;
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int i = 0; i < N / 2; i += 4) {
                    char* const at = to + half * 64 * pitch<N>() + i * 4;
                    const float(&s)[N / 2] = sums[half];
                    *reinterpret_cast<__nv_bfloat162*>(at) = __floats2bfloat162_rn(s[i], s[i + 1]);
                    *reinterpret_cast<__nv_bfloat162*>(at + 8 * pitch<N>()) = __floats2bfloat162_rn(s[i + 2], s[i + 3]);
                }
            asm volatile("bar.sync %0, 128;" :: "r"(WRITTEN + group) : "memory");
            end(tile * ROWS, turn, written);
        }
    }
};

// The rows of a tile that a thread of a warpgroup writes: the first, and how far apart they are.
template <int N> __device__ constexpr int row_step() { return 128 / (N / V); }
template <int N> __device__ inline int first_row() { return threadIdx.y % row_step<N>(); }

// out, and the mean and variance of each of its channels.
template <int N, int S> __global__ void __launch_bounds__(THREADS, 1) product_statistics(
    bfloat16* out, float* mean, float* variance, float* partial, int slot,
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, int pixels, int depth,
    int channels)
{
    extern __shared__ char given[];
    __shared__ float counts[WORKERS];
    __shared__ unsigned long long barriers[2 * S];
    const Block<N, S> block(given, barriers, pixels, depth);
    if (threadIdx.y * (N / V) + threadIdx.x >= WORKERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.y * (N / V) + threadIdx.x == WORKERS) block.load(a, b);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int channel = blockIdx.y * N + threadIdx.x * V;
        float centre[V] = {}, sums[V] = {}, squares[V] = {}, count = 0;
        block.compute([](int, int) {}, [&](int first, int, const char* tile) {
#pragma unroll 4
            for (int row = first_row<N>(); row < ROWS; row += row_step<N>()) {
                if (first + row >= pixels) break;
                const auto pack = *reinterpret_cast<const Pack<bfloat16, V>*>(tile + row * pitch<N>() + threadIdx.x * V * 2);
                if (channel < channels)
                    *reinterpret_cast<Pack<bfloat16, V>*>(out + (long long)(first + row) * channels + channel) = pack;
                if (count == 0)
#pragma unroll
                    for (int i = 0; i < V; i++) centre[i] = wide(pack.at[i]);
#pragma unroll
                for (int i = 0; i < V; i++) {
                    const float apart = wide(pack.at[i]) - centre[i];
                    sums[i] += apart;
                    squares[i] += apart * apart;
                }
                count++;
            }
        });
#pragma unroll
        for (int i = 0; i < V; i++) {
            const float apart = count ? sums[i] / count : 0;
            centre[i] += apart;
            squares[i] -= sums[i] * apart;
        }
        const Workers<N> threads;
        threads.wait();  // all have read all chunks
        float* const room = reinterpret_cast<float*>(block.shared);
        finish_statistics<V>(
            threads, mean, variance, partial, slot, centre, squares, count, room, counts, pixels, channels, channel);
    }
}

// The tiles of images that are read besides, in a ring of boxes of ROWS pixels and 64 channels.
struct Ring {
    char* shared;
    unsigned long long *full, *empty;
    int each;  // boxes of a tile: 1 or 2
    static const int BOXES = 4, BYTES = ROWS * LINE;

    __device__ int slot(int turn) const { return turn % (BOXES / each); }
    __device__ int phase(int turn) const { return turn / (BOXES / each) & 1; }
    __device__ char* box(int turn) const { return shared + slot(turn) * each * BYTES; }

    __device__ void prepare() const
    {
        for (int i = 0; i < BOXES; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(place(full + i)));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place(empty + i)), "r"(ARRIVALS));
        }
    }

    // Copies those of all tiles, in one thread.
    __device__ void load(const TensorMap& x, const TensorMap& other, int tile) const
    {
        for (int turn = 0; tile >= 0; tile -= gridDim.x, turn++) {
            unsigned long long* const ready = full + slot(turn);
            wait(empty + slot(turn), phase(turn) ^ 1);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                         :: "r"(place(ready)), "r"(each * BYTES) : "memory");
            copy_box(box(turn), x, blockIdx.y * 64, tile * ROWS, ready);
            if (each == 2) copy_box(box(turn) + BYTES, other, blockIdx.y * 64, tile * ROWS, ready);
        }
    }
};

// Eight channels of a row of a box.
__device__ inline Pack<bfloat16, V> piece_of(const char* box, int row, int piece)
{
    return *reinterpret_cast<const Pack<bfloat16, V>*>(box + row * LINE + ((piece ^ row % 8) << 4));
}

// out is a gradient, and the gradients of scale and shift follow from d, that before the activation
// of x normalised by `by`. `other` is added first, if `adds`. `positive` are the bits that the forward
// pass left; without them, d follows from x. With `masks`, out is d. Tiles have 64 channels.
template <int S, int A> __global__ void __launch_bounds__(THREADS, 1) product_back_sums(
    bfloat16* out, float* to_scale, float* to_shift, float* partial, int slot,
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
    const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap other, int adds,
    const unsigned char* positive, Vectors by, float low, float high, int masks, int pixels, int depth,
    int channels)
{
    const int N = 64;
    extern __shared__ char given[];
    __shared__ __align__(32) float norms[3][N];
    __shared__ unsigned long long barriers[2 * S], ring_barriers[2 * Ring::BOXES];
    const int thread = threadIdx.y * (N / V) + threadIdx.x;
    if (thread < N && blockIdx.y * N + thread < channels) {
        const Norm<1> norm(by, blockIdx.y * N + thread);
        norms[0][thread] = norm.mean[0];
        norms[1][thread] = norm.factor[0];
        norms[2][thread] = norm.shift[0];
    }
    char* const boxes = given + (-place(given) & 1023) + S * stage_bytes<N>() + 2 * ROWS * pitch<N>();
    const Ring ring{boxes, ring_barriers, ring_barriers + Ring::BOXES, adds ? 2 : 1};
    if (thread == 0) ring.prepare();
    const Block<N, S> block(given, barriers, pixels, depth);
    if (thread >= WORKERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (thread == WORKERS) block.load(a, b);
        if (thread == WORKERS + 32) ring.load(x, other, block.first_tile());
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int channel = blockIdx.y * N + threadIdx.x * V, EACH = ROWS / row_step<N>();
        float sums[V] = {}, products[V] = {};
        unsigned char bits[EACH];
        const auto begin = [&](int first, int) {
            if (A == IDENTITY && positive && channel < channels)
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    const int pixel = first + first_row<N>() + j * row_step<N>();
                    if (pixel < pixels) bits[j] = positive[((long long)pixel * channels + channel) / V];
                }
        };
        block.compute(begin, [&](int first, int turn, const char* tile) {
            float means[V], factors[V], shifts[V];
            load<float, V>(means, norms[0] + threadIdx.x * V);
            load<float, V>(factors, norms[1] + threadIdx.x * V);
            load<float, V>(shifts, norms[2] + threadIdx.x * V);
            wait(ring.full + ring.slot(turn), ring.phase(turn));
            const char* const box = ring.box(turn);
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int row = first_row<N>() + j * row_step<N>();
                if (first + row >= pixels || channel >= channels) break;
                auto pack = *reinterpret_cast<const Pack<bfloat16, V>*>(tile + row * pitch<N>() + threadIdx.x * V * 2);
                const auto xs = piece_of(box, row, threadIdx.x);
                float d[V];
#pragma unroll
                for (int i = 0; i < V; i++) d[i] = wide(pack.at[i]);
                if (adds) {
                    const auto others = piece_of(box + Ring::BYTES, row, threadIdx.x);
#pragma unroll
                    for (int i = 0; i < V; i++) d[i] += wide(others.at[i]);
                }
#pragma unroll
                for (int i = 0; i < V; i++) {
                    const float apart = wide(xs.at[i]) - means[i];
                    if (A == IDENTITY && positive) d[i] = bits[j] >> i & 1 ? d[i] : 0;
                    else d[i] = activate_back<A>(d[i], apart * factors[i] + shifts[i], low, high);
                    sums[i] += d[i];
                    products[i] += d[i] * apart;
                    if (masks) pack.at[i] = narrow<bfloat16>(d[i]);
                }
                *reinterpret_cast<Pack<bfloat16, V>*>(out + (long long)(first + row) * channels + channel) = pack;
            }
            __syncwarp();  // all threads of the warp have read the boxes
            warp_arrives(ring.empty + ring.slot(turn), thread % 32);
        });
        const Workers<N> threads;
        threads.wait();  // all have read all chunks
        float* const room = reinterpret_cast<float*>(block.shared);
        finish_sums<V>(threads, to_scale, to_shift, partial, slot, sums, products, by, room, channels, channel);
    }
}

#else  // other architectures have no such products

template <int N, int S> __global__ void product_statistics(
    bfloat16* out, float* mean, float* variance, float* partial, int slot,
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, int pixels, int depth,
    int channels)
{
}

template <int S, int A> __global__ void product_back_sums(
    bfloat16* out, float* to_scale, float* to_shift, float* partial, int slot,
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
    const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap other, int adds,
    const unsigned char* positive, Vectors by, float low, float high, int masks, int pixels, int depth,
    int channels)
{
}

#endif
