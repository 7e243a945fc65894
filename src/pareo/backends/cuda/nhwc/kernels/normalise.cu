// Batch normalisation, channels last: statistics of each channel, then (x - mean) * factor + shift
// with a residual and an activation; and the backward pass. Statistics and sums are float32, in an
// order that does not change from run to run.
#include "nhwc/kernels/activation.cuh"
#include "nhwc/kernels/block_sums.cuh"
#include "nhwc/kernels/norm.cuh"
#include "nhwc/kernels/vector.cuh"

const int MOST_THREADS = 512, LEAST_BLOCKS = 2;          // of a kernel that sums
const int EACH_THREADS = 256, EACH_BLOCKS = 3;           // of a kernel that does not
const int AHEAD_STATISTICS = 8, AHEAD_SUMS = 2;          // pixels that a thread loads before it uses them

// Kernels that sum begin with the last pixel: what the kernel before them wrote last is still in
// the L2 cache. The next kernel then begins with the first pixel, for the same reason.
//
// A block is (groups of V channels, pixels); the grid is (pixels, channels). `partial` has for each
// block of pixels its means, its sums of squared deviations, and behind all of them its counts.
template <class T, int V> __global__ void __launch_bounds__(MOST_THREADS, LEAST_BLOCKS) channel_statistics(
    float* mean, float* variance, float* partial, int slot, const T* x, unsigned pixels, int channels)
{
    extern __shared__ float room[];  // two floats for each thread and channel
    __shared__ float counts[MOST_THREADS];
    const int AHEAD = AHEAD_STATISTICS;
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const unsigned first = blockIdx.x * blockDim.y + threadIdx.y, step = gridDim.x * blockDim.y;
    float centre[V] = {}, sums[V] = {}, squares[V] = {}, count = 0;
    if (channel < channels && first < pixels) {
        const T* last = x + (pixels - 1ll) * channels + channel;
        load<T, V>(centre, last - (long long)first * channels);
        count = (pixels - first + step - 1) / step;
        for (unsigned p = first; p < pixels; p += AHEAD * step) {
            Pack<T, V> packs[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (p + j * step < pixels)
                    packs[j] = *reinterpret_cast<const Pack<T, V>*>(
                        last - (long long)(p + j * step) * channels);
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (p + j * step < pixels)
#pragma unroll
                    for (int i = 0; i < V; i++) {
                        const float apart = wide(packs[j].at[i]) - centre[i];
                        sums[i] += apart;
                        squares[i] += apart * apart;
                    }
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            const float apart = sums[i] / count;
            centre[i] += apart;
            squares[i] -= sums[i] * apart;
        }
    }
    finish_statistics<V>(
        WholeBlock(), mean, variance, partial, slot, centre, squares, count, room, counts, pixels, channels, channel);
}

// out = activation(z + residual): R is 0 without a residual, 2 where it is normalised too, else 1.
// `positive` gets a bit for each element: whether it is above 0. A thread has V channels.
template <class T, int V, int A, int R>
__global__ void __launch_bounds__(EACH_THREADS, R == 2 ? EACH_BLOCKS - 1 : EACH_BLOCKS) normalise(
    T* out, unsigned char* positive, const T* x, Vectors by, const T* residual, Vectors residual_by,
    float low, float high, unsigned pixels, int channels)
{
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (channel >= channels) return;
    const Norm<V> norm(by, channel), other(R == 2 ? residual_by : by, channel);
    const int AHEAD = 2;
    const unsigned step = gridDim.x * blockDim.y;
    for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels; p += AHEAD * step) {
        Pack<T, V> packs[AHEAD], more[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (p + j * step < pixels) {
                const long long at = (long long)(p + j * step) * channels + channel;
                packs[j] = *reinterpret_cast<const Pack<T, V>*>(x + at);
                if (R) more[j] = *reinterpret_cast<const Pack<T, V>*>(residual + at);
            }
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (p + j * step < pixels) {
                const long long at = (long long)(p + j * step) * channels + channel;
                float value[V];
                unsigned bits = 0;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float z = norm(wide(packs[j].at[i]), i);
                    if (R) {
                        const float r = wide(more[j].at[i]);
                        z += R == 2 ? other(r, i) : r;
                    }
                    if (!(z <= 0)) bits |= 1u << i;
                    value[i] = activate<A>(z, low, high);
                }
                store<T, V>(out + at, value);
                if (positive) positive[at / V] = bits;
            }
    }
}

