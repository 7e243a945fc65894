// Copies between layouts and precisions; the source, the result or both are channels last.
#include "nhwc/kernels/side_by_side.cuh"
#include "nhwc/kernels/vector.cuh"

// out[b, c, r] = x[b, r, c]: channels first to last, or back. Tiles are 32 x 32, blocks 32 x 8.
template <class S, class T> __global__ void transpose(T* out, const S* x, int rows, int columns)
{
    __shared__ float tile[32][33];
    const long long start = (long long)blockIdx.z * rows * columns;
    const int column = blockIdx.x * 32 + threadIdx.x;
    for (int r = threadIdx.y; r < 32; r += 8) {
        const int row = blockIdx.y * 32 + r;
        if (row < rows && column < columns)
            tile[r][threadIdx.x] = wide(x[start + (long long)row * columns + column]);
    }
    __syncthreads();
    const int row = blockIdx.y * 32 + threadIdx.x;
    for (int c = threadIdx.y; c < 32; c += 8) {
        const int to = blockIdx.x * 32 + c;
        if (row < rows && to < columns)
            out[start + (long long)to * rows + row] = narrow<T>(tile[threadIdx.x][c]);
    }
}

// The same numbers in another precision.
template <class S, class T, int V> __global__ void cast(T* out, const S* x, long long count)
{
    for (long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * V; i < count;
         i += (long long)gridDim.x * blockDim.x * V) {
        float value[V];
        load<S, V>(value, x + i);
        store<T, V>(out + i, value);
    }
}

// Images (N, C, H, W) as blocks of s x s pixels (space to depth), `fold` neighbouring blocks of a row
// side by side: element ((t * C + c) * s + dy) * s + dx of out (N, rows, columns, wide_channels) is
// pixel (dy, dx) of the block t columns further in channel c, and 0 outside the image and behind the
// last one. SIDE is s, and CHANNELS is C, where they are known at compile time, or 0. With an order,
// image n is the one at index order[*step, n].
template <class T, int V, int SIDE> __global__ void space_to_depth(
    T* out, const float* x, const long long* order, const long long* step, int images, int channels,
    int height, int width, int rows, int columns, int wide_channels, int any_side, int top, int left,
    int fold)
{
    const int s = SIDE ? SIDE : any_side;
    const long long* row_of_order = order ? order + *step * images : nullptr;
    const unsigned groups = wide_channels / V;
    const unsigned count = (unsigned)images * rows * columns * groups;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const unsigned pixel = i / groups, line = pixel / columns;
        const int element = (i - pixel * groups) * V;
        const int column = pixel - line * columns, row = line % rows;
        const long long image = order ? row_of_order[line / rows] : line / rows;
        float value[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            const int t = (element + j) / (channels * s * s), e = element + j - t * channels * s * s;
            const int c = e / (s * s), h = row * s + e / s % s - top;
            const int w = (column + t) * s + e % s - left;
            const bool inside = t < fold && h >= 0 && w >= 0 && h < height && w < width;
            value[j] = inside ? x[((image * channels + c) * height + h) * width + w] : 0;
        }
        store<T, V>(out + (long long)i * V, value);
    }
}

// The same, by rows: a block reads the pixels of one row of blocks into shared memory first. That is
// faster where `fold` neighbours need the same pixels.
template <class T, int V, int SIDE, int CHANNELS> __global__ void space_to_depth_rows(
    T* out, const float* x, const long long* order, const long long* step, int images, int any_channels,
    int height, int width, int rows, int columns, int wide_channels, int any_side, int top, int left,
    int fold)
{
    extern __shared__ float lines[];  // C * s lines of `along` pixels
    const int s = SIDE ? SIDE : any_side, channels = CHANNELS ? CHANNELS : any_channels;
    const int along = (columns + fold - 1) * s, each = channels * s * s, groups = wide_channels / V;
    const int number = blockIdx.x / rows, row = blockIdx.x - number * rows;
    const long long image = order ? order[*step * images + number] : number;
    for (int i = threadIdx.x; i < channels * s * along; i += blockDim.x) {
        const int line = i / along, w = i - line * along - left;
        const int c = line / s, h = row * s + line % s - top;
        const bool inside = h >= 0 && w >= 0 && h < height && w < width;
        lines[i] = inside ? x[((image * channels + c) * height + h) * width + w] : 0;
    }
    __syncthreads();
    T* to = out + (long long)blockIdx.x * columns * wide_channels;
    for (int i = threadIdx.x; i < columns * groups; i += blockDim.x) {
        const int column = i / groups, element = (i - column * groups) * V;
        float value[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            const int t = (element + j) / each, e = element + j - t * each;
            const int line = e / s, at = (column + t) * s + e % s;
            value[j] = t < fold ? lines[line * along + at] : 0;
        }
        store<T, V>(to + (long long)i * V, value);
    }
}

