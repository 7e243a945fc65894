// Normalisation, relu and max pooling at once, in windows of 3 x 3 with stride 2; and back. What lies
// between them is never stored. A thread holds V channels.
#include "nhwc/kernels/norm.cuh"
#include "nhwc/kernels/vector.cuh"

const int SIDE = 3, STRIDE = 2;
const unsigned char NO_INDEX = 255;

struct Window {
    int height, width, out_height, out_width, top, left;
};

__device__ inline bool is_inside(int k, int row, int column, const Window& window)
{
    const int h = row + k / SIDE, w = column + k % SIDE;
    return h >= 0 && w >= 0 && h < window.height && w < window.width;
}

// The largest z of a window, the x that it comes from, and its index: the first of equal ones.
template <int V> __device__ inline void choose(
    float (&best)[V], Pack<float, V>& from, Pack<unsigned char, V>& found,
    const Pack<float, V> (&read)[SIDE * SIDE], const Norm<V>& norm, int row, int column,
    const Window& window)
{
    bool first = true;
#pragma unroll
    for (int k = 0; k < SIDE * SIDE; k++) {
        if (!is_inside(k, row, column, window)) continue;
#pragma unroll
        for (int i = 0; i < V; i++) {
            const float z = norm(read[k].at[i], i);
            if (first || z > best[i] || (z != z && best[i] == best[i])) {
                best[i] = z;
                from.at[i] = read[k].at[i];
                found.at[i] = k;
            }
        }
        first = false;
    }
}

// Bits of a bfloat16 in the upper half, as an integer in the order of the numbers; and back.
__device__ inline int ordered(int bits) { return bits < 0 ? -(bits & 0x7fffffff) : bits; }
__device__ inline unsigned unordered(int key) { return key < 0 ? -key | 0x80000000 : key; }

// The same in bfloat16. z grows with x, or falls where the factor is negative: so the largest z is
// that of the largest key, the ordered x above, 15 - k below. A NaN has the largest key of all. Where
// the factor is 0 all z are equal, and the largest x is chosen.
template <int V> __device__ inline void choose(
    float (&best)[V], Pack<bfloat16, V>& from, Pack<unsigned char, V>& found,
    const Pack<bfloat16, V> (&read)[SIDE * SIDE], const Norm<V>& norm, int row, int column,
    const Window& window)
{
    const int NOT_A_NUMBER = 0x7fff0000;
    int keys[V];
#pragma unroll
    for (int i = 0; i < V; i++) keys[i] = 0x80000000;
#pragma unroll
    for (int k = 0; k < SIDE * SIDE; k++) {
        if (!is_inside(k, row, column, window)) continue;
#pragma unroll
        for (int i = 0; i < V; i++) {
            const int bits = (int)((unsigned)__bfloat16_as_ushort(read[k].at[i]) << 16);
            const bool number = (bits & 0x7fffffff) <= 0x7f800000;
            const int turned = norm.factor[i] < 0 ? -ordered(bits) : ordered(bits);
            keys[i] = max(keys[i], (number ? turned : NOT_A_NUMBER) | 15 - k);
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int upper = keys[i] & 0xffff0000;
        const unsigned bits = unordered(norm.factor[i] < 0 ? -upper : upper);
        from.at[i] = __ushort_as_bfloat16(upper == NOT_A_NUMBER ? 0x7fc0 : bits >> 16);
        found.at[i] = 15 - (keys[i] & 15);
        best[i] = norm(wide(from.at[i]), i);
    }
}

// out = the largest of relu(z) in each window, `largest` = the x it comes from, and its index in the
// window, or NO_INDEX where z is not above 0.
template <class T, int V> __global__ void __launch_bounds__(256) normalise_pool(
    T* out, T* largest, unsigned char* indices, const T* x, Vectors by, Window window, unsigned pixels,
    int channels)
{
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (channel >= channels) return;
    const Norm<V> norm(by, channel);
    for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels; p += gridDim.x * blockDim.y) {
        const unsigned line = p / window.out_width, image = line / window.out_height;
        const int row = (int)(line - image * window.out_height) * STRIDE - window.top;
        const int column = (int)(p - line * window.out_width) * STRIDE - window.left;
        Pack<T, V> read[SIDE * SIDE];
#pragma unroll
        for (int k = 0; k < SIDE * SIDE; k++) {
            const int h = row + k / SIDE, w = column + k % SIDE;
            if (h >= 0 && w >= 0 && h < window.height && w < window.width)
                read[k] = *reinterpret_cast<const Pack<T, V>*>(
                    x + (((long long)image * window.height + h) * window.width + w) * channels + channel);
        }
        float best[V];
        Pack<T, V> from;
        Pack<unsigned char, V> found;
        choose<V>(best, from, found, read, norm, row, column, window);
#pragma unroll
        for (int i = 0; i < V; i++)
            if (best[i] <= 0) {
                best[i] = 0;
                found.at[i] = NO_INDEX;
            }
        const long long to = (long long)p * channels + channel;
        store<T, V>(out + to, best);
        *reinterpret_cast<Pack<T, V>*>(largest + to) = from;
        *reinterpret_cast<Pack<unsigned char, V>*>(indices + to) = found;
    }
}

// The gradient of x. Up to four windows hold a pixel.
template <class T, int V> __global__ void __launch_bounds__(256) normalise_pool_back(
    T* out, const T* x, const T* g, const unsigned char* indices, const float* to_scale,
    const float* to_shift, Vectors by, Window window, unsigned pixels, int channels)
{
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (channel >= channels) return;
    const Norm<V> norm(by, channel);
    const Slopes<V> slopes(by, norm, to_scale, to_shift, channel, pixels);
    for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels; p += gridDim.x * blockDim.y) {
        const unsigned line = p / window.width, image = line / window.height;
        const int row = line - image * window.height + window.top;
        const int column = p - line * window.width + window.left;
        float value[V], d[V] = {};
        Pack<T, V> arriving[4];
        Pack<unsigned char, V> found[4];
        load<T, V>(value, x + (long long)p * channels + channel);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int r = row / STRIDE - k / 2, c = column / STRIDE - k % 2;
            const int u = row - r * STRIDE, v = column - c * STRIDE;
#pragma unroll
            for (int i = 0; i < V; i++) found[k].at[i] = NO_INDEX;
            if (r >= 0 && c >= 0 && r < window.out_height && c < window.out_width && u < SIDE && v < SIDE) {
                const long long from =
                    (((long long)image * window.out_height + r) * window.out_width + c) * channels + channel;
                found[k] = *reinterpret_cast<const Pack<unsigned char, V>*>(indices + from);
                arriving[k] = *reinterpret_cast<const Pack<T, V>*>(g + from);
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int u = row % STRIDE + k / 2 * STRIDE, v = column % STRIDE + k % 2 * STRIDE;
#pragma unroll
            for (int i = 0; i < V; i++)
                if (found[k].at[i] == u * SIDE + v) d[i] += wide(arriving[k].at[i]);
        }
#pragma unroll
        for (int i = 0; i < V; i++)
            value[i] = norm.factor[i] * d[i] - (value[i] - norm.mean[i]) * slopes.slope[i] - slopes.constant[i];
        store<T, V>(out + (long long)p * channels + channel, value);
    }
}
