// Batch normalisation, channels last: statistics of each channel, then (x - mean) * factor + shift
// with a residual and an activation; and the backward pass. Statistics and sums are float32, in an
// order that does not change from run to run.
#include "nhwc/kernels/activation.cuh"
#include "nhwc/kernels/norm.cuh"
#include "nhwc/kernels/vector.cuh"

const int MOST_THREADS = 512, LEAST_BLOCKS = 2;          // of a kernel that sums
const int EACH_THREADS = 256, EACH_BLOCKS = 3;           // of a kernel that does not
const int AHEAD_STATISTICS = 8, AHEAD_SUMS = 2;          // pixels that a thread loads before it uses them
const int SLOTS = 1 << 18;
__device__ unsigned arrived[SLOTS];  // blocks that are done; all 0 between launches

// Whether this block is the last of its column of the grid: it then sees what the others wrote.
__device__ inline bool is_last(int slot)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x + threadIdx.y == 0) {
        unsigned* mine = arrived + (slot + blockIdx.y) % SLOTS;
        last = atomicAdd(mine, 1) == gridDim.x - 1;
        if (last) *mine = 0;
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

// Adds `value` over the threads with the same thread number modulo `columns`, in a fixed order;
// the result is known to all of them. `room` has a float for each thread.
__device__ inline float total_of_column(float value, float* room, int thread, int columns, int rows)
{
    __syncthreads();
    room[thread] = value;
    __syncthreads();
    float sum = 0;
    for (int r = 0; r < rows; r++) sum += room[r * columns + thread % columns];
    return sum;
}

// The number, the mean and the sum of squared deviations of some elements, merged with others'.
template <int V> __device__ inline void merge(
    float& count, float (&mean)[V], float (&squares)[V], float other, const float* means,
    const float* more)
{
    if (other == 0) return;
    const float share = other / (count + other);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const float apart = means[i] - mean[i];
        squares[i] += more[i] + apart * apart * count * share;
        mean[i] += apart * share;
    }
    count += other;
}

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
    const int columns = blockDim.x * V, thread = threadIdx.y * blockDim.x + threadIdx.x;
    float* deviations = room + blockDim.y * columns;
    const int place = threadIdx.y * columns + threadIdx.x * V;
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        if (threadIdx.y >= half && threadIdx.y < 2 * half) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                room[place + i] = centre[i];
                deviations[place + i] = squares[i];
            }
            counts[thread] = count;
        }
        __syncthreads();
        if (threadIdx.y < half) {
            const int there = place + half * columns;
            merge<V>(count, centre, squares, counts[thread + half * blockDim.x], room + there, deviations + there);
        }
        __syncthreads();
    }
    const bool writes = threadIdx.y == 0 && channel < channels;
    if (gridDim.x == 1) {
        if (writes)
#pragma unroll
            for (int i = 0; i < V; i++) {
                mean[channel + i] = centre[i];
                variance[channel + i] = fmaxf(squares[i] / pixels, 0);
            }
        return;
    }
    float* block_counts = partial + 2ll * gridDim.x * channels;
    if (writes) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            partial[2ll * blockIdx.x * channels + channel + i] = centre[i];
            partial[(2ll * blockIdx.x + 1) * channels + channel + i] = squares[i];
        }
        block_counts[blockIdx.x] = count;  // each column of the grid writes the same
    }
    if (!is_last(slot)) return;
    const int rows = blockDim.y / V, one = blockIdx.y * columns + thread % columns;
    const bool mine = thread < rows * columns && one < channels;
    // Deviations from the first block's mean, which is close to all others.
    const float near = one < channels ? __ldcg(partial + one) : 0;
    float sum = 0, deviation = 0;
    if (mine)
#pragma unroll 8
        for (int b = thread / columns; b < gridDim.x; b += rows) {
            const float apart = __ldcg(partial + 2ll * b * channels + one) - near;
            const float weighted = __ldcg(block_counts + b) * apart;
            sum += weighted;
            deviation += __ldcg(partial + (2ll * b + 1) * channels + one) + weighted * apart;
        }
    sum = total_of_column(sum, room, thread, columns, rows);
    deviation = total_of_column(deviation, room, thread, columns, rows);
    if (thread < columns && one < channels) {
        mean[one] = near + sum / pixels;
        variance[one] = fmaxf((deviation - sum * (sum / pixels)) / pixels, 0);
    }
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
    const int columns = blockDim.x * V, thread = threadIdx.y * blockDim.x + threadIdx.x;
    const int place = threadIdx.y * columns + threadIdx.x * V;
    float* second = room + blockDim.y * columns;
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        if (threadIdx.y >= half && threadIdx.y < 2 * half)
#pragma unroll
            for (int i = 0; i < V; i++) {
                room[place + i] = sums[i];
                second[place + i] = products[i];
            }
        __syncthreads();
        if (threadIdx.y < half)
#pragma unroll
            for (int i = 0; i < V; i++) {
                sums[i] += room[place + half * columns + i];
                products[i] += second[place + half * columns + i];
            }
        __syncthreads();
    }
    const bool writes = threadIdx.y == 0 && channel < channels;
    if (gridDim.x == 1) {
        if (writes)
#pragma unroll
            for (int i = 0; i < V; i++) {
                to_shift[channel + i] = sums[i];
                to_scale[channel + i] = products[i] * rsqrtf(by.variance[channel + i] + by.epsilon);
            }
        return;
    }
    if (writes)
#pragma unroll
        for (int i = 0; i < V; i++) {
            partial[2ll * blockIdx.x * channels + channel + i] = sums[i];
            partial[(2ll * blockIdx.x + 1) * channels + channel + i] = products[i];
        }
    if (!is_last(slot)) return;
    const int rows = blockDim.y / V, one = blockIdx.y * columns + thread % columns;
    float sum = 0, product = 0;
    if (thread < rows * columns && one < channels)
#pragma unroll 8
        for (int b = thread / columns; b < gridDim.x; b += rows) {
            sum += __ldcg(partial + 2ll * b * channels + one);
            product += __ldcg(partial + (2ll * b + 1) * channels + one);
        }
    sum = total_of_column(sum, room, thread, columns, rows);
    product = total_of_column(product, room, thread, columns, rows);
    if (thread < columns && one < channels) {
        to_shift[one] = sum;
        to_scale[one] = product * rsqrtf(by.variance[one] + by.epsilon);
    }
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
