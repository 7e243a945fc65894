// A forward convolution from few channels to at most 64 filters, channels last, stride 1, in tf32
// on Hopper's warpgroup products, with bias and ReLU.
//
// Rows of the product are positions, columns filters, and the sum runs over taps and channels. All
// filters stay in shared memory. Positions are numbered as in filter_gradient_strips.cu, with zeros
// between rows and between images, so all taps read one strip of pixels, which moves through a ring
// buffer in shared memory. A block has one warpgroup that loads pixels and GROUPS that multiply, 64
// positions each. Blocks take equal shares of all positions.
//
// The summed index is ordered by groups of four channels of a tap, two groups for each product, so
// that the offsets of the four numbers that a thread needs are constants: KH, KW and C are macros.
#include "nhwc/conv/warpgroup.cuh"

#ifndef KH  // GoogLeNet's first layer, in blocks of 2 x 2 pixels
#define KH 4
#define KW 4
#define C 12
#define PITCH 12
#define RING_BITS 5
#endif

const int N = 64;
const int GROUPS = 3;
const int TILE = 64 * GROUPS;                // positions
const int QUADS = C / 4;                     // groups of four channels
const int SUMMED = KH * KW * QUADS;          // groups in all
const int CHUNKS = (SUMMED + 7) / 8;         // of eight groups: lines of 128 bytes
const int RING = 1 << RING_BITS;             // chunks of 32 pixels
const int MASK = RING * CHUNK - 1;

struct Layer {
    int height, width, filters, out_height, out_width;
    int row, plane, positions, origin;  // positions of a row, of an image, of all; before the first pixel
    int relu;
    unsigned long long by_plane, by_row;  // 2 ** 40 / plane + 1, and for a row
};

// The image, row and column of a position.
struct Spot {
    unsigned image, h, w;
    __device__ Spot(const Layer& in, unsigned position)
    {
        image = position * in.by_plane >> 40;
        const unsigned rest = position - image * in.plane;
        h = rest * in.by_row >> 40;
        w = rest - h * in.row;
    }
};

// out[chunk, filter, 32] = the filters (filters, KH * KW, C) in the order of the products, rounded
// and swizzled; 0 where there is none.
extern "C" __global__ void arrange_filters(unsigned* out, const float* w, int filters)
{
    const int filter = blockIdx.x, chunk = threadIdx.x / CHUNK, k = threadIdx.x % CHUNK;
    const int group = chunk * 8 + k / 4, tap = group / QUADS, channel = group % QUADS * 4 + k % 4;
    const bool there = filter < filters && group < SUMMED;
    const int quad = k / 4 ^ filter & 7;
    out[(chunk * N + filter) * CHUNK + quad * 4 + k % 4] =
        there ? rounded(w[(filter * KH * KW + tap) * C + channel]) : 0;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

extern "C" __global__ void __launch_bounds__(GROUPS * 128 + 128, 1) narrow(
    float* out, const float* x, const float* arranged, const float* bias, const Layer in)
{
    extern __shared__ __align__(1024) char shared[];
    __shared__ unsigned long long ready, filled[RING], used[RING];
    float* const filters = reinterpret_cast<float*>(shared);
    float* const pixels = filters + CHUNKS * N * CHUNK;
    const int tiles = (in.positions + TILE - 1) / TILE, each = (tiles + gridDim.x - 1) / gridDim.x;
    const int begin = blockIdx.x * each, count = min(begin + each, tiles) - begin;
    const int span = (KH - 1) * in.row + KW - 1;
    if (threadIdx.x == 0) {
        const auto start = [](unsigned long long* barrier, int arrivals) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place(barrier)), "r"(arrivals));
        };
        start(&ready, 1);
        for (int i = 0; i < RING; i++) start(filled + i, 128), start(used + i, ARRIVALS * GROUPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
    if (count <= 0) return;

    if (threadIdx.x >= GROUPS * 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        const int thread = threadIdx.x - GROUPS * 128;
        if (thread == 0) bulk_copy(filters, arranged, CHUNKS * N * CHUNK * 4, &ready);
        const int fills = (count * TILE + span + CHUNK - 1) / CHUNK;
        int slot = begin * TILE - in.origin;
        for (int fill = 0; fill < fills; fill++, slot += CHUNK) {
            const int here = fill & RING - 1;
            wait(used + here, (fill >> RING_BITS & 1) ^ 1);
#pragma unroll 1
            for (int copy = thread; copy < CHUNK * QUADS; copy += 128) {
                const int pixel = copy / QUADS, quad = (copy - pixel * QUADS) * 4;
                const unsigned position = slot + pixel;
                const Spot at(in, position);
                const bool there = position < in.positions && at.h < in.height && at.w < in.width;
                const long long from = ((long long)(at.image * in.height + at.h) * in.width + at.w) * C + quad;
                load_async(pixels + (here * CHUNK + pixel) * PITCH + quad, there ? x + from : x, there);
            }
            arrive_when_loaded(filled + here);
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
        const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const int quarter = lane % 4, row = group * 64 + warp * 16 + lane / 4;
        float added[N / 4];  // the biases of this thread's columns
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            const int filter = i / 2 * 8 + quarter * 2 + i % 2;
            added[i] = filter < in.filters ? bias[filter] : 0;
        }
        wait(&ready, 0);
        const unsigned long long lines = lines_at(filters);
        int seen = 0, done = 0;  // chunks of pixels that have arrived, and that were released
        for (int tile = 0; tile < count; tile++) {
            const int first = tile * TILE + group * 64;
            for (; seen <= (first + 63 + span) / CHUNK; seen++)
                wait(filled + (seen & RING - 1), seen >> RING_BITS & 1);
            float sums[N / 2] = {};
            unsigned a[2][4][4];
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) {
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    const int which = chunk * 8 + k < SUMMED ? chunk * 8 + k : 0, tap = which / QUADS;
                    const int ahead = tap / KW * in.row + tap % KW;
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int at = tile * TILE + row + half * 8 + ahead & MASK;
                        a[chunk & 1][k / 2][k % 2 * 2 + half] =
                            quickly_rounded(pixels[at * PITCH + which % QUADS * 4 + quarter]);
                    }
                }
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < 4; k++)
                    multiply<N>(sums, a[chunk & 1][k], lines + chunk * (N * CHUNK * 4 >> 4) + k * 2);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            __syncwarp();  // all threads of the warp have read the pixels
            for (; done < min(seen, (first + TILE) / CHUNK); done++)  // only those that it has waited for
                warp_arrives(used + (done & RING - 1), lane);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const unsigned position = begin * TILE + tile * TILE + row + half * 8;
                const Spot at(in, position);
                if (position >= in.positions || at.h >= in.out_height || at.w >= in.out_width) continue;
                float* const to = out
                    + ((long long)(at.image * in.out_height + at.h) * in.out_width + at.w) * in.filters
                    + quarter * 2;
#pragma unroll
                for (int i = 0; i < N / 8; i++) {
                    float2 pair;
                    pair.x = sums[i * 4 + half * 2] + added[i * 2];
                    pair.y = sums[i * 4 + half * 2 + 1] + added[i * 2 + 1];
                    if (in.relu && pair.x < 0) pair.x = 0;
                    if (in.relu && pair.y < 0) pair.y = 0;
                    if (i * 8 + quarter * 2 < in.filters) *reinterpret_cast<float2*>(to + i * 8) = pair;
                }
            }
        }
    }
}

#else  // other architectures have no such products and use other plans

extern "C" __global__ void narrow(
    float* out, const float* x, const float* arranged, const float* bias, const Layer in)
{
}

#endif
