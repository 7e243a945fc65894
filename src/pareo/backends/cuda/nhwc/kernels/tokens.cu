// Rows of features, as those of tokens: layer normalisation, and biases with what follows them.
// Sums are float32, in an order that does not change from run to run.
#include "nhwc/kernels/activation.cuh"
#include "nhwc/kernels/sums.cuh"

const unsigned ALL = ~0u;
const int WARPS = 8;  // of a block; each has one row at a time

__device__ inline float warp_sum(float value)
{
#pragma unroll
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(ALL, value, step);
    return value;
}

// A warp's row: lane l has elements (p * 32 + l) * V to (p * 32 + l) * V + V - 1, for p below P.
template <class T, int V, int P> struct Row {
    float at[P][V];

    __device__ static int start(int p) { return (p * 32 + (threadIdx.x & 31)) * V; }

    __device__ void read(const T* from, int features)
    {
#pragma unroll
        for (int p = 0; p < P; p++)
            if (start(p) < features)
                load<T, V>(at[p], from + start(p));
            else
#pragma unroll
                for (int i = 0; i < V; i++) at[p][i] = 0;
    }

    // Makes the row one of mean 0; returns 1 / sqrt(variance + epsilon).
    __device__ float centre(int features, float epsilon)
    {
        float sum = 0, squares = 0;
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int i = 0; i < V; i++) sum += at[p][i];
        const float mean = warp_sum(sum) / features;
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int i = 0; i < V; i++) {
                at[p][i] = start(p) < features ? at[p][i] - mean : 0;
                squares += at[p][i] * at[p][i];
            }
        return rsqrtf(warp_sum(squares) / features + epsilon);
    }
};

template <class T, int V, int P> __global__ void __launch_bounds__(WARPS * 32) layer_norm(
    T* out, const T* x, const float* scale, const float* shift, float epsilon, unsigned rows, int features)
{
    Row<float, V, P> scales, shifts;
    scales.read(scale, features);
    shifts.read(shift, features);
    for (unsigned r = blockIdx.x * WARPS + threadIdx.x / 32; r < rows; r += gridDim.x * WARPS) {
        Row<T, V, P> row;
        row.read(x + (long long)r * features, features);
        const float factor = row.centre(features, epsilon);
#pragma unroll
        for (int p = 0; p < P; p++) {
            if (row.start(p) >= features) continue;
#pragma unroll
            for (int i = 0; i < V; i++)
                row.at[p][i] = row.at[p][i] * factor * scales.at[p][i] + shifts.at[p][i];
            store<T, V>(out + (long long)r * features + row.start(p), row.at[p]);
        }
    }
}

// The gradient of x, plus `other` if not null; a block leaves two rows of `partial`, its sums for
// the gradients of scale and shift.
template <class T, int V, int P> __global__ void __launch_bounds__(WARPS * 32) layer_norm_back(
    T* d, float* partial, const T* g, const T* x, const float* scale, const T* other, float epsilon,
    unsigned rows, int features)
{
    extern __shared__ float room[];  // a row for each warp
    float to_scale[P][V] = {}, to_shift[P][V] = {};
    const int warp = threadIdx.x / 32;
    for (unsigned r = blockIdx.x * WARPS + warp; r < rows; r += gridDim.x * WARPS) {
        Row<T, V, P> row, error;
        row.read(x + (long long)r * features, features);
        error.read(g + (long long)r * features, features);
        const float factor = row.centre(features, epsilon);
        float sum = 0, product = 0;
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int at = row.start(p);
            if (at >= features) continue;
#pragma unroll
            for (int i = 0; i < V; i++) {
                row.at[p][i] *= factor;
                to_scale[p][i] += error.at[p][i] * row.at[p][i];
                to_shift[p][i] += error.at[p][i];
                error.at[p][i] *= scale[at + i];
                sum += error.at[p][i];
                product += error.at[p][i] * row.at[p][i];
            }
        }
        sum = warp_sum(sum) / features;
        product = warp_sum(product) / features;
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int at = row.start(p);
            if (at >= features) continue;
            float more[V] = {};
            if (other) load<T, V>(more, other + (long long)r * features + at);
#pragma unroll
            for (int i = 0; i < V; i++)
                more[i] += factor * (error.at[p][i] - sum - row.at[p][i] * product);
            store<T, V>(d + (long long)r * features + at, more);
        }
    }
#pragma unroll
    for (int which = 0; which < 2; which++) {
        __syncthreads();
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int at = Row<T, V, P>::start(p);
            if (at < features)
#pragma unroll
                for (int i = 0; i < V; i++)
                    room[warp * features + at + i] = which ? to_shift[p][i] : to_scale[p][i];
        }
        __syncthreads();
        for (int f = threadIdx.x; f < features; f += WARPS * 32) {
            float total = 0;
            for (int w = 0; w < WARPS; w++) total += room[w * features + f];
            partial[(2ll * blockIdx.x + which) * features + f] = total;
        }
    }
}

// Adds up `rows` rows of numbers; a block has 32 of their columns.
extern "C" __global__ void total_rows(float* out, const float* partial, int rows, int columns)
{
    __shared__ float room[32][33];
    const int column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (column < columns)
#pragma unroll 4
        for (int row = threadIdx.y; row < rows; row += 32) sum += partial[(long long)row * columns + column];
    room[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = warp_sum(room[threadIdx.x][threadIdx.y]);
    if (threadIdx.x == 0 && blockIdx.x * 32 + threadIdx.y < columns) out[blockIdx.x * 32 + threadIdx.y] = sum;
}

// out = activation(x + bias) + residual, which may be null.
template <class T, int V, int A> __global__ void bias_activation(
    T* out, const T* x, const float* bias, const T* residual, unsigned rows, int features)
{
    const int feature = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (feature >= features) return;
    float b[V];
    load<float, V>(b, bias + feature);
    for (unsigned r = blockIdx.x * blockDim.y + threadIdx.y; r < rows; r += gridDim.x * blockDim.y) {
        const long long at = (long long)r * features + feature;
        float value[V], more[V] = {};
        load<T, V>(value, x + at);
        if (residual) load<T, V>(more, residual + at);
#pragma unroll
        for (int i = 0; i < V; i++) value[i] = activate<A>(value[i] + b[i], 0, 0) + more[i];
        store<T, V>(out + at, value);
    }
}

// Its backward pass: the gradient before the activation, and its partial sums (sums.cuh).
template <class T, int V, int A> __global__ void bias_activation_back(
    T* d, float* partial, const T* g, const T* x, const float* bias, unsigned rows, int features)
{
    const int feature = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sums[V] = {};
    if (feature < features) {
        float b[V];
        load<float, V>(b, bias + feature);
        for (unsigned r = blockIdx.x * blockDim.y + threadIdx.y; r < rows; r += gridDim.x * blockDim.y) {
            const long long at = (long long)r * features + feature;
            float error[V], value[V];
            load<T, V>(error, g + at);
            load<T, V>(value, x + at);
#pragma unroll
            for (int i = 0; i < V; i++) {
                error[i] = activate_back<A>(error[i], value[i] + b[i], 0, 0);
                sums[i] += error[i];
            }
            store<T, V>(d + at, error);
        }
    }
    leave_sums<V>(partial, sums, feature, features);
}
