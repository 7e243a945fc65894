// Local response normalisation, channels last: y = x * base ** -beta with
// base = k + alpha / size * (sum of squares over `size` channels, size // 2 of them before).
//
// lrn_near, for windows of NEAR channels: a thread holds V channels and their neighbours in
// registers. lrn_any, for other windows: a block holds blockDim.y pixels in shared memory, a thread
// one channel.
#include "nhwc/kernels/sums.cuh"

const int NEAR = 5, HALF = NEAR / 2;

struct Shape {
    float scale, beta, k;  // scale = alpha / size

    __device__ float base(float squares) const { return k + scale * squares; }

    // base ** -beta and 1 / base; by square roots for the usual beta, which is several times as
    // fast.
    __device__ void powers(float base, float& factor, float& inverse) const
    {
        if (beta == 0.75f) {
            const float root = rsqrtf(base);
            inverse = root * root;
            factor = inverse * rsqrtf(root);
        } else {
            inverse = 1 / base;
            factor = powf(base, -beta);
        }
    }
};

// Loads V channels of a pixel from `channel` on, and V on each side; 0 where there are none.
template <class T, int V> __device__ inline void load_around(
    float (&to)[3 * V], const T* pixel, int channel, int channels)
{
#pragma unroll
    for (int part = 0; part < 3; part++) {
        const int start = channel + (part - 1) * V;
        float some[V] = {};
        if (start >= 0 && start < channels) load<T, V>(some, pixel + start);
#pragma unroll
        for (int i = 0; i < V; i++) to[part * V + i] = some[i];
    }
}

template <int N> __device__ inline float squares_near(const float (&x)[N], int at)
{
    float sum = 0;
#pragma unroll
    for (int i = -HALF; i <= HALF; i++) sum += x[at + i] * x[at + i];
    return sum;
}

template <class T, int V> __global__ void lrn_near(
    T* out, const T* x, unsigned pixels, int channels, float scale, float beta, float k)
{
    const Shape shape = {scale, beta, k};
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (channel >= channels) return;
    for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels; p += gridDim.x * blockDim.y) {
        const long long pixel = (long long)p * channels;
        float around[3 * V], y[V];
        load_around<T, V>(around, x + pixel, channel, channels);
#pragma unroll
        for (int i = 0; i < V; i++) {
            float factor, inverse;
            shape.powers(shape.base(squares_near(around, V + i)), factor, inverse);
            y[i] = around[V + i] * factor;
        }
        store<T, V>(out + pixel + channel, y);
    }
}

// d = g * base ** -beta - 2 alpha beta / size * x * (sum of g x base ** (-beta - 1) over the
// windows that contain x). With RELU, d is 0 where x <= 0: the backward pass of the relu before it.
// The sums of d, for the gradient of that layer's bias, go to `partial`.
template <class T, int V, bool RELU> __global__ void lrn_near_back(
    T* d, float* partial, const T* g, const T* x, unsigned pixels, int channels, float scale, float beta,
    float k)
{
    const Shape shape = {scale, beta, k};
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sums[V] = {};
    if (channel < channels)
        for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels;
             p += gridDim.x * blockDim.y) {
            const long long pixel = (long long)p * channels;
            float around[3 * V], errors[3 * V], terms[V + 2 * HALF], error[V];
            load_around<T, V>(around, x + pixel, channel, channels);
            load_around<T, V>(errors, g + pixel, channel, channels);
#pragma unroll
            for (int i = 0; i < V + 2 * HALF; i++) {
                const int at = V - HALF + i;
                float factor, inverse;
                shape.powers(shape.base(squares_near(around, at)), factor, inverse);
                const float own = errors[at] * factor;
                terms[i] = own * around[at] * inverse;
                if (i >= HALF && i < V + HALF) error[i - HALF] = own;
            }
#pragma unroll
            for (int i = 0; i < V; i++) {
                float sum = 0;
#pragma unroll
                for (int j = 0; j < NEAR; j++) sum += terms[i + j];
                error[i] -= 2 * scale * beta * around[V + i] * sum;
                if (RELU && around[V + i] <= 0) error[i] = 0;
                sums[i] += error[i];
            }
            store<T, V>(d + pixel + channel, error);
        }
    if (partial) leave_sums<V>(partial, sums, channel, channels);
}

__device__ inline float squares(const float* x, int channel, int channels, int size)
{
    float sum = 0;
    const int start = channel - size / 2;
    for (int c = max(start, 0); c < min(start + size, channels); c++) sum += x[c] * x[c];
    return sum;
}

template <class T> __global__ void lrn_any(
    T* out, const T* x, unsigned pixels, int channels, int size, float scale, float beta, float k)
{
    const Shape shape = {scale, beta, k};
    extern __shared__ float room[];
    float* mine = room + threadIdx.y * channels;
    for (unsigned first = blockIdx.x * blockDim.y; first < pixels; first += gridDim.x * blockDim.y) {
        const long long p = first + threadIdx.y;
        if (p < pixels)
            for (int c = threadIdx.x; c < channels; c += blockDim.x) mine[c] = wide(x[p * channels + c]);
        __syncthreads();
        if (p < pixels)
            for (int c = threadIdx.x; c < channels; c += blockDim.x) {
                float factor, inverse;
                shape.powers(shape.base(squares(mine, c, channels, size)), factor, inverse);
                out[p * channels + c] = narrow<T>(mine[c] * factor);
            }
        __syncthreads();
    }
}

template <class T> __global__ void lrn_any_back(
    T* d, const T* g, const T* x, unsigned pixels, int channels, int size, float scale, float beta,
    float k)
{
    const Shape shape = {scale, beta, k};
    extern __shared__ float room[];
    float* mine = room + threadIdx.y * channels;
    float* term = mine + blockDim.y * channels;
    float* plain = term + blockDim.y * channels;
    for (unsigned first = blockIdx.x * blockDim.y; first < pixels; first += gridDim.x * blockDim.y) {
        const long long p = first + threadIdx.y;
        if (p < pixels)
            for (int c = threadIdx.x; c < channels; c += blockDim.x) mine[c] = wide(x[p * channels + c]);
        __syncthreads();
        if (p < pixels)
            for (int c = threadIdx.x; c < channels; c += blockDim.x) {
                float factor, inverse;
                shape.powers(shape.base(squares(mine, c, channels, size)), factor, inverse);
                plain[c] = wide(g[p * channels + c]) * factor;
                term[c] = plain[c] * mine[c] * inverse;
            }
        __syncthreads();
        if (p < pixels)
            for (int c = threadIdx.x; c < channels; c += blockDim.x) {
                float sum = 0;
                const int start = c + size / 2 - size + 1;
                for (int j = max(start, 0); j < min(start + size, channels); j++) sum += term[j];
                d[p * channels + c] = narrow<T>(plain[c] - 2 * scale * beta * mine[c] * sum);
            }
        __syncthreads();
    }
}
