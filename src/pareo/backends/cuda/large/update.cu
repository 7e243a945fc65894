// Stochastic gradient descent: velocity = momentum * velocity + gradient + decay * parameter, then
// parameter -= rate * velocity. The results may be the memory of the parameter and the velocity.
#include "large/vector.cuh"

const int MOST = 40;       // parameters in one launch
const int EACH = 1024;     // elements of a block

// One parameter: its results, itself, its gradient, and how the gradient lies: `taps` > 1 means
// (filters, taps, channels) where the parameter is (filters, channels, taps).
struct Update {
    float *new_parameter, *new_velocity;
    const float *parameter, *velocity;
    const void* gradient;
    long long count, channels, taps, narrow, first_block;
};

struct Updates {
    Update of[MOST];
};

extern "C" __global__ void update_all(
    Updates updates, int number, const float* rate, const float* momentum, const float* decay)
{
    int which = 0;
    while (which + 1 < number && updates.of[which + 1].first_block <= blockIdx.x) which++;
    const Update& one = updates.of[which];
    const float r = *rate, m = *momentum, d = *decay;
    const long long start = (blockIdx.x - one.first_block) * EACH;
    for (int j = threadIdx.x; j < EACH; j += blockDim.x) {
        const int i = start + j;
        if (i >= one.count) break;
        int from = i;
        if (one.taps > 1) {
            const int taps = one.taps, channels = one.channels;
            const int pair = i / taps, filter = pair / channels;
            from = (filter * taps + i - pair * taps) * channels + pair - filter * channels;
        }
        const float gradient = one.narrow ? wide(static_cast<const bfloat16*>(one.gradient)[from])
                                          : static_cast<const float*>(one.gradient)[from];
        const float parameter = one.parameter[i];
        const float speed = m * one.velocity[i] + gradient + d * parameter;
        one.new_parameter[i] = parameter - r * speed;
        one.new_velocity[i] = speed;
    }
}

// The same for the weights of a dense layer, whose gradient is the product x' g of `batch` rows: it
// goes from the tensor cores (tf32, exact for bfloat16) straight into the update, never to memory.
const int SIDE = 128, DEPTH = 32, PITCH = SIDE + 8;

__device__ inline unsigned rounded(float value)
{
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

template <class T> __device__ inline void read_rows(
    float (*to)[PITCH], const T* from, int first, int rows, int column, int columns)
{
    for (int i = threadIdx.x; i < DEPTH * SIDE / 4; i += blockDim.x) {
        const int row = i / (SIDE / 4), at = i % (SIDE / 4) * 4;
        float some[4] = {};
        if (first + row < rows && column + at < columns)
            load<T, 4>(some, from + (long long)(first + row) * columns + column + at);
        store<float, 4>(&to[row][at], some);
    }
}

template <class T> __global__ void __launch_bounds__(256, 2) update_dense(
    float* new_parameter, float* new_velocity, const T* x, const T* g, const float* parameter,
    const float* velocity, const float* rate, const float* momentum, const float* decay, int batch,
    int rows, int columns)
{
    __shared__ alignas(16) float left[DEPTH][PITCH], right[DEPTH][PITCH];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
    const int top = blockIdx.y * SIDE, start = blockIdx.x * SIDE;
    const int down = warp / 4 * 64 + group, across = warp % 4 * 32;
    float sums[4][4][4] = {};
    for (int first = 0; first < batch; first += DEPTH) {
        __syncthreads();
        read_rows<T>(left, x, first, batch, top, rows);
        read_rows<T>(right, g, first, batch, start, columns);
        __syncthreads();
        for (int step = 0; step < min(DEPTH, batch - first); step += 8) {
            const int k = step + quarter;
            unsigned a[4][4], b[4][2];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) a[i][e] = rounded(left[k + e / 2 * 4][down + i * 16 + e % 2 * 8]);
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) b[j][e] = rounded(right[k + e * 4][across + j * 8 + group]);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(sums[i][j][0]), "+f"(sums[i][j][1]), "+f"(sums[i][j][2]),
                                   "+f"(sums[i][j][3])
                                 : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]),
                                   "r"(b[j][1]));
        }
    }
    const float r = *rate, m = *momentum, d = *decay;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        // All that a step reads comes before what it writes, so that the reads go out together.
        float was[8][2], speed[8][2];
        bool there[8];
        long long at[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int row = top + down + i * 16 + e % 2 * 8, column = start + across + e / 2 * 8 + quarter * 2;
            there[e] = row < rows && column < columns;
            at[e] = (long long)row * columns + column;
            if (!there[e]) continue;
            load<float, 2>(was[e], parameter + at[e]);
            load<float, 2>(speed[e], velocity + at[e]);
        }
#pragma unroll
        for (int e = 0; e < 8; e++) {
            if (!there[e]) continue;
#pragma unroll
            for (int s = 0; s < 2; s++) {
                speed[e][s] = m * speed[e][s] + sums[i][e / 2][e % 2 * 2 + s] + d * was[e][s];
                was[e][s] -= r * speed[e][s];
            }
            store<float, 2>(new_velocity + at[e], speed[e]);
            store<float, 2>(new_parameter + at[e], was[e]);
        }
    }
}
