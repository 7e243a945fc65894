// The gradient of filters, channels last, stride 1, in tf32 on the tensor cores (mma.sync).
//
// Positions are counted through the padded images, row by row: at position q, tap (u, v) of a filter
// sees the image at q + u * padded_width + v. So all taps read the same stretch of the images, which
// lies in shared memory once, shifted: cuDNN reads it again for every tap. Where q is no output, the
// gradient g counts as 0.
//
// A block sums up FILTERS filters by all taps of `slice` channels, over some positions; its warps
// share the columns (tap, channel). The blocks of one place leave `partial` sums, added up after.
const int FILTERS = 64;   // of a block, and of each warp
const int TILES = 9;      // of eight columns, of a warp
const int UNIT = 128;     // positions whose images are in shared memory together
const int CHUNK = 32;     // positions whose gradients are
const int STAGES = 3;     // chunks on their way
const int PITCH = FILTERS + 8;  // of gradients in shared memory: no two threads meet in a bank

struct Image {
    int images, height, width, channels, out_height, out_width, filters, kh, kw, top, left;
    int padded_width, plane;             // of a padded image
    unsigned long long by_plane, by_row;  // 2 ** 40 / plane + 1, and for a row: for quick division
};

struct Spot {
    int image, y, x;
    __device__ Spot(const Image& in, unsigned q)
    {
        image = q * in.by_plane >> 40;
        const unsigned rest = q - image * in.plane;
        y = rest * in.by_row >> 40;
        x = rest - y * in.padded_width;
    }
};

__device__ inline void copy(float* to, const float* from, bool there)
{
    const unsigned place = __cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(place), "l"(from), "r"(there ? 16 : 0));
}

__device__ inline unsigned rounded(float value)
{
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

__device__ inline void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int WARPS> __device__ inline void read_images(
    float* to, const float* x, const Image& in, unsigned first, int rows, int slice, int pitch)
{
    const int quads = slice / 4, channel = blockIdx.y * slice + threadIdx.x % quads * 4;
    for (int row = threadIdx.x / quads; row < rows; row += 32 * WARPS / quads) {
        const Spot at(in, first + row);
        const int h = at.y - in.top, w = at.x - in.left;
        const bool there = at.image < in.images && h >= 0 && w >= 0 && h < in.height && w < in.width
                        && channel < in.channels;
        const long long from = (((long long)at.image * in.height + h) * in.width + w) * in.channels + channel;
        copy(to + row * pitch + threadIdx.x % quads * 4, x + (there ? from : 0), there);
    }
}

template <int WARPS> __device__ inline void read_gradients(
    float* to, const float* g, const Image& in, unsigned first)
{
    for (int i = threadIdx.x; i < CHUNK * FILTERS / 4; i += 32 * WARPS) {
        const int row = i / (FILTERS / 4), column = i % (FILTERS / 4) * 4;
        const int filter = blockIdx.x * FILTERS + column;
        const Spot at(in, first + row);
        const bool there = at.image < in.images && at.y < in.out_height && at.x < in.out_width
                        && filter < in.filters;
        const long long from =
            (((long long)at.image * in.out_height + at.y) * in.out_width + at.x) * in.filters + filter;
        copy(to + row * PITCH + column, g + (there ? from : 0), there);
    }
}

// Whether eight positions from q on lie below the last output row of their image.
__device__ inline bool below(const Image& in, unsigned q)
{
    const Spot at(in, q);
    return at.y >= in.out_height && at.y * in.padded_width + at.x + 7 < in.plane;
}

template <int WARPS> __global__ void __launch_bounds__(32 * WARPS, 2) filters_back(
    float* partial, const float* x, const float* g, int images, int height, int width, int channels,
    int out_height, int out_width, int filters, int kh, int kw, int top, int left,
    unsigned long long by_plane, unsigned long long by_row, int slice, int pitch, int units)
{
    const int padded_width = out_width + kw - 1, plane = padded_width * (out_height + kh - 1);
    const Image in = {images, height, width, channels, out_height, out_width, filters, kh, kw, top, left,
                      padded_width, plane, by_plane, by_row};
    const int window = UNIT + (kh - 1) * padded_width + kw - 1;
    extern __shared__ float4 shared[];
    float* gradients = reinterpret_cast<float*>(shared);     // [STAGES][CHUNK][PITCH]
    float* around = gradients + STAGES * CHUNK * PITCH;      // [2][window][pitch]

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
    const int columns = kh * kw * slice;
    int offsets[TILES];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const int column = min((warp * TILES + tile) * 8 + group, columns - 1);
        const int tap = column / slice;
        offsets[tile] = (tap / kw * padded_width + tap % kw) * pitch + column % slice;
    }
    float sums[FILTERS / 16][TILES][4] = {};

    const int total = (images * plane + UNIT - 1) / UNIT;
    const int first_unit = blockIdx.z * units, last_unit = min(first_unit + units, total);
    const int chunks = max(last_unit - first_unit, 0) * (UNIT / CHUNK);
    const unsigned start = first_unit * UNIT;

    const auto read = [&](int chunk) {
        if (chunk < chunks) {
            const int unit = chunk / (UNIT / CHUNK);
            read_gradients<WARPS>(gradients + chunk % STAGES * CHUNK * PITCH, g, in, start + chunk * CHUNK);
            if (chunk % (UNIT / CHUNK) == 0)
                read_images<WARPS>(around + unit % 2 * window * pitch, x, in, start + unit * UNIT, window,
                                   slice, pitch);
        }
        asm volatile("cp.async.commit_group;");
    };
    for (int chunk = 0; chunk < STAGES - 1; chunk++) read(chunk);

    for (int chunk = 0; chunk < chunks; chunk++) {
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2));
        __syncthreads();
        read(chunk + STAGES - 1);
        const int unit = chunk / (UNIT / CHUNK), within = chunk % (UNIT / CHUNK) * CHUNK;
        const float* errors = gradients + chunk % STAGES * CHUNK * PITCH + quarter * PITCH + group;
        const float* seen = around + unit % 2 * window * pitch + (within + quarter) * pitch;
