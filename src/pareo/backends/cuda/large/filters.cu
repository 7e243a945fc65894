// The gradient of filters, channels last, in tf32 on Hopper's warpgroup products (wgmma, sm_90a).
//
// It is one large product: the rows are (tap, channel), the columns filters, and what is summed up are
// the positions of the result, through all images. Products of 32-bit numbers want both factors with
// the summed index side by side, and in an array whose channels lie last neither has it so. So
//
// - `turn` lays the result's gradients out anew, rounded: (chunks of 32 positions, filters, 32), each
//   line swizzled as wgmma reads it from shared memory: a tile is then one stretch of memory;
// - the images stay where they are: they are gathered by tap into shared memory, and from there into
//   registers, from which wgmma takes its first factor in any order.
//
// Tiles are ROWS x (N * T). A block of three warpgroups, one that brings the data and two that
// multiply, takes an equal share of all (tile, chunk) pairs, so that no multiprocessor is idle. Where
// a tile is shared, each block leaves a part of the sums; `add_parts` adds them in order.
const int CHUNK = 32;        // positions: 128 bytes of a line
const int ROWS = 128;        // of a tile, 64 for each multiplying warpgroup
const int PITCH = 64 + 8;    // of images in shared memory: no two threads meet in a bank
const int STAGES = 4;
const int THREADS = 384;

