// The gradient of filters, channels last, in tf32 on Hopper's warpgroup products (wgmma, sm_90a).
//
// It is one large matrix product: the rows are (tap, channel), the columns filters, and the sum
// runs over the positions of the result in all images. wgmma needs 32-bit factors in shared memory
// with the summed index contiguous, which neither factor has in channels-last layout. Therefore
//
// - `transpose_gradients` copies the result's gradients, rounded, to (chunks of 32 positions,
//   filters, 32), each line swizzled as wgmma reads it from shared memory: a tile is then one
//   contiguous copy;
// - the images stay in their layout: they are gathered by tap into shared memory and read from there
//   into registers, from which wgmma takes its first factor in any order.
//
// Tiles are ROWS x (N * T). A block has three warpgroups: one loads data and two multiply. Blocks
// take equal shares of all (tile, chunk) pairs, so that no multiprocessor is idle. Where blocks
// share a tile, each writes a partial sum; `add_parts` adds them in order.
#include "nhwc/conv/warpgroup.cuh"

const int ROWS = 128;        // of a tile, 64 for each multiplying warpgroup
const int PITCH = 64 + 8;    // of images in shared memory: no bank conflicts
const int STAGES = 4;
const int THREADS = 384;

// The positions of the sum in the result: row by row of each image, where a row and an image may
// have more positions than pixels. by_plane and by_row replace divisions: they are 2 ** 40 / count
// + 1.
struct Grid {
    int positions, plane, row, out_height, out_width, filters, padded_filters;
    unsigned long long by_plane, by_row;
};

// out[chunk, filter, p] = g[chunk * CHUNK + p, filter], rounded and swizzled; 0 where there is
// none.
extern "C" __global__ void transpose_gradients(unsigned* out, const float* g, const Grid in)
{
    __shared__ unsigned tile[CHUNK][33];
    const int high = threadIdx.x / 8, quad = threadIdx.x % 8;  // 256 threads, four numbers each
    const unsigned position = blockIdx.x * CHUNK + high;
    const unsigned image = position * in.by_plane >> 40, rest = position - image * in.plane;
    const unsigned y = rest * in.by_row >> 40, x = rest - y * in.row;
    const bool made = position < in.positions && y < in.out_height && x < in.out_width;
    const int filter = blockIdx.y * 32 + quad * 4;
    const float* from = g + (((long long)image * in.out_height + y) * in.out_width + x) * in.filters + filter;
    float four[4] = {};
    if (made && in.filters % 4 == 0) {
        if (filter < in.filters) *reinterpret_cast<float4*>(four) = *reinterpret_cast<const float4*>(from);
    } else if (made) {
        for (int i = 0; i < 4 && filter + i < in.filters; i++) four[i] = from[i];
    }
    for (int i = 0; i < 4; i++) tile[high][quad * 4 + i] = rounded(four[i]);
    __syncthreads();
    const int line = blockIdx.y * 32 + high;
    const long long start = ((long long)blockIdx.x * in.padded_filters + line) * CHUNK;
    uint4 transposed;
    transposed.x = tile[quad * 4][high], transposed.y = tile[quad * 4 + 1][high];
    transposed.z = tile[quad * 4 + 2][high], transposed.w = tile[quad * 4 + 3][high];
    *reinterpret_cast<uint4*>(out + start + (quad ^ line & 7) * 4) = transposed;
}

struct Shape {
    int height, width, channels, out_height, out_width, filters, kh, kw;
    int down, along, top, left, down_tap, along_tap;  // stride, padding, dilation
    int positions;
    unsigned long long by_plane, by_row;  // 2 ** 40 / (the result's pixels) + 1, and for a row
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A stage of the ring in shared memory.
template <int WIDTH> struct Stage {
    float gradients[WIDTH * CHUNK];  // first, at a multiple of 1024 bytes
    float images[2][CHUNK][PITCH];
};

template <int WIDTH> __device__ constexpr int stage_bytes()
{
    return (sizeof(Stage<WIDTH>) + 1023) / 1024 * 1024;
}

// The first pixel that a position of the result reads: its row, its column and its offset.
struct Look {
    int h, w, place;
    __device__ Look(const Shape& in, unsigned position)
    {
        const unsigned image = position * in.by_plane >> 40;
        const unsigned rest = position - image * in.out_height * in.out_width;
        const int y = rest * in.by_row >> 40;
        h = position < in.positions ? y * in.down - in.top : -(1 << 30);  // or nowhere
        w = (int)(rest - y * in.out_width) * in.along - in.left;
        place = ((int)(image * in.height) + y * in.down - in.top) * in.width + w;
    }
};

// Loads four rows of the product: four channels at one tap.
struct Gatherer {
    const float* from;
    int u, v, channels;
    __device__ Gatherer(const Shape& in, const float* x, int row)
    {
        const int tap = row / in.channels;
        u = tap / in.kw * in.down_tap;
        v = tap % in.kw * in.along_tap;
        channels = in.channels;
        from = x + (u * in.width + v) * channels + row - tap * channels;
        if (tap >= in.kh * in.kw) u = 1 << 29;  // behind the last row: outside the image
    }

