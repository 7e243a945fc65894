// Backward pass of y = relu(x + bias), channels last: d = y <= 0 ? 0 : g, and d's sum for each
// channel. The gradient may be up to four arrays, concatenated along the channels.
#include "nhwc/kernels/side_by_side.cuh"
#include "nhwc/kernels/sums.cuh"

template <class T, int V> __global__ void relu_bias_back(
    T* d, float* partial, const T* y, unsigned pixels, int channels, SIDE_BY_SIDE(T))
{
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sums[V] = {};
    if (channel < channels) {
        const Source<T> g = THIS_SOURCE(T, channel);
        for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels;
             p += gridDim.x * blockDim.y) {
            const long long at = (long long)p * channels + channel;
            float error[V], value[V];
            load<T, V>(error, g.from + (long long)p * g.pitch);
            load<T, V>(value, y + at);
#pragma unroll
            for (int i = 0; i < V; i++) {
                error[i] = value[i] <= 0 ? 0 : error[i];
                sums[i] += error[i];
            }
            store<T, V>(d + at, error);
        }
    }
    if (partial) leave_sums<V>(partial, sums, channel, channels);
}

// Only the sums: for a bias that no activation follows.
template <class T, int V> __global__ void bias_back(
    float* partial, const T* g, long long pixels, int channels, int pitch)
{
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sums[V] = {};
    if (channel < channels)
        for (long long p = (long long)blockIdx.x * blockDim.y + threadIdx.y; p < pixels;
             p += (long long)gridDim.x * blockDim.y) {
            float error[V];
            load<T, V>(error, g + p * pitch + channel);
#pragma unroll
            for (int i = 0; i < V; i++) sums[i] += error[i];
        }
    leave_sums<V>(partial, sums, channel, channels);
}

// Adds up the blocks' partial sums: a block has 32 channels and adds 32 rows at a time.
extern "C" __global__ void add_partial(float* total, const float* partial, int channels)
{
    __shared__ float room[32][33];
    const int channel = blockIdx.x * 32 + threadIdx.x;
    const int rows = *reinterpret_cast<const int*>(partial);
    float sum = 0;
    if (channel < channels)
        for (int row = threadIdx.y; row < rows; row += 32)
            sum += partial[(row + 1) * channels + channel];
    room[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = room[threadIdx.x][threadIdx.y];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x == 0 && blockIdx.x * 32 + threadIdx.y < channels)
        total[blockIdx.x * 32 + threadIdx.y] = sum;
}

// out = x + bias, or relu(x + bias), in place: after a matrix product.
template <class T, bool RELU> __global__ void add_bias(
    T* out, const T* x, const float* bias, long long count, int channels)
{
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (long long)gridDim.x * blockDim.x) {
        const float value = wide(x[i]) + bias[i % channels];
        out[i] = narrow<T>(RELU && !(value > 0) && value == value ? 0 : value);
    }
}

// Dropout as on every device (operators/normalisation), in either precision.
template <class T> __global__ void dropout(
    T* out, const T* x, const long long* seed, long long count, unsigned threshold, float factor)
{
    const unsigned long long start = (unsigned long long)*seed * 0x9E3779B97F4A7C15ull;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (long long)gridDim.x * blockDim.x) {
        unsigned long long z = start + (unsigned long long)i;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        out[i] = narrow<T>((unsigned)(z >> 40) < threshold ? 0 : wide(x[i]) * factor);
    }
}
