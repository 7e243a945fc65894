// Random changes to images (operators/augmentation.py): mirrored, moved, and with a square of zeros.
// All devices give the same bits: column j of image n draws from the hash of (seed, 8 n + j).
// blockIdx.x is a plane of (N, C, height, width).

#include "common.cuh"

struct Change {
    int channels, height, width, flip, crop, cutout;
};

__device__ __forceinline__ int drawn(const Size* seed, Size position, int choices)
{
    unsigned long long z = (unsigned long long)*seed * 0x9E3779B97F4A7C15ull + position;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (int)(((z ^ (z >> 31)) >> 40) * (unsigned long long)choices >> 24);
}

extern "C" __global__ void augment(Real* out, const Real* x, const Size* seed, Change change)
{
    const Size image = 8 * (Size)(blockIdx.x / change.channels);
    __shared__ int draws[5];
    if (threadIdx.x < 5) {
        const int moves = 2 * change.crop + 1;
        const int choices[5] = {2, moves, moves, change.height, change.width};
        draws[threadIdx.x] = drawn(seed, image + threadIdx.x, choices[threadIdx.x]);
    }
    __syncthreads();
    const bool mirrored = change.flip && draws[0];
    const int down = draws[1] - change.crop, right = draws[2] - change.crop;
    const int top = draws[3] - change.cutout / 2, left = draws[4] - change.cutout / 2;
    const int pixels = change.height * change.width;
    const Size start = (Size)blockIdx.x * pixels;
    for (int at = first_pixel(); at < pixels; at += next_pixel()) {
        const int i = at / change.width, j = at % change.width;
        const int row = i + down, column = j + right;
        const bool inside = row >= 0 && row < change.height && column >= 0 && column < change.width;
        const bool cut
            = i >= top && i - top < change.cutout && j >= left && j - left < change.cutout;
        const int from = mirrored ? change.width - 1 - column : column;
        out[start + at] = inside && !cut ? x[start + row * change.width + from] : Real(0);
    }
}
