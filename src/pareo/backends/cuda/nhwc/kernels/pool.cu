// Pooling, channels last. A thread holds V channels and iterates over pixels.
//
// max_pool also writes the index of each window's first largest element, row by row in the window,
// so that the backward pass reads a byte for each window instead of the images. NO_INDEX stands for
// a largest element that is not above 0, if the backward pass includes that of a relu.
//
// Windows of 3 x 3 have their own kernels in pool3.cu, except max_pool with stride 2: SIDE is 3 for
// it, and 0 for all other windows.
#include "nhwc/kernels/sums.cuh"

struct Window {
    int height, width;  // of the images
    int out_height, out_width;
    int kh, kw, sh, sw, top, left;
};

// The same as kernel parameters.
#define WINDOW int height, int width, int out_height, int out_width, int kh, int kw, int sh, int sw, \
    int top, int left
#define THIS_WINDOW {height, width, out_height, out_width, kh, kw, sh, sw, top, left}

const unsigned char NO_INDEX = 255;

// The position of a pixel: its image, row and column.
struct Place {
    int image, row, column;
    __device__ Place(unsigned pixel, int height, int width)
    {
        const unsigned line = pixel / width;
        column = pixel - line * width;
        image = line / height;
        row = line - image * height;
    }
};

// The windows that contain a pixel of the images.
struct Holding {
    int row, column, first_row, last_row, first_column, last_column;
    __device__ Holding(const Window& window, const Place& at)
    {
        row = at.row + window.top;
        column = at.column + window.left;
        last_row = min(row / window.sh, window.out_height - 1);
        last_column = min(column / window.sw, window.out_width - 1);
        first_row = row < window.kh ? 0 : (row - window.kh) / window.sh + 1;
        first_column = column < window.kw ? 0 : (column - window.kw) / window.sw + 1;
    }
};

template <class T, int V, int SIDE, bool RELU> __global__ void max_pool(
    T* out, unsigned char* indices, const T* x, unsigned pixels, int channels, int pitch, WINDOW)
{
    Window window = THIS_WINDOW;
    if (SIDE) {
        window.kh = window.kw = SIDE;
        window.sh = window.sw = 2;
    }
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (channel >= channels) return;
    for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels; p += gridDim.x * blockDim.y) {
        const Place at(p, window.out_height, window.out_width);
        const int row = at.row * window.sh - window.top;
        const int column = at.column * window.sw - window.left;
        const T* from = x + (((long long)at.image * window.height + row) * window.width + column) * pitch
                      + channel;
        float best[V];
        Pack<unsigned char, V> found;
        bool first = true;
#pragma unroll
        for (int u = 0; u < window.kh; u++)
#pragma unroll
            for (int v = 0; v < window.kw; v++) {
                const int h = row + u, w = column + v;
                if (h < 0 || w < 0 || h >= window.height || w >= window.width) continue;
                float value[V];
                load<T, V>(value, from + (long long)(u * window.width + v) * pitch);
#pragma unroll
                for (int i = 0; i < V; i++)
                    if (first || value[i] > best[i] || (value[i] != value[i] && best[i] == best[i])) {
                        best[i] = value[i];
                        found.at[i] = u * window.kw + v;
                    }
                first = false;
            }
#pragma unroll
        for (int i = 0; i < V; i++)
            if (RELU && best[i] <= 0) found.at[i] = NO_INDEX;
        const long long to = (long long)p * channels + channel;
        store<T, V>(out + to, best);
        if (indices) *reinterpret_cast<Pack<unsigned char, V>*>(indices + to) = found;
    }
}

// d = g at the indices; d's sums for each channel go to `partial` unless it is null.
template <class T, int V> __global__ void max_pool_back(
    T* d, float* partial, const T* g, const unsigned char* indices, unsigned pixels, int channels,
    int pitch, WINDOW)
{
    const Window window = THIS_WINDOW;
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sums[V] = {};
    if (channel < channels)
        for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels;
             p += gridDim.x * blockDim.y) {
            const Place at(p, window.height, window.width);
            const Holding holding(window, at);
            float error[V] = {};
            for (int r = holding.first_row; r <= holding.last_row; r++)
                for (int c = holding.first_column; c <= holding.last_column; c++) {
                    const long long from =
                        ((long long)at.image * window.out_height + r) * window.out_width + c;
                    const int place = (holding.row - r * window.sh) * window.kw + holding.column
                                    - c * window.sw;
                    const Pack<unsigned char, V> found = *reinterpret_cast<const Pack<unsigned char, V>*>(
                        indices + from * channels + channel);
                    float arriving[V];
                    load<T, V>(arriving, g + from * pitch + channel);
#pragma unroll
                    for (int i = 0; i < V; i++)
                        if (found.at[i] == place) error[i] += arriving[i];
                }
#pragma unroll
            for (int i = 0; i < V; i++) sums[i] += error[i];
            store<T, V>(d + (long long)p * channels + channel, error);
        }
    if (partial) leave_sums<V>(partial, sums, channel, channels);
}

__device__ inline float counted(int start, int size, int limit)
{
    return min(start + size, limit) - max(start, 0);
}

template <class T, int V> __global__ void average_pool(
    T* out, const T* x, unsigned pixels, int channels, int pitch, WINDOW)
{
    const Window window = THIS_WINDOW;
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (channel >= channels) return;
    for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels; p += gridDim.x * blockDim.y) {
        const Place at(p, window.out_height, window.out_width);
        const int row = at.row * window.sh - window.top;
        const int column = at.column * window.sw - window.left;
        float sums[V] = {};
        for (int h = max(row, 0); h < min(row + window.kh, window.height); h++)
            for (int w = max(column, 0); w < min(column + window.kw, window.width); w++) {
                const long long from = ((long long)at.image * window.height + h) * window.width + w;
                float value[V];
                load<T, V>(value, x + from * pitch + channel);
#pragma unroll
                for (int i = 0; i < V; i++) sums[i] += value[i];
            }
        const float number =
            counted(row, window.kh, window.height) * counted(column, window.kw, window.width);
#pragma unroll
        for (int i = 0; i < V; i++) sums[i] /= number;
        store<T, V>(out + (long long)p * channels + channel, sums);
    }
}

template <class T, int V> __global__ void average_pool_back(
    T* d, const T* g, unsigned pixels, int channels, int pitch, WINDOW)
{
    const Window window = THIS_WINDOW;
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (channel >= channels) return;
    for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < pixels; p += gridDim.x * blockDim.y) {
        const Place at(p, window.height, window.width);
        const Holding holding(window, at);
        float error[V] = {};
        for (int r = holding.first_row; r <= holding.last_row; r++)
            for (int c = holding.first_column; c <= holding.last_column; c++) {
                const long long from = ((long long)at.image * window.out_height + r) * window.out_width + c;
                const float number =
                    counted(r * window.sh - window.top, window.kh, window.height)
                    * counted(c * window.sw - window.left, window.kw, window.width);
                float arriving[V];
                load<T, V>(arriving, g + from * pitch + channel);
#pragma unroll
                for (int i = 0; i < V; i++) error[i] += arriving[i] / number;
            }
        store<T, V>(d + (long long)p * channels + channel, error);
    }
}
