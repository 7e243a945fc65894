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
const int TILES = 6;      // of eight columns, of a warp
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

// Where the images and the gradients of a unit's positions lie in memory; -1 where there are none.
template <int WARPS> __device__ inline void find(
    int* images, int* gradients, const Image& in, unsigned first, int window)
{
    for (int row = threadIdx.x; row < window; row += 32 * WARPS) {
        const Spot at(in, first + row);
        const int h = at.y - in.top, w = at.x - in.left;
        const bool seen = at.image < in.images && h >= 0 && w >= 0 && h < in.height && w < in.width;
        images[row] = seen ? ((at.image * in.height + h) * in.width + w) * in.channels : -1;
        if (row >= UNIT) continue;
        const bool made = at.image < in.images && at.y < in.out_height && at.x < in.out_width;
        const int pixel = (at.image * in.out_height + at.y) * in.out_width + at.x;
        gradients[row] = made ? pixel * in.filters : -1;
    }
}

template <int WARPS> __device__ inline void read_images(
    float* to, const float* x, const Image& in, const int* places, int rows, int slice, int pitch)
{
    const int quads = slice / 4, quad = threadIdx.x % quads * 4, channel = blockIdx.y * slice + quad;
    for (int row = threadIdx.x / quads; row < rows; row += 32 * WARPS / quads) {
        const bool there = places[row] >= 0 && channel < in.channels;
        copy(to + row * pitch + quad, x + (there ? places[row] + channel : 0), there);
    }
}

template <int WARPS> __device__ inline void read_gradients(
    float* to, const float* g, const Image& in, const int* places)
{
    for (int i = threadIdx.x; i < CHUNK * FILTERS / 4; i += 32 * WARPS) {
        const int row = i / (FILTERS / 4), column = i % (FILTERS / 4) * 4;
        const int filter = blockIdx.x * FILTERS + column;
        const bool there = places[row] >= 0 && filter < in.filters;
        copy(to + row * PITCH + column, g + (there ? places[row] + filter : 0), there);
    }
}

// Whether a chunk's positions all lie below the last output row of their image.
__device__ inline bool below(const Image& in, unsigned q)
{
    const Spot at(in, q);
    return at.y >= in.out_height && at.y * in.padded_width + at.x + CHUNK <= in.plane;
}

// What a warp multiplies at once: eight positions.
struct Factors {
    unsigned a[FILTERS / 16][4], b[TILES][2];

    __device__ void read(const float* errors, const float* seen, const int (&offsets)[TILES], int pitch)
    {
#pragma unroll
        for (int i = 0; i < FILTERS / 16; i++) {
            a[i][0] = rounded(errors[i * 16]);
            a[i][1] = rounded(errors[i * 16 + 8]);
            a[i][2] = rounded(errors[i * 16 + 4 * PITCH]);
            a[i][3] = rounded(errors[i * 16 + 4 * PITCH + 8]);
        }
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            b[tile][0] = rounded(seen[offsets[tile]]);
            b[tile][1] = rounded(seen[offsets[tile] + 4 * pitch]);
        }
    }
};

template <int WARPS> __global__ void __launch_bounds__(32 * WARPS, WARPS <= 3 ? 3 : 2) filters_back(
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
    int* image_places = reinterpret_cast<int*>(around + 2 * window * pitch);  // [2][window]
    int* gradient_places = image_places + 2 * window;                         // [2][UNIT]

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

    const int total = (images * plane + UNIT - 1) / UNIT, each = UNIT / CHUNK;
    const int first_unit = blockIdx.z * units, last_unit = min(first_unit + units, total);
    const int chunks = max(last_unit - first_unit, 0) * each;
    const unsigned start = first_unit * UNIT;

    const auto find_unit = [&](int unit) {
        find<WARPS>(image_places + unit % 2 * window, gradient_places + unit % 2 * UNIT, in,
                    start + unit * UNIT, window);
    };
    const auto read = [&](int chunk) {
        if (chunk < chunks) {
            const int unit = chunk / each;
            read_gradients<WARPS>(gradients + chunk % STAGES * CHUNK * PITCH, g, in,
                                  gradient_places + unit % 2 * UNIT + chunk % each * CHUNK);
            if (chunk % each == 0)
                read_images<WARPS>(around + unit % 2 * window * pitch, x, in,
                                   image_places + unit % 2 * window, window, slice, pitch);
        }
        asm volatile("cp.async.commit_group;");
    };
    find_unit(0);
    __syncthreads();
    for (int chunk = 0; chunk < STAGES - 1; chunk++) read(chunk);

    for (int chunk = 0; chunk < chunks; chunk++) {
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2));
        __syncthreads();
        // A unit is found one chunk before it is read, and read STAGES - 1 chunks before its turn.
        if (chunk % each == each - STAGES) find_unit(chunk / each + 1);
        read(chunk + STAGES - 1);
        if (below(in, start + chunk * CHUNK)) continue;
        const int unit = chunk / each, within = chunk % each * CHUNK;
        const float* errors = gradients + chunk % STAGES * CHUNK * PITCH + quarter * PITCH + group;
        const float* seen = around + unit % 2 * window * pitch + (within + quarter) * pitch;
        Factors factors[2];
        factors[0].read(errors, seen, offsets, pitch);
#pragma unroll
        for (int k = 0; k < CHUNK / 8; k++) {
            if (k + 1 < CHUNK / 8)
                factors[(k + 1) % 2].read(errors + (k + 1) * 8 * PITCH, seen + (k + 1) * 8 * pitch, offsets,
                                          pitch);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int i = 0; i < FILTERS / 16; i++)
                    multiply(sums[i][tile], factors[k % 2].a[i], factors[k % 2].b[tile]);
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