// For the gradients of scale and shift: sums of d and of d * (x - mean) for each channel, where d is
// the gradient before the activation. `g` and `other`, which may be null, are added. `positive` are
// the bits that the forward pass left; without them, d follows from x. `masked` gets d if not null.
template <class T, int V, int A> __global__ void __launch_bounds__(MOST_THREADS, LEAST_BLOCKS) normalise_back_sums(
    float* to_scale, float* to_shift, T* masked, float* partial, int slot, const T* x, const T* g,
    const T* other, const unsigned char* positive, Vectors by, float low, float high, unsigned pixels,
    int channels)
{
    extern __shared__ float room[];  // two floats for each thread and channel
    const int AHEAD = AHEAD_SUMS, GROUP = 16 / sizeof(T);
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const unsigned first = blockIdx.x * blockDim.y + threadIdx.y, step = gridDim.x * blockDim.y;
    float sums[V] = {}, products[V] = {};
    if (channel < channels) {
        const Norm<V> norm(by, channel);
        for (unsigned p = first; p < pixels; p += AHEAD * step) {
            Pack<T, V> xs[AHEAD], gs[AHEAD], others[AHEAD];
            unsigned char bits[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (p + j * step < pixels) {
                    const long long at = (pixels - 1ll - (p + j * step)) * channels + channel;
                    xs[j] = *reinterpret_cast<const Pack<T, V>*>(x + at);
                    gs[j] = *reinterpret_cast<const Pack<T, V>*>(g + at);
                    if (other) others[j] = *reinterpret_cast<const Pack<T, V>*>(other + at);
                    if (A == IDENTITY && positive) bits[j] = positive[at / GROUP] >> at % GROUP;
                }
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (p + j * step < pixels) {
                    float error[V];
#pragma unroll
                    for (int i = 0; i < V; i++) {
                        const float value = wide(xs[j].at[i]);
                        float d = wide(gs[j].at[i]);
                        if (other) d += wide(others[j].at[i]);
                        if (A == IDENTITY && positive) d = bits[j] >> i & 1 ? d : 0;
                        else d = activate_back<A>(d, norm(value, i), low, high);
                        error[i] = d;
                        sums[i] += d;
                        products[i] += d * (value - norm.mean[i]);
                    }
                    if (masked) store<T, V>(masked + (pixels - 1ll - (p + j * step)) * channels + channel, error);
                }
        }
    }
    finish_sums<V>(WholeBlock(), to_scale, to_shift, partial, slot, sums, products, by, room, channels, channel);
}

// The gradient of x: factor * (d - mean of d - normalised x * mean of (d * normalised x)). With PLUS,
// `other` is added, whose pixels are `pitch` elements apart.
template <class T, int V, int A, bool PLUS> __global__ void __launch_bounds__(EACH_THREADS) normalise_back(
    T* out, const T* x, const T* g, const float* to_scale, const float* to_shift, const T* other,
    int pitch, Vectors by, float low, float high, unsigned pixels, int channels)
{
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (channel >= channels) return;
    const Norm<V> norm(by, channel);
    const Slopes<V> slopes(by, norm, to_scale, to_shift, channel, pixels);
    const int AHEAD = 2;
    const unsigned step = gridDim.x * blockDim.y;
    for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels; p += AHEAD * step) {
        Pack<T, V> xs[AHEAD], gs[AHEAD], others[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (p + j * step < pixels) {
                const long long at = (long long)(p + j * step) * channels + channel;
                xs[j] = *reinterpret_cast<const Pack<T, V>*>(x + at);
                gs[j] = *reinterpret_cast<const Pack<T, V>*>(g + at);
                if (PLUS)
                    others[j] = *reinterpret_cast<const Pack<T, V>*>(
                        other + (long long)(p + j * step) * pitch + channel);
            }
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (p + j * step < pixels) {
                float error[V];
#pragma unroll
                for (int i = 0; i < V; i++) {
                    const float value = wide(xs[j].at[i]);
                    const float d = activate_back<A>(wide(gs[j].at[i]), norm(value, i), low, high);
                    error[i] = norm.factor[i] * d - (value - norm.mean[i]) * slopes.slope[i] - slopes.constant[i];
                    if (PLUS) error[i] += wide(others[j].at[i]);
                }
                store<T, V>(out + (long long)(p + j * step) * channels + channel, error);
            }
    }
}