__device__ inline unsigned rounded(float value)
{
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

// out[chunk, filter, p] = g[chunk * CHUNK + p, filter], rounded and swizzled; 0 beyond the end.
extern "C" __global__ void turn(
    unsigned* out, const float* g, int positions, int filters, int padded_filters)
{
    __shared__ unsigned tile[CHUNK][33];
    const int filter = blockIdx.y * 32 + threadIdx.x;
    for (int r = threadIdx.y; r < CHUNK; r += 8) {
        const int position = blockIdx.x * CHUNK + r;
        const bool there = position < positions && filter < filters;
        tile[r][threadIdx.x] = there ? rounded(g[(long long)position * filters + filter]) : 0;
    }
    __syncthreads();
    for (int r = threadIdx.y; r < 32; r += 8) {
        const int line = blockIdx.y * 32 + r, quad = threadIdx.x / 4 ^ (line & 7);
        out[((long long)blockIdx.x * padded_filters + line) * CHUNK + quad * 4 + threadIdx.x % 4] =
            tile[threadIdx.x][r];
    }
}

struct Shape {
    int height, width, channels, out_height, out_width, filters, kh, kw;
    int down, along, top, left, down_tap, along_tap;  // stride, padding, dilation
    int positions;
    unsigned long long by_plane, by_row;  // 2 ** 40 / (the result's pixels) + 1, and for a row
};

// How the (tile, chunk) pairs are shared out.
struct Shares {
    int across, chunks, total, each;
    __device__ Shares(int rows, int filters, int width, int positions, int blocks)
    {
        across = (filters + width - 1) / width;
        chunks = (positions + CHUNK - 1) / CHUNK;
        total = (rows + ROWS - 1) / ROWS * across * chunks;
        each = (total + blocks - 1) / blocks;
    }
    __device__ int first_block(int tile) const { return tile * chunks / each; }
    __device__ int last_block(int tile) const { return ((tile + 1) * chunks - 1) / each; }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline unsigned place(const void* shared) { return __cvta_generic_to_shared(shared); }

__device__ inline void wait(unsigned long long* barrier, int phase)
{
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" :: "r"(place(barrier)), "r"(phase) : "memory");
}

__device__ inline void arrive(unsigned long long* barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(place(barrier)) : "memory");
}

#define EIGHT(s, i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), \
    "+f"(s[i + 5]), "+f"(s[i + 6]), "+f"(s[i + 7])
#define FIRST_32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NEXT_16 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define LAST_16 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ALWAYS "{\n.reg .pred yes;\nsetp.eq.u32 yes, 0, 0;\nwgmma.mma_async.sync.aligned."
#define GIVEN(a, b) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)

// sums += a * b, for 64 rows, N columns and eight positions.
template <int N> __device__ inline void multiply(
    float (&s)[N / 2], const unsigned (&a)[4], unsigned long long b);

template <> __device__ inline void multiply<64>(
    float (&s)[32], const unsigned (&a)[4], unsigned long long b)
{
    asm volatile(ALWAYS "m64n64k8.f32.tf32.tf32 " FIRST_32
                 "}, {%32, %33, %34, %35}, %36, yes, 1, 1;\n}"
                 : EIGHT(s, 0), EIGHT(s, 8), EIGHT(s, 16), EIGHT(s, 24) : GIVEN(a, b));
}

template <> __device__ inline void multiply<96>(
    float (&s)[48], const unsigned (&a)[4], unsigned long long b)
{
    asm volatile(ALWAYS "m64n96k8.f32.tf32.tf32 " FIRST_32 NEXT_16
                 "}, {%48, %49, %50, %51}, %52, yes, 1, 1;\n}"
                 : EIGHT(s, 0), EIGHT(s, 8), EIGHT(s, 16), EIGHT(s, 24), EIGHT(s, 32), EIGHT(s, 40)
                 : GIVEN(a, b));
}

template <> __device__ inline void multiply<128>(
    float (&s)[64], const unsigned (&a)[4], unsigned long long b)
{
    asm volatile(ALWAYS "m64n128k8.f32.tf32.tf32 " FIRST_32 NEXT_16 LAST_16
                 "}, {%64, %65, %66, %67}, %68, yes, 1, 1;\n}"
                 : EIGHT(s, 0), EIGHT(s, 8), EIGHT(s, 16), EIGHT(s, 24), EIGHT(s, 32), EIGHT(s, 40),
                   EIGHT(s, 48), EIGHT(s, 56)
                 : GIVEN(a, b));
}

// A stage of the ring in shared memory.
template <int WIDTH> struct Stage {
    float gradients[WIDTH * CHUNK];  // first, at a multiple of 1024 bytes
    float images[2][CHUNK][PITCH];
};

template <int WIDTH> __device__ constexpr int stage_bytes()
{
    return (sizeof(Stage<WIDTH>) + 1023) / 1024 * 1024;
}

// Where a position of the result begins to look at its image: row and column, and the place of both.
struct Look {
    int h, w, place;
    __device__ Look(const Shape& in, unsigned position)
    {
        const unsigned image = position * in.by_plane >> 40;
        const unsigned rest = position - image * in.out_height * in.out_width;
        const int y = rest * in.by_row >> 40;
        h = position < in.positions ? y * in.down - in.top : -(1 << 30);  // beyond the end: nowhere
        w = (int)(rest - y * in.out_width) * in.along - in.left;
        place = ((int)(image * in.height) + y * in.down - in.top) * in.width + w;
    }
};

// Brings four rows of the product: at a tap, four channels.
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
        if (tap >= in.kh * in.kw) u = 1 << 29;  // behind the last row: outside every image
    }

    __device__ void bring(float* to, const float* x, const Shape& in, int h, int w, int place_of) const
    {
        const bool there = (unsigned)(h + u) < (unsigned)in.height && (unsigned)(w + v) < (unsigned)in.width;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(place(to)), "l"(there ? from + (long long)place_of * channels : x),
                        "r"(there ? 16 : 0) : "memory");
    }
};

