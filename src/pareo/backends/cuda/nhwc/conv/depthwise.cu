// Convolutions in which each channel has a 3 x 3 filter of its own, channels last, stride S.
#include "nhwc/kernels/vector.cuh"

const int TAPS = 9, MOST_CHANNELS = 64;  // of a block

struct Layer {
    int images, height, width, channels, out_height, out_width, top, left;
};

// The filters of a block's channels as float32, tap by tap; in reverse order where `flipped`.
template <class T> __device__ inline void read_filters(
    float (&room)[TAPS][MOST_CHANNELS], const T* w, int first, int count, int channels, bool flipped)
{
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (int i = thread; i < count * TAPS; i += blockDim.x * blockDim.y) {
        const int tap = i % TAPS, channel = i / TAPS;
        if (first + channel < channels)
            room[flipped ? TAPS - 1 - tap : tap][channel] = wide(w[(first + channel) * TAPS + tap]);
    }
    __syncthreads();
}

// A block is (groups of V channels, strips of OUTS results in a row).
template <class T, int V, int S, int OUTS> __global__ void __launch_bounds__(256) depthwise(
    T* y, const T* x, const T* w, Layer of, int flipped)
{
    __shared__ float filters[TAPS][MOST_CHANNELS];
    const int group = threadIdx.x * V, channel = blockIdx.y * blockDim.x * V + group;
    read_filters<T>(filters, w, channel - group, blockDim.x * V, of.channels, flipped);
    if (channel >= of.channels) return;
    const int strips = (of.out_width + OUTS - 1) / OUTS;
    const unsigned count = (unsigned)of.images * of.out_height * strips;
    for (unsigned i = blockIdx.x * blockDim.y + threadIdx.y; i < count; i += gridDim.x * blockDim.y) {
        const unsigned line = i / strips, image = line / of.out_height;
        const int start = (i - line * strips) * OUTS, row = line - image * of.out_height;
        float sums[OUTS][V] = {};
#pragma unroll
        for (int u = 0; u < 3; u++) {
            const int h = row * S + u - of.top;
            if (h < 0 || h >= of.height) continue;
            const T* from = x + ((long long)image * of.height + h) * of.width * of.channels + channel;
            const int REACH = (OUTS - 1) * S + 3;
            Pack<T, V> pixels[REACH];
#pragma unroll
            for (int k = 0; k < REACH; k++) {
                const int at = start * S + k - of.left;
                if (at >= 0 && at < of.width)
                    pixels[k] = *reinterpret_cast<const Pack<T, V>*>(from + (long long)at * of.channels);
                else
#pragma unroll
                    for (int j = 0; j < V; j++) pixels[k].at[j] = narrow<T>(0);
            }
#pragma unroll
            for (int v = 0; v < 3; v++) {
                float factor[V];
#pragma unroll
                for (int j = 0; j < V; j++) factor[j] = filters[3 * u + v][group + j];
#pragma unroll
                for (int t = 0; t < OUTS; t++)
#pragma unroll
                    for (int j = 0; j < V; j++) sums[t][j] += factor[j] * wide(pixels[t * S + v].at[j]);
            }
        }
        T* to = y + ((long long)line * of.out_width + start) * of.channels + channel;
#pragma unroll
        for (int t = 0; t < OUTS; t++)
            if (start + t < of.out_width) store<T, V>(to + (long long)t * of.channels, sums[t]);
    }
}

// The gradient of the images for any stride: each pixel gathers from the results it contributed to.
template <class T, int V, int S> __global__ void __launch_bounds__(256) depthwise_images(
    T* d, const T* g, const T* w, Layer of)
{
    __shared__ float filters[TAPS][MOST_CHANNELS];
    const int group = threadIdx.x * V, channel = blockIdx.y * blockDim.x * V + group;
    read_filters<T>(filters, w, channel - group, blockDim.x * V, of.channels, false);
    if (channel >= of.channels) return;
    const unsigned count = (unsigned)of.images * of.height * of.width;
    for (unsigned i = blockIdx.x * blockDim.y + threadIdx.y; i < count; i += gridDim.x * blockDim.y) {
        const unsigned line = i / of.width, image = line / of.height;
        const int h = line - image * of.height + of.top, c = i - line * of.width + of.left;
        float sums[V] = {};
#pragma unroll
        for (int u = 0; u < 3; u++) {
            const int row = h - u;
            if (row < 0 || row % S || row / S >= of.out_height) continue;
#pragma unroll
            for (int v = 0; v < 3; v++) {
                const int column = c - v;
                if (column < 0 || column % S || column / S >= of.out_width) continue;
                float error[V];
                load<T, V>(error, g + (((long long)image * of.out_height + row / S) * of.out_width
                                       + column / S) * of.channels + channel);
#pragma unroll
                for (int j = 0; j < V; j++) sums[j] += error[j] * filters[3 * u + v][group + j];
            }
        }
        store<T, V>(d + (long long)i * of.channels + channel, sums);
    }
}

