// Convolution in which each filter reads one channel: filter k reads channel k / each. Planes of the
// images are (height, width), those of the output (rows, columns).

#include "common.cuh"

struct Depthwise {
    int images, channels, each, height, width, rows, columns;
    int size[2], stride[2], before[2], dilation[2];
    int parts;
};

// blockIdx.x is a plane of the output. The zeros of the padding are multiplied like pixels, so that a
// filter that is not finite shows in the result; `turned` filters, of a gradient, skip them.
template <bool turned>
__device__ __forceinline__ void convolved(Real* out, const Real* x, const Real* w, const Depthwise& s)
{
    const int filters = s.channels * s.each, filter = blockIdx.x % filters;
    const Size image = blockIdx.x / filters;
    const int taps = s.size[0] * s.size[1];
    const Real* plane = x + (image * s.channels + filter / s.each) * (s.height * s.width);
    const Real* weights = w + (Size)filter * taps;
    for (int at = first_pixel(); at < s.rows * s.columns; at += next_pixel()) {
        const int top = at / s.columns * s.stride[0] - s.before[0];
        const int left = at % s.columns * s.stride[1] - s.before[1];
        Real total = 0;
        for (int u = 0; u < s.size[0]; ++u) {
            const int i = top + u * s.dilation[0];
            const bool within = i >= 0 && i < s.height;
            if (turned && !within)
                continue;
#pragma unroll 4
            for (int v = 0; v < s.size[1]; ++v) {
                const int j = left + v * s.dilation[1], tap = u * s.size[1] + v;
                const bool inside = within && j >= 0 && j < s.width;
                if (inside || !turned)
                    total += (inside ? plane[i * s.width + j] : Real(0))
                        * weights[turned ? taps - 1 - tap : tap];
            }
        }
        out[(Size)blockIdx.x * (s.rows * s.columns) + at] = total;
    }
}

extern "C" __global__ void depthwise(Real* out, const Real* x, const Real* w, Depthwise s)
{
    convolved<false>(out, x, w, s);
}

// The gradient of the images where strides are 1 and each channel has one filter: x is the gradient
// of the output.
extern "C" __global__ void depthwise_turned(Real* out, const Real* x, const Real* w, Depthwise s)
{
    convolved<true>(out, x, w, s);
}

// The window along an axis that starts at this pixel; -1 where none does.
__device__ __forceinline__ int window_at(int pixel, int stride, int windows)
{
    const int window = stride == 1 ? pixel : pixel / stride;
    return pixel < 0 || window >= windows || window * stride != pixel ? -1 : window;
}

// blockIdx.x is a plane of the images.
extern "C" __global__ void depthwise_input(Real* out, const Real* g, const Real* w, Depthwise s)
{
    const int taps = s.size[0] * s.size[1], pixels = s.rows * s.columns;
    const int channel = blockIdx.x % s.channels;
    const Real* errors = g + (Size)blockIdx.x * s.each * pixels;
    const Real* weights = w + (Size)channel * s.each * taps;
    for (int at = first_pixel(); at < s.height * s.width; at += next_pixel()) {
        const int down = at / s.width + s.before[0], along = at % s.width + s.before[1];
        Real total = 0;
        for (int u = 0; u < s.size[0]; ++u) {
            const int i = window_at(down - u * s.dilation[0], s.stride[0], s.rows);
            if (i < 0)
                continue;
#pragma unroll 4
            for (int v = 0; v < s.size[1]; ++v) {
                const int j = window_at(along - v * s.dilation[1], s.stride[1], s.columns);
                for (int m = 0; j >= 0 && m < s.each; ++m)
                    total += errors[(Size)m * pixels + i * s.columns + j]
                        * weights[m * taps + u * s.size[1] + v];
            }
        }
        out[(Size)blockIdx.x * (s.height * s.width) + at] = total;
    }
}

// Sums over the images of a part, (filters, taps, parts). blockIdx.x is a part of a filter, .y a row
// of its window, .z a group of taps in it.
constexpr int GROUP = 8;

extern "C" __global__ void depthwise_weight(Real* sums, const Real* x, const Real* g, Depthwise s)
{
    const int filter = blockIdx.x / s.parts, part = blockIdx.x % s.parts;
    const int filters = s.channels * s.each, pixels = s.rows * s.columns;
    const int u = blockIdx.y, first = blockIdx.z * GROUP;
    const int share = (s.images + s.parts - 1) / s.parts;
    const int start = min(part * share, s.images), stop = min(start + share, s.images);
    Real totals[GROUP];
#pragma unroll
    for (int k = 0; k < GROUP; ++k)
        totals[k] = 0;
    for (Size image = start; image < stop; ++image) {
        const Real* errors = g + (image * filters + filter) * pixels;
        const Real* plane = x + (image * s.channels + filter / s.each) * (s.height * s.width);
        for (int pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) {
            const int i = pixel / s.columns * s.stride[0] - s.before[0] + u * s.dilation[0];
            const int left = pixel % s.columns * s.stride[1] - s.before[1];
            const bool within = i >= 0 && i < s.height;
            const Real error = errors[pixel];
#pragma unroll
            for (int k = 0; k < GROUP; ++k) {
                const int j = left + (first + k) * s.dilation[1];
                const bool inside = within && j >= 0 && j < s.width;
                if (first + k < s.size[1])
                    totals[k] += error * (inside ? plane[i * s.width + j] : Real(0));
            }
        }
    }
#pragma unroll
    for (int k = 0; k < GROUP; ++k) {
        const Real total = over_block<Sum>(totals[k]);
        const Size tap = ((Size)filter * s.size[0] + u) * s.size[1] + first + k;
        if (threadIdx.x == 0 && first + k < s.size[1])
            sums[tap * s.parts + part] = total;
    }
}

extern "C" __global__ void depthwise_totals(Real* out, const Real* sums, Size count, Size parts)
{
    for (Size i = first_position(); i < count; i += all_threads()) {
        Real total = 0;
        for (Size part = 0; part < parts; ++part)
            total += sums[i * parts + part];
        out[i] = total;
    }
}