    __device__ void gather(float* to, const float* x, const Shape& in, int h, int w, int place_of) const
    {
        const bool there = (unsigned)(h + u) < (unsigned)in.height && (unsigned)(w + v) < (unsigned)in.width;
        load_async(to, there ? from + (long long)place_of * channels : x, there);
    }
};

template <int N, int T> __global__ void __launch_bounds__(THREADS, 1) filters_back(
    float* partial, const float* x, const float* transposed, const Shape in)
{
    const int WIDTH = N * T, BYTES = stage_bytes<WIDTH>();
    extern __shared__ __align__(1024) char shared[];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    const auto stage = [&](int i) { return reinterpret_cast<Stage<WIDTH>*>(shared + i % STAGES * BYTES); };
    const int rows = in.kh * in.kw * in.channels, across = (in.filters + WIDTH - 1) / WIDTH;
    const int chunks = (in.positions + CHUNK - 1) / CHUNK;
    const WorkSplit split((rows + ROWS - 1) / ROWS * across, chunks, gridDim.x);
    const int begin = blockIdx.x * split.per_block, end = min(begin + split.per_block, split.total);
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place(full + i)), "r"(128 + 1));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place(empty + i)), "r"(2 * ARRIVALS));
        }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();

    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        const int thread = threadIdx.x - 256, quad = thread % 32 * 4, line = thread / 32;
        for (int step = begin; step < end;) {
            const int tile = step / split.chunks, last = min((tile + 1) * split.chunks, end);
            const Gatherer gatherer(in, x, tile / across * ROWS + quad);
            const float* gradients = transposed + tile % across * WIDTH * CHUNK;
            for (; step < last; step++) {
                const int number = step - begin, chunk = step - tile * split.chunks;
                unsigned long long* ready = full + number % STAGES;
                const Look look(in, chunk * CHUNK + thread % 32);
                wait(empty + number % STAGES, (number / STAGES & 1) ^ 1);
                Stage<WIDTH>* to = stage(number);
                if (thread == 0) {
                    const long long from = (long long)chunk * across * WIDTH * CHUNK;
                    bulk_copy(to->gradients, gradients + from, WIDTH * CHUNK * 4, ready);
                }
#pragma unroll
                for (int i = 0; i < CHUNK; i += 4) {
                    const int p = line + i;  // one lane computes each position for all
                    const int h = __shfl_sync(~0u, look.h, p), w = __shfl_sync(~0u, look.w, p);
                    gatherer.gather(&to->images[quad / 64][p][quad % 64], x, in, h, w,
                                    __shfl_sync(~0u, look.place, p));
                }
                arrive_when_loaded(ready);
            }
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const int row = warp * 16 + lane / 4, quarter = lane % 4;
        for (int step = begin; step < end;) {
            const int tile = step / split.chunks, last = min((tile + 1) * split.chunks, end);
            float sums[T][N / 2] = {};
            unsigned a[2][CHUNK / 8][4];
            const auto release = [&](int number) {
                __syncwarp();  // all threads of the warp have read the images
                warp_arrives(empty + number % STAGES, lane);
            };
            const auto take = [&](int number, unsigned (&a)[CHUNK / 8][4]) {
                wait(full + number % STAGES, number / STAGES & 1);
                Stage<WIDTH>* from = stage(number);
                const float* image = &from->images[group][quarter][row];
#pragma unroll
                for (int k = 0; k < CHUNK / 8; k++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        a[k][i] = quickly_rounded(image[(k * 8 + i / 2 * 4) * PITCH + i % 2 * 8]);
                const unsigned long long lines = lines_at(from->gradients);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < CHUNK / 8; k++)
#pragma unroll
                    for (int t = 0; t < T; t++)
                        multiply<N>(sums[t], a[k], lines + k * 2 + t * (N * CHUNK * 4 >> 4));
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            };
            int number = step - begin, count = last - step;
            take(number, a[0]);
            for (int i = 1; i < count; i += 2) {
                take(number + i, a[1]);
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                release(number + i - 1);
                if (i + 1 == count) break;
                take(number + i + 1, a[0]);
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                release(number + i);
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            release(number + count - 1);
            step = last;

            const int part = blockIdx.x - split.first_block(tile);
            const int first_row = tile / across * ROWS + group * 64 + row;
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int i = 0; i < N / 2; i++) {
                    const int at = first_row + i / 2 % 2 * 8;
                    const int filter = tile % across * WIDTH + t * N + i / 4 * 8 + quarter * 2 + i % 2;
                    if (at < rows && filter < in.filters)
                        partial[((long long)part * in.filters + filter) * rows + at] = sums[t][i];
                }
        }
    }
}

#else  // other architectures have no such products and use other plans

template <int N, int T> __global__ void filters_back(
    float* partial, const float* x, const float* transposed, const Shape in)
{
}

#endif

// out = the sum of the blocks' partial sums, four rows at a time.
extern "C" __global__ void add_parts(
    float4* out, const float4* partial, int rows, int filters, int width, int positions, int blocks)
{
    const int across = (filters + width - 1) / width;
    const WorkSplit split((rows + ROWS - 1) / ROWS * across, (positions + CHUNK - 1) / CHUNK, blocks);
    const int count = rows / 4 * filters;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int filter = i / (rows / 4), row = (i - filter * (rows / 4)) * 4;
        const int tile = row / ROWS * across + filter / width;
        const int parts = split.last_block(tile) - split.first_block(tile);
        out[i] = summed(partial, i, count, parts);
    }
}
