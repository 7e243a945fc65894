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
// A block of four warps has SIDE x SIDE weights; several blocks at once on a multiprocessor, so that
// while one multiplies others wait for memory, which is the limit.
const int SIDE = 64, DEPTH = 32, PITCH = SIDE + 8;

template <class T> struct Rows {
    T at[DEPTH][PITCH];

    // Starts to read rows of a matrix, zeros past its end; the columns count in sixteen bytes.
    __device__ void read(const T* from, int first, int rows, int column, int columns)
    {
        const int many = 16 / sizeof(T);
#pragma unroll
        for (int part = 0; part < DEPTH * SIDE / many / 128; part++) {
            const int i = part * 128 + threadIdx.x, row = i / (SIDE / many), start = i % (SIDE / many) * many;
            const bool there = first + row < rows && column + start < columns;
            const T* source = from + (there ? (long long)(first + row) * columns + column + start : 0);
            const unsigned place = __cvta_generic_to_shared(&at[row][start]);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         :: "r"(place), "l"(source), "r"(there ? 16 : 0));
        }
    }
};

__device__ inline unsigned rounded(float value)
{
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

template <class T> __global__ void __launch_bounds__(128, 5) update_dense(
    float* new_parameter, float* new_velocity, const T* x, const T* g, const float* parameter,
    const float* velocity, const float* rate, const float* momentum, const float* decay, int batch,
    int rows, int columns)
{
    __shared__ alignas(16) Rows<T> left[2], right[2];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
    const int top = blockIdx.y * SIDE, start = blockIdx.x * SIDE;
    const int down = warp / 2 * 32 + group, across = warp % 2 * 32;
    float sums[2][4][4] = {};
    const auto read = [&](int chunk) {
        if (chunk * DEPTH < batch) {
            left[chunk % 2].read(x, chunk * DEPTH, batch, top, rows);
            right[chunk % 2].read(g, chunk * DEPTH, batch, start, columns);
        }
        asm volatile("cp.async.commit_group;");
    };
    read(0);
    for (int chunk = 0; chunk * DEPTH < batch; chunk++) {
        read(chunk + 1);
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        const Rows<T>&a_rows = left[chunk % 2], &b_rows = right[chunk % 2];
        for (int step = 0; step < min(DEPTH, batch - chunk * DEPTH); step += 8) {
            const int k = step + quarter;
            unsigned a[2][4], b[4][2];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    a[i][e] = rounded(wide(a_rows.at[k + e / 2 * 4][down + i * 16 + e % 2 * 8]));
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) b[j][e] = rounded(wide(b_rows.at[k + e * 4][across + j * 8 + group]));
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(sums[i][j][0]), "+f"(sums[i][j][1]), "+f"(sums[i][j][2]),
                                   "+f"(sums[i][j][3])
                                 : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]),
                                   "r"(b[j][1]));
        }
        __syncthreads();
    }
    const float r = *rate, m = *momentum, d = *decay;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        // All that a step reads comes before what it writes, so that the reads go out together.
        float was[8][2], speed[8][2];
        const int row = top + down + i * 16, column = start + across + quarter * 2;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const bool there = row + e % 2 * 8 < rows && column + e / 2 * 8 < columns;
            const long long at = there ? (long long)(row + e % 2 * 8) * columns + column + e / 2 * 8 : 0;
            load<float, 2>(was[e], parameter + at);
            load<float, 2>(speed[e], velocity + at);
        }
#pragma unroll
        for (int e = 0; e < 8; e++) {
            if (row + e % 2 * 8 >= rows || column + e / 2 * 8 >= columns) continue;
            const long long at = (long long)(row + e % 2 * 8) * columns + column + e / 2 * 8;
#pragma unroll
            for (int s = 0; s < 2; s++) {
                speed[e][s] = m * speed[e][s] + sums[i][e / 2][e % 2 * 2 + s] + d * was[e][s];
                was[e][s] -= r * speed[e][s];
            }
            store<float, 2>(new_velocity + at, speed[e]);
            store<float, 2>(new_parameter + at, was[e]);
        }
    }
}