#pragma unroll 1
        for (int k = 0; k < CHUNK; k += 8) {
            if (below(in, start + chunk * CHUNK + k)) continue;
            unsigned a[FILTERS / 16][4];
#pragma unroll
            for (int i = 0; i < FILTERS / 16; i++) {
                const float* from = errors + k * PITCH + i * 16;
                a[i][0] = rounded(from[0]);
                a[i][1] = rounded(from[8]);
                a[i][2] = rounded(from[4 * PITCH]);
                a[i][3] = rounded(from[4 * PITCH + 8]);
            }
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                const float* from = seen + k * pitch + offsets[tile];
                const unsigned b[2] = {rounded(from[0]), rounded(from[4 * pitch])};
#pragma unroll
                for (int i = 0; i < FILTERS / 16; i++) multiply(sums[i][tile], a[i], b);
            }
        }
    }

    const long long place = (long long)blockIdx.z * filters;
#pragma unroll
    for (int i = 0; i < FILTERS / 16; i++)
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int filter = blockIdx.x * FILTERS + i * 16 + group + e / 2 * 8;
                const int column = (warp * TILES + tile) * 8 + quarter * 2 + e % 2;
                const int channel = blockIdx.y * slice + column % slice;
                if (filter < filters && column < columns && channel < channels)
                    partial[((place + filter) * kh * kw + column / slice) * channels + channel] =
                        sums[i][tile][e];
            }
}

// out = the sum of the partial sums.
extern "C" __global__ void add_parts(float4* out, const float4* partial, int count, int parts)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        float4 sum = partial[i];
        for (int part = 1; part < parts; part++) {
            const float4 next = partial[(long long)part * count + i];
            sum.x += next.x;
            sum.y += next.y;
            sum.z += next.z;
            sum.w += next.w;
        }
        out[i] = sum;
    }
}
