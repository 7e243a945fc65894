// A dense layer's weights: their gradient, summed over the batch on the tensor cores, and their
// step of stochastic gradient descent, in one kernel. The gradient is never written to memory.
//
//   gradient[i, o] = sum over b of x[b, i] * g[b, o],   x (batch, rows), g (batch, columns)
//
// and then as in update.cu; `velocity` is null for a step without momentum. A block of eight warps
// has TILE x TILE weights. They are prefetched, so that they arrive from memory while it
// multiplies; x and g come from the second-level cache. rows and columns are multiples of 8.
#include "nhwc/kernels/vector.cuh"

const int TILE = 128;   // rows and columns of a block's weights
const int CHUNK = 32;   // of the batch, in shared memory at a time
const int STAGES = 2;
const int LINES = 4;    // of weights that a thread loads at a time
const int WARP_ROWS = 32, WARP_COLUMNS = 64;
const int PITCH = TILE + 8;  // of lines in shared memory: no bank conflicts


template <class T> __device__ inline void copy(T* to, const T* from, bool there)
{
    const unsigned place = __cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(place), "l"(from), "r"(there ? 16 : 0));
}

// Reads CHUNK lines of a matrix (batch, width), TILE elements each, starting at `line` and `first`.
template <class T> __device__ inline void read(
    T* to, const T* from, int line, int first, int batch, int width)
{
    const int many = 16 / sizeof(T), packs = TILE / many;
    for (int i = threadIdx.x; i < CHUNK * packs; i += blockDim.x) {
        const int row = i / packs, column = i % packs * many;
        const bool there = line + row < batch && first + column < width;
        copy(to + row * PITCH + column,
             from + (there ? (long long)(line + row) * width + first + column : 0), there);
    }
}

__device__ inline unsigned rounded(float value)
{
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

typedef float Sums[WARP_ROWS / 16][WARP_COLUMNS / 8][4];

// A chunk's products in tf32, eight images at a time.
__device__ inline void multiply(Sums& sums, const float* x, const float* g, int lane)
{
    const int group = lane / 4, quarter = lane % 4;
#pragma unroll
    for (int k = 0; k < CHUNK; k += 8) {
        const float* rows = x + (k + quarter) * PITCH + group;
        const float* columns = g + (k + quarter) * PITCH + group;
        unsigned a[WARP_ROWS / 16][4];
#pragma unroll
        for (int i = 0; i < WARP_ROWS / 16; i++) {
            a[i][0] = rounded(rows[i * 16]);
            a[i][1] = rounded(rows[i * 16 + 8]);
            a[i][2] = rounded(rows[i * 16 + 4 * PITCH]);
            a[i][3] = rounded(rows[i * 16 + 8 + 4 * PITCH]);
        }
#pragma unroll
        for (int j = 0; j < WARP_COLUMNS / 8; j++) {
            const unsigned b[2] = {rounded(columns[j * 8]), rounded(columns[j * 8 + 4 * PITCH])};
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; i++)
                asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                             "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(sums[i][j][0]), "+f"(sums[i][j][1]), "+f"(sums[i][j][2]),
                               "+f"(sums[i][j][3])
                             : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[0]), "r"(b[1]));
        }
    }
}

// Reads four 8 x 8 matrices, transposed: lane l gives the address of line l % 8 of matrix l / 8.
__device__ inline void read_transposed(unsigned (&to)[4], const bfloat16* from)
{
    const unsigned place = __cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(place));
}

// A chunk's products in bfloat16, sixteen images at a time.
__device__ inline void multiply(Sums& sums, const bfloat16* x, const bfloat16* g, int lane)
{
    const int line = lane % 8, matrix = lane / 8;
#pragma unroll
    for (int k = 0; k < CHUNK; k += 16) {
        unsigned a[WARP_ROWS / 16][4];
#pragma unroll
        for (int i = 0; i < WARP_ROWS / 16; i++)
            read_transposed(a[i], x + (k + matrix / 2 * 8 + line) * PITCH + i * 16 + matrix % 2 * 8);
#pragma unroll
        for (int j = 0; j < WARP_COLUMNS / 8; j += 2) {
            unsigned b[4];
            read_transposed(b, g + (k + matrix % 2 * 8 + line) * PITCH + (j + matrix / 2) * 8);
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; i++)
#pragma unroll
                for (int n = 0; n < 2; n++)
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(sums[i][j + n][0]), "+f"(sums[i][j + n][1]),
                                   "+f"(sums[i][j + n][2]), "+f"(sums[i][j + n][3])
                                 : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]),
                                   "r"(b[2 * n]), "r"(b[2 * n + 1]));
        }
    }
}