// The gradient of the filters: a thread adds up its share of the segments of LONG results in a row;
// a block leaves a row of `partial`, (taps, channels).
template <class T, int V, int S, int LONG> __global__ void __launch_bounds__(256) depthwise_filters(
    float* partial, const T* x, const T* g, Layer of)
{
    extern __shared__ float room[];  // a float for each thread and channel
    const int group = threadIdx.x * V, channel = blockIdx.y * blockDim.x * V + group;
    const int segments = (of.out_width + LONG - 1) / LONG;
    const unsigned count = (unsigned)of.images * of.out_height * segments;
    float sums[TAPS][V] = {};
    if (channel < of.channels)
        for (unsigned i = blockIdx.x * blockDim.y + threadIdx.y; i < count; i += gridDim.x * blockDim.y) {
            const unsigned line = i / segments, image = line / of.out_height;
            const int start = (i - line * segments) * LONG, row = line - image * of.out_height;
            const int stop = min(start + LONG, of.out_width);
            const T* from = x + (long long)image * of.height * of.width * of.channels + channel;
            const T* error_at = g + (long long)line * of.out_width * of.channels + channel;
            float window[3][3][V];  // rows and columns around the current result
            auto read = [&](int k, int at) {
#pragma unroll
                for (int u = 0; u < 3; u++) {
                    const int h = row * S + u - of.top;
                    if (h >= 0 && h < of.height && at >= 0 && at < of.width)
                        load<T, V>(window[u][k], from + ((long long)h * of.width + at) * of.channels);
                    else
#pragma unroll
                        for (int j = 0; j < V; j++) window[u][k][j] = 0;
                }
            };
#pragma unroll
            for (int k = S; k < 3; k++) read(k, start * S + k - S - of.left);
            for (int column = start; column < stop; column++) {
#pragma unroll
                for (int u = 0; u < 3; u++)
#pragma unroll
                    for (int k = 0; k < 3 - S; k++)
#pragma unroll
                        for (int j = 0; j < V; j++) window[u][k][j] = window[u][k + S][j];
#pragma unroll
                for (int k = 3 - S; k < 3; k++) read(k, column * S + k - of.left);
                float error[V];
                load<T, V>(error, error_at + (long long)column * of.channels);
#pragma unroll
                for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
                    for (int j = 0; j < V; j++) sums[tap][j] += error[j] * window[tap / 3][tap % 3][j];
            }
        }
    const int columns = blockDim.x * V;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        __syncthreads();
#pragma unroll
        for (int j = 0; j < V; j++) room[threadIdx.y * columns + group + j] = sums[tap][j];
        __syncthreads();
        for (int c = threadIdx.y * blockDim.x + threadIdx.x; c < columns; c += blockDim.x * blockDim.y) {
            const int one = blockIdx.y * columns + c;
            if (one >= of.channels) continue;
            float total = 0;
            for (int y = 0; y < blockDim.y; y++) total += room[y * columns + c];
            partial[((long long)blockIdx.x * TAPS + tap) * of.channels + one] = total;
        }
    }
}

// Adds the rows of `partial`: out (channels, taps). A block has 32 columns of a row.
template <class T> __global__ void add_rows(T* out, const float* partial, int rows, int channels)
{
    __shared__ float room[8][33];
    const int all = TAPS * channels, column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (column < all)
        for (int row = threadIdx.y; row < rows; row += 8) sum += partial[(long long)row * all + column];
    room[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || column >= all) return;
    for (int y = 1; y < 8; y++) sum += room[y][threadIdx.x];
    out[column % channels * TAPS + column / channels] = narrow<T>(sum);
}
