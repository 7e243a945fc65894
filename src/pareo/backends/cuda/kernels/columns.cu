// Convolution as matrix products: images to columns and back (im2col and col2im).
//
// A column holds the input of one window, channel by channel. `columns` is (depth, images, pixels)
// if side_by_side, else (images, depth, pixels): a matrix for each image. blockIdx.x is a plane of
// the output; a thread computes one element at a time.

#include "common.cuh"

struct Im2col {
    int images, channels, height, width, rows, columns;  // of the images; of the output
    int size[2], stride[2], before[2], dilation[2];
    int side_by_side;
};

extern "C" __global__ void to_columns(Real* columns, const Real* x, Im2col s)
{
    const int depth = s.channels * s.size[0] * s.size[1], pixels = s.rows * s.columns;
    const int image = s.side_by_side ? blockIdx.x % s.images : blockIdx.x / depth;
    const int row = s.side_by_side ? blockIdx.x / s.images : blockIdx.x % depth;
    const int channel = row / (s.size[0] * s.size[1]);
    const int top = row / s.size[1] % s.size[0] * s.dilation[0] - s.before[0];
    const int left = row % s.size[1] * s.dilation[1] - s.before[1];
    const Real* plane = x + ((Size)image * s.channels + channel) * (s.height * s.width);
    for (int at = first_pixel(); at < pixels; at += next_pixel()) {
        const int i = at / s.columns * s.stride[0] + top, j = at % s.columns * s.stride[1] + left;
        const bool inside = i >= 0 && i < s.height && j >= 0 && j < s.width;
        columns[(Size)blockIdx.x * pixels + at] = inside ? plane[i * s.width + j] : Real(0);
    }
}

// The window along an axis that starts at this pixel; -1 where none does.
__device__ __forceinline__ int window_at(int pixel, int stride, int windows)
{
    const int window = stride == 1 ? pixel : pixel / stride;
    return pixel < 0 || window >= windows || window * stride != pixel ? -1 : window;
}

// Each pixel is the sum of its copies in columns (images, depth, pixels).
extern "C" __global__ void from_columns(Real* x, const Real* columns, Im2col s)
{
    const int window = s.size[0] * s.size[1], pixels = s.rows * s.columns;
    const Real* from = columns + (Size)blockIdx.x * window * pixels;
    for (int at = first_pixel(); at < s.height * s.width; at += next_pixel()) {
        const int down = at / s.width + s.before[0], along = at % s.width + s.before[1];
        Real total = 0;
        for (int u = 0; u < s.size[0]; ++u) {
            const int i = window_at(down - u * s.dilation[0], s.stride[0], s.rows);
            if (i < 0)
                continue;
            for (int v = 0; v < s.size[1]; ++v) {
                const int j = window_at(along - v * s.dilation[1], s.stride[1], s.columns);
                if (j >= 0)
                    total += from[(Size)(u * s.size[1] + v) * pixels + i * s.columns + j];
            }
        }
        x[(Size)blockIdx.x * (s.height * s.width) + at] = total;
    }
}