template <int N, int T> __global__ void __launch_bounds__(THREADS, 1) filters_back(
    float* partial, const float* x, const float* turned, const Shape in)
{
    const int WIDTH = N * T, BYTES = stage_bytes<WIDTH>();
    extern __shared__ __align__(1024) char shared[];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    const auto stage = [&](int i) { return reinterpret_cast<Stage<WIDTH>*>(shared + i % STAGES * BYTES); };
    const int rows = in.kh * in.kw * in.channels;
    const Shares shares(rows, in.filters, WIDTH, in.positions, gridDim.x);
    const int begin = blockIdx.x * shares.each, end = min(begin + shares.each, shares.total);
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place(full + i)), "r"(128 + 1));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place(empty + i)), "r"(8));
        }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();

    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        const int thread = threadIdx.x - 256, quad = thread % 32 * 4, line = thread / 32;
        for (int step = begin; step < end;) {
            const int tile = step / shares.chunks, last = min((tile + 1) * shares.chunks, end);
            const Gatherer gatherer(in, x, tile / shares.across * ROWS + quad);
            const float* gradients = turned + tile % shares.across * WIDTH * CHUNK;
            for (; step < last; step++) {
                const int number = step - begin, chunk = step - tile * shares.chunks;
                unsigned long long* ready = full + number % STAGES;
                const Look look(in, chunk * CHUNK + thread % 32);
                wait(empty + number % STAGES, (number / STAGES & 1) ^ 1);
                Stage<WIDTH>* to = stage(number);
                if (thread == 0) {
                    const int bytes = WIDTH * CHUNK * 4;
                    const long long from = (long long)chunk * shares.across * WIDTH * CHUNK;
                    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                                 :: "r"(place(ready)), "r"(bytes) : "memory");
                    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                                 "[%0], [%1], %2, [%3];"
                                 :: "r"(place(to->gradients)), "l"(gradients + from), "r"(bytes),
                                    "r"(place(ready)) : "memory");
                }
#pragma unroll
                for (int i = 0; i < CHUNK; i += 4) {
                    const int p = line + i;  // each position is looked up by one lane, for all
                    const int h = __shfl_sync(~0u, look.h, p), w = __shfl_sync(~0u, look.w, p);
                    gatherer.bring(&to->images[quad / 64][p][quad % 64], x, in, h, w,
                                   __shfl_sync(~0u, look.place, p));
                }
                asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                             :: "r"(place(ready)) : "memory");
            }
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const int row = warp * 16 + lane / 4, quarter = lane % 4;
        for (int step = begin; step < end;) {
            const int tile = step / shares.chunks, last = min((tile + 1) * shares.chunks, end);
            float sums[T][N / 2] = {};
            unsigned a[2][CHUNK / 8][4];
            const auto release = [&](int number) {
                if (lane == 0) arrive(empty + number % STAGES);
            };
            const auto take = [&](int number, unsigned (&a)[CHUNK / 8][4]) {
                wait(full + number % STAGES, number / STAGES & 1);
                Stage<WIDTH>* from = stage(number);
                const float* image = &from->images[group][quarter][row];
#pragma unroll
                for (int k = 0; k < CHUNK / 8; k++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        a[k][i] = rounded(image[(k * 8 + i / 2 * 4) * PITCH + i % 2 * 8]);
                // A swizzled line of 128 bytes, eight of which are 1024 bytes apart from the next.
                const unsigned long long start = (place(from->gradients) & 0x3FFFF) >> 4;
                const unsigned long long lines = start | 1ull << 16 | 64ull << 32 | 1ull << 62;
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

            const int part = blockIdx.x - shares.first_block(tile);
            const int first_row = tile / shares.across * ROWS + group * 64 + row;
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int i = 0; i < N / 2; i++) {
                    const int at = first_row + i / 2 % 2 * 8;
                    const int filter = tile % shares.across * WIDTH + t * N + i / 4 * 8 + quarter * 2 + i % 2;
                    if (at < rows && filter < in.filters)
                        partial[((long long)part * in.filters + filter) * rows + at] = sums[t][i];
                }
        }
    }
}

#else  // other cards have no such products; their convolutions go another way

template <int N, int T> __global__ void filters_back(
    float* partial, const float* x, const float* turned, const Shape in)
{
}

#endif

// out = the sum of the parts that the blocks left, four rows at a time.
extern "C" __global__ void add_parts(
    float4* out, const float4* partial, int rows, int filters, int width, int positions, int blocks)
{
    const Shares shares(rows, filters, width, positions, blocks);
    const int count = rows / 4 * filters;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int filter = i / (rows / 4), row = (i - filter * (rows / 4)) * 4;
        const int tile = row / ROWS * shares.across + filter / width;
        const int parts = shares.last_block(tile) - shares.first_block(tile);
        float4 sum = partial[i];
        for (int part = 1; part <= parts; part++) {
            const float4 next = partial[(long long)part * count + i];
            sum.x += next.x;
            sum.y += next.y;
            sum.z += next.z;
            sum.w += next.w;
        }
        out[i] = sum;
    }
}
