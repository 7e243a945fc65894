// The gradient of filters, channels last, stride 1, in tf32 on Hopper's warpgroup products.
//
// The product is that of filter_gradient.cu: the rows are (tap, channel), the columns filters, and
// the sum runs over positions. There the images are loaded again for each tap; here they are loaded
// once.
//
// Positions are numbered through all images, with zeros between rows and between images; the end of
// one row and the beginning of the next share the zeros of their padding. At position q, tap (u, v)
// reads pixel q + u * row + v, so all taps read one strip of pixels. It moves through a ring buffer
// in shared memory, 32 pixels at a time. The first 32 are repeated behind its end, so that a reader
// need not wrap around. Gradients of positions that are not in the result are 0
// (`transpose_gradients`).
//
// A block has a warpgroup that loads data and GROUPS that multiply. A tile is a slice of the
// channels by some taps, in T * GROUPS times 64 rows, by N filters. (tile, chunk) pairs are split
// evenly, and `add_strips` adds the partial sums of a tile in order.
#include "nhwc/conv/warpgroup.cuh"

const int N = 64;
const int PITCH = 64 + 8;  // of pixels in shared memory: no bank conflicts
const int STAGES = 6;      // chunks of gradients in shared memory
const int MOST_RING = 16;  // chunks of pixels

