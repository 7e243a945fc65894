// Sums over pixels for each channel, by many blocks: what each thread has summed becomes the result
// of its block, and the last block of a column of the grid merges those of all blocks, in a fixed
// order. A block is (groups of V channels, pixels); the grid is (pixels, channels).
#pragma once
#include "nhwc/kernels/norm.cuh"

// The threads of a block that sum: groups of channels, and pixels.
struct WholeBlock {
    const int x = threadIdx.x, y = threadIdx.y, wide = blockDim.x, high = blockDim.y;
    __device__ void wait() const { __syncthreads(); }
};

const int SLOTS = 1 << 18;
__device__ unsigned arrived[SLOTS];  // blocks that are done; all 0 between launches

// Whether this block is the last of its column of the grid: it then sees what the others wrote.
template <class Threads> __device__ inline bool is_last(const Threads& threads, int slot)
{
    __shared__ bool last;
    __threadfence();
    threads.wait();
    if (threads.x + threads.y == 0) {
        unsigned* mine = arrived + (slot + blockIdx.y) % SLOTS;
        last = atomicAdd(mine, 1) == gridDim.x - 1;
        if (last) *mine = 0;
    }
    threads.wait();
    if (last) __threadfence();
    return last;
}

// Adds `value` over the threads with the same thread number modulo `columns`, in a fixed order;
// the result is known to all of them. `room` has a float for each thread.
template <class Threads> __device__ inline float total_of_column(
    const Threads& threads, float value, float* room, int thread, int columns, int rows)
{
    threads.wait();
    room[thread] = value;
    threads.wait();
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

// Mean and variance of each channel, from each thread's number, means and squared deviations.
// `partial` has for each block of pixels its means, its sums of squared deviations, and behind all of
// them its counts. `room` has two floats for each thread and channel, `counts` one for each thread.
template <int V, class Threads> __device__ inline void finish_statistics(
    const Threads& threads, float* mean, float* variance, float* partial, int slot, float (&centre)[V],
    float (&squares)[V], float count, float* room, float* counts, unsigned pixels, int channels, int channel)
{
    const int columns = threads.wide * V, thread = threads.y * threads.wide + threads.x;
    float* deviations = room + threads.high * columns;
    const int place = threads.y * columns + threads.x * V;
    for (int half = threads.high / 2; half > 0; half /= 2) {
        if (threads.y >= half && threads.y < 2 * half) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                room[place + i] = centre[i];
                deviations[place + i] = squares[i];
            }
            counts[thread] = count;
        }
        threads.wait();
        if (threads.y < half) {
            const int there = place + half * columns;
            merge<V>(count, centre, squares, counts[thread + half * threads.wide], room + there, deviations + there);
        }
        threads.wait();
    }
    const bool writes = threads.y == 0 && channel < channels;
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
    if (!is_last(threads, slot)) return;
    const int rows = threads.high / V, one = blockIdx.y * columns + thread % columns;
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
    sum = total_of_column(threads, sum, room, thread, columns, rows);
    deviation = total_of_column(threads, deviation, room, thread, columns, rows);
    if (thread < columns && one < channels) {
        mean[one] = near + sum / pixels;
        variance[one] = fmaxf((deviation - sum * (sum / pixels)) / pixels, 0);
    }
}

// The gradients of scale and shift, from each thread's sums of d and of d * (x - mean). `partial` has
// both sums of each block, and `room` two floats for each thread and channel.
template <int V, class Threads> __device__ inline void finish_sums(
    const Threads& threads, float* to_scale, float* to_shift, float* partial, int slot, float (&sums)[V],
    float (&products)[V], const Vectors& by, float* room, int channels, int channel)
{
    const int columns = threads.wide * V, thread = threads.y * threads.wide + threads.x;
    const int place = threads.y * columns + threads.x * V;
    float* second = room + threads.high * columns;
    for (int half = threads.high / 2; half > 0; half /= 2) {
        if (threads.y >= half && threads.y < 2 * half)
#pragma unroll
            for (int i = 0; i < V; i++) {
                room[place + i] = sums[i];
                second[place + i] = products[i];
            }
        threads.wait();
        if (threads.y < half)
#pragma unroll
            for (int i = 0; i < V; i++) {
                sums[i] += room[place + half * columns + i];
                products[i] += second[place + half * columns + i];
            }
        threads.wait();
    }
    const bool writes = threads.y == 0 && channel < channels;
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
    if (!is_last(threads, slot)) return;
    const int rows = threads.high / V, one = blockIdx.y * columns + thread % columns;
    float sum = 0, product = 0;
    if (thread < rows * columns && one < channels)
#pragma unroll 8
        for (int b = thread / columns; b < gridDim.x; b += rows) {
            sum += __ldcg(partial + 2ll * b * channels + one);
            product += __ldcg(partial + (2ll * b + 1) * channels + one);
        }
    sum = total_of_column(threads, sum, room, thread, columns, rows);
    product = total_of_column(threads, product, room, thread, columns, rows);
    if (thread < columns && one < channels) {
        to_shift[one] = sum;
        to_scale[one] = product * rsqrtf(by.variance[one] + by.epsilon);
    }
}