struct Step {
    float rate, momentum, decay;
    __device__ float4 speed(float4 gradient, float4 before, float4 old) const
    {
        return {gradient.x + momentum * before.x + decay * old.x, gradient.y + momentum * before.y + decay * old.y,
                gradient.z + momentum * before.z + decay * old.z, gradient.w + momentum * before.w + decay * old.w};
    }
    __device__ float4 moved(float4 old, float4 speed) const
    {
        return {old.x - rate * speed.x, old.y - rate * speed.y, old.z - rate * speed.z, old.w - rate * speed.w};
    }
};

__device__ inline void prefetch(const float* matrix, int row, int column, int rows, int columns)
{
    if (matrix == nullptr) return;
    const int line = row + threadIdx.x / 2, first = column + threadIdx.x % 2 * (TILE / 2);
    for (int i = 0; i < TILE / 2; i += 32)
        if (line < rows && first + i < columns)
            asm volatile("prefetch.global.L2 [%0];" :: "l"(matrix + (long long)line * columns + first + i));
}

template <class T> __global__ void __launch_bounds__(256, 2) dense_update(
    float* new_parameter, float* new_velocity, const T* x, const T* g, const float* parameter,
    const float* velocity, const float* rate, const float* momentum, const float* decay, int batch,
    int rows, int columns)
{
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    extern __shared__ float4 shared[];
    T* left = reinterpret_cast<T*>(shared);          // [STAGES][CHUNK][PITCH]
    T* right = left + STAGES * CHUNK * PITCH;
    prefetch(parameter, row, column, rows, columns);
    prefetch(velocity, row, column, rows, columns);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int down = warp % 4 * WARP_ROWS, along = warp / 4 * WARP_COLUMNS;
    const int chunks = (batch + CHUNK - 1) / CHUNK;
    Sums sums = {};
    const auto load_chunk = [&](int chunk) {
        const int place = chunk % STAGES * CHUNK * PITCH;
        if (chunk < chunks) {
            read(left + place, x, chunk * CHUNK, row, batch, rows);
            read(right + place, g, chunk * CHUNK, column, batch, columns);
        }
        asm volatile("cp.async.commit_group;");
    };
    load_chunk(0);
    for (int chunk = 0; chunk < chunks; chunk++) {
        load_chunk(chunk + 1);
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        const int place = chunk % STAGES * CHUNK * PITCH;
        multiply(sums, left + place + down, right + place + along, lane);
        __syncthreads();
    }

    float* sum = reinterpret_cast<float*>(shared);   // [TILE][PITCH]: so that whole lines are updated
#pragma unroll
    for (int i = 0; i < WARP_ROWS / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_COLUMNS / 8; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int at = down + i * 16 + half * 8 + lane / 4, to = along + j * 8 + lane % 4 * 2;
                *reinterpret_cast<float2*>(sum + at * PITCH + to) =
                    make_float2(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
            }
    __syncthreads();
    const Step step = {*rate, velocity ? *momentum : 0, velocity ? *decay : 0};
    const int to = column + lane * 4;
    if (to >= columns) return;
    for (int first = warp; first < TILE; first += LINES * 8) {
        float4 old[LINES], before[LINES];
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            const int at = row + first + i * 8;
            const long long place = (long long)at * columns + to;
            if (at < rows) old[i] = *reinterpret_cast<const float4*>(parameter + place);
            if (at < rows && velocity) before[i] = *reinterpret_cast<const float4*>(velocity + place);
        }
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            const int at = row + first + i * 8;
            if (at >= rows) continue;
            const long long place = (long long)at * columns + to;
            float4 speed = *reinterpret_cast<const float4*>(sum + (first + i * 8) * PITCH + lane * 4);
            if (velocity) {
                speed = step.speed(speed, before[i], old[i]);
                *reinterpret_cast<float4*>(new_velocity + place) = speed;
            }
            *reinterpret_cast<float4*>(new_parameter + place) = step.moved(old[i], speed);
        }
    }
}