struct Strip {
    int height, width, channels, filters, taps, kw;
    int row, plane, positions, origin;  // positions of a row, of an image, of all; before the first pixel
    int slice, taps_each, depth, ring_bits;  // channels and taps of a tile; chunks they span; log2(ring)
    unsigned long long by_plane, by_row;  // 2 ** 40 / plane + 1, and for a row
    __device__ int slices() const { return (channels + slice - 1) / slice; }
    __device__ int across() const { return (filters + N - 1) / N; }
    __device__ int chunks() const { return (positions + CHUNK - 1) / CHUNK; }
    __device__ int tiles() const { return (taps + taps_each - 1) / taps_each * slices() * across(); }
    __device__ int offset(int tap) const { return tap / kw * row + tap % kw; }
    __device__ int first_tap(int tile) const { return tile / across() / slices() * taps_each; }
    __device__ int first_channel(int tile) const { return tile / across() % slices() * slice; }
    __device__ int first_filter(int tile) const { return tile % across() * N; }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// WHOLE: a slice is 64 channels, so that 64 rows belong to one tap.
template <int GROUPS, int T, bool WHOLE> __global__ void __launch_bounds__(GROUPS * 128 + 128, 1) strips(
    float* partial, const float* x, const float* transposed, const Strip in)
{
    extern __shared__ __align__(1024) char shared[];
    const int ring = 1 << in.ring_bits;
    __shared__ unsigned long long full[STAGES], empty[STAGES], filled[MOST_RING], used[MOST_RING];
    float* const gradients = reinterpret_cast<float*>(shared);
    float* const pixels = gradients + STAGES * N * CHUNK;
    const WorkSplit split(in.tiles(), in.chunks(), gridDim.x);
    const int begin = blockIdx.x * split.per_block, end = min(begin + split.per_block, split.total);
    if (threadIdx.x == 0) {
        const auto start = [](unsigned long long* barrier, int count) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place(barrier)), "r"(count));
        };
        for (int i = 0; i < STAGES; i++) start(full + i, 1), start(empty + i, ARRIVALS * GROUPS);
        for (int i = 0; i < MOST_RING; i++) start(filled + i, 128), start(used + i, ARRIVALS * GROUPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();

    int fill = 0, number = 0;  // chunks of pixels and of gradients so far
    if (threadIdx.x >= GROUPS * 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(GROUPS == 3 ? 32 : 56));
        const int thread = threadIdx.x - GROUPS * 128, quads = in.slice / 4;
        const unsigned by_quad = 65536 / quads + 1;
        for (int step = begin; step < end;) {
            const int tile = step / split.chunks, last = min((tile + 1) * split.chunks, end);
            const int chunk = step - tile * split.chunks, count = last - step;
            const int first = in.first_channel(tile);
            int slot = chunk * CHUNK + in.offset(in.first_tap(tile)) - in.origin;
            for (int i = 0; i < count + in.depth; i++, fill++, slot += CHUNK) {
                const int place_in_ring = fill & ring - 1;
                wait(used + place_in_ring, (fill >> in.ring_bits & 1) ^ 1);
#pragma unroll 1  // leaves registers to the warpgroups that multiply
                for (int copy = thread; copy < CHUNK * quads; copy += 128) {
                    const int pixel = copy * by_quad >> 16, quad = (copy - pixel * quads) * 4;
                    const unsigned at = slot + pixel, image = at * in.by_plane >> 40;
                    const unsigned rest = at - image * in.plane, h = rest * in.by_row >> 40;
                    const unsigned w = rest - h * in.row;
                    const bool there = at < in.positions && h < in.height && w < in.width
                        && first + quad < in.channels;
                    const long long from =
                        ((long long)(image * in.height + h) * in.width + w) * in.channels + first + quad;
                    float* const to = pixels + (place_in_ring * CHUNK + pixel) * PITCH + quad;
                    load_async(to, there ? x + from : x, there);
                    if (place_in_ring == 0) load_async(to + ring * CHUNK * PITCH, there ? x + from : x, there);
                }
                arrive_when_loaded(filled + place_in_ring);
                if (thread == 0 && i >= in.depth) {
                    const int stage = number % STAGES;
                    wait(empty + stage, (number / STAGES & 1) ^ 1);
                    const long long line = (long long)(chunk + i - in.depth) * in.across() * N;
                    bulk_copy(gradients + stage * N * CHUNK, transposed + (line + in.first_filter(tile)) * CHUNK,
                        N * CHUNK * 4, full + stage);
                }
                number += i >= in.depth;
            }
            step = last;
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(GROUPS == 3 ? 160 : 224));
        const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const int quarter = lane % 4, first_row = group * T * 64 + warp * 16 + lane / 4;
        const int mask = ring * CHUNK - 1;
        for (int step = begin; step < end;) {
            const int tile = step / split.chunks, last = min((tile + 1) * split.chunks, end);
            const int count = last - step, tap = in.first_tap(tile);
            const int HALVES = WHOLE ? 1 : 2;
            int ahead[T][HALVES], channel[T][HALVES];  // a thread's rows in the strip
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int half = 0; half < HALVES; half++) {
                    const int row = first_row + t * 64 + half * 8, which = row / in.slice;
                    const bool there = which < in.taps_each && tap + which < in.taps;
                    ahead[t][half] = there ? in.offset(tap + which) - in.offset(tap) + quarter : quarter;
                    channel[t][half] = WHOLE ? warp * 16 + lane / 4 : row - which * in.slice;
                }
            float sums[T][N / 2] = {};
            unsigned a[2][CHUNK / 8][4];
            const auto release = [&](int i) {
                __syncwarp();  // all threads of the warp have read the pixels
                warp_arrives(empty + (number + i) % STAGES, lane);
                warp_arrives(used + (fill + i & ring - 1), lane);
            };
            // One chunk; `odd` says which of the two sets of registers is used first.
            const auto take = [&](int i, int odd) {
                const int newest = fill + i + in.depth;
                wait(filled + (newest & ring - 1), newest >> in.ring_bits & 1);
                wait(full + (number + i) % STAGES, (number + i) / STAGES & 1);
                const unsigned long long lines = lines_at(gradients + (number + i) % STAGES * N * CHUNK);
                const int start = (fill + i) * CHUNK;
#pragma unroll
                for (int t = 0; t < T; t++) {
                    unsigned(&now)[CHUNK / 8][4] = a[(t + odd) & 1];
                    const float* row[2];
                    row[0] = pixels + (start + ahead[t][0] & mask) * PITCH + channel[t][0];
                    row[1] = WHOLE ? row[0] + 8
                        : pixels + (start + ahead[t][HALVES - 1] & mask) * PITCH + channel[t][HALVES - 1];
#pragma unroll
                    for (int k = 0; k < CHUNK / 8; k++)
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            now[k][j] = quickly_rounded(row[j % 2][(k * 8 + j / 2 * 4) * PITCH]);
                    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                    for (int k = 0; k < CHUNK / 8; k++) multiply<N>(sums[t], now[k], lines + k * 2);
                    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    if (t == 0 && i > 0) release(i - 1);
                }
            };
            for (int i = fill; i < fill + in.depth; i++)
                wait(filled + (i & ring - 1), i >> in.ring_bits & 1);
            take(0, 0);
            for (int i = 1; i < count; i += 2) {
                take(i, T & 1);
                if (i + 1 == count) break;
                take(i + 1, 0);
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            release(count - 1);
            number += count;
            fill += count;
            __syncwarp();
            for (int i = 0; i < in.depth; i++, fill++)
                warp_arrives(used + (fill & ring - 1), lane);
            step = last;

            const int part = blockIdx.x - split.first_block(tile);
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = first_row + t * 64 + half * 8, which = row / in.slice;
                    const int c = in.first_channel(tile) + row - which * in.slice;
                    if (which >= in.taps_each || tap + which >= in.taps || c >= in.channels) continue;
                    const int at = (tap + which) * in.channels + c, rows = in.taps * in.channels;
#pragma unroll
                    for (int i = 0; i < N / 4; i++) {
                        const int filter = in.first_filter(tile) + i / 2 * 8 + quarter * 2 + i % 2;
                        if (filter < in.filters)
                            partial[((long long)part * in.filters + filter) * rows + at] =
                                sums[t][i / 2 * 4 + half * 2 + i % 2];
                    }
                }
        }
    }
}

#else  // other architectures have no such products and use other plans

template <int GROUPS, int T, bool WHOLE> __global__ void strips(
    float* partial, const float* x, const float* transposed, const Strip in)
{
}

#endif

// out = the sum of the blocks' partial sums, four channels at a time.
extern "C" __global__ void add_strips(float4* out, const float4* partial, const Strip in, int blocks)
{
    const WorkSplit split(in.tiles(), in.chunks(), blocks);
    const int quads = in.taps * in.channels / 4, count = quads * in.filters;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int filter = i / quads, row = (i - filter * quads) * 4, tap = row / in.channels;
        const int place = tap / in.taps_each * in.slices() + (row - tap * in.channels) / in.slice;
        const int tile = place * in.across() + filter / N;
        const int parts = split.last_block(tile) - split.first_block(tile);
        out[i] = summed(partial, i, count, parts);
    }
}