// Filters (K, C, kh, kw) for such blocks: out (K, rows, columns, wide_channels).
template <class T> __global__ void filters_to_depth(
    T* out, const float* w, int filters, int channels, int kh, int kw, int rows, int columns,
    int wide_channels, int s, int fold)
{
    const int count = filters * rows * columns * wide_channels, each = channels * s * s;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int element = i % wide_channels, column = i / wide_channels % columns;
        const int row = i / (wide_channels * columns) % rows, filter = i / (wide_channels * columns * rows);
        const int t = element / each, e = element - t * each;
        const int c = e / (s * s), u = row * s + e / s % s, v = (column + t) * s + e % s;
        const bool inside = t < fold && u < kh && v < kw;
        out[i] = narrow<T>(inside ? w[((filter * channels + c) * kh + u) * kw + v] : 0);
    }
}

// The inverse: the gradient of the filters (K, C, kh, kw) from that of their blocks.
template <class T> __global__ void filters_from_depth(
    float* w, const T* blocks, int filters, int channels, int kh, int kw, int rows, int columns,
    int wide_channels, int s, int fold)
{
    const int count = filters * channels * kh * kw;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int v = i % kw, u = i / kw % kh, c = i / (kw * kh) % channels, filter = i / (kw * kh * channels);
        const int block = v / s, t = fold > 1 ? block : 0, column = block - t;
        const int e = ((t * channels + c) * s + u % s) * s + v % s;
        w[i] = wide(blocks[((filter * rows + u / s) * columns + column) * wide_channels + e]);
    }
}

// Flipped filters: from (K, taps, C) to out (C, taps, K), with the taps in reverse order.
template <class T> __global__ void flip_filters(T* out, const T* w, int filters, int taps, int channels)
{
    const int count = filters * taps * channels;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int filter = i % filters, tap = i / filters % taps, channel = i / (filters * taps);
        out[i] = w[(filter * taps + taps - 1 - tap) * channels + channel];
    }
}

// Concatenates up to four arrays along the channels; they have `channels` together.
template <class T, int V> __global__ void concat(
    T* out, unsigned pixels, int channels, int pitch, SIDE_BY_SIDE(T))
{
    const unsigned groups = channels / V, count = pixels * groups;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const long long pixel = i / groups;
        const int channel = i % groups * V;
        const Source<T> source = THIS_SOURCE(T, channel);
        *reinterpret_cast<Pack<T, V>*>(out + pixel * pitch + channel) =
            *reinterpret_cast<const Pack<T, V>*>(source.from + pixel * source.pitch);
    }
}

// a + b + c + d; c and d may be null.
template <class T, int V> __global__ void total(
    T* out, const T* a, const T* b, const T* c, const T* d, long long count)
{
    for (long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * V; i < count;
         i += (long long)gridDim.x * blockDim.x * V) {
        float sum[V], next[V];
        load<T, V>(sum, a + i);
        load<T, V>(next, b + i);
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] += next[j];
        if (c) {
            load<T, V>(next, c + i);
#pragma unroll
            for (int j = 0; j < V; j++) sum[j] += next[j];
        }
        if (d) {
            load<T, V>(next, d + i);
#pragma unroll
            for (int j = 0; j < V; j++) sum[j] += next[j];
        }
        store<T, V>(out + i, sum);
    }
}

// One vector of channels for all pixels of an image; sizes are in groups of V elements.
template <class T, int V> __global__ void repeat(
    T* out, const T* x, unsigned count, int image, int groups)
{
    const Pack<T, V>* from = reinterpret_cast<const Pack<T, V>*>(x);
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        reinterpret_cast<Pack<T, V>*>(out)[i] = from[i / image * groups + i % groups];
}
