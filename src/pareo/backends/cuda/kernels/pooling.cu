// Pooling: blockIdx.x is the plane, and a thread computes one element at a time. The backward
// passes gather: each pixel reads the windows that contain it, so no two threads add to the same
// element.

#include "common.cuh"

struct Pool {
    int height, width, rows, columns;  // of the image and of the result
    int size[2], stride[2], before[2];
};

struct Window {
    int top, bottom, left, right;
};

__device__ __forceinline__ Window window_of(const Pool& p, int i, int j)
{
    const int top = i * p.stride[0] - p.before[0], left = j * p.stride[1] - p.before[1];
    return {max(top, 0), min(top + p.size[0], p.height), max(left, 0), min(left + p.size[1], p.width)};
}

__device__ __forceinline__ const Real* image_of(const Real* x, const Pool& p)
{
    return x + (Size)blockIdx.x * (p.height * p.width);
}

__device__ __forceinline__ Size result_of(const Pool& p, int at)
{
    return (Size)blockIdx.x * (p.rows * p.columns) + at;
}

// The index, in its plane, of the first largest pixel of a window, or of its first NaN.
__device__ __forceinline__ int first_largest(const Real* plane, const Pool& p, int at)
{
    const Window w = window_of(p, at / p.columns, at % p.columns);
    int found = w.top * p.width + w.left;
    Real best = plane[found];
    for (int i = w.top; i < w.bottom; ++i)
        for (int j = w.left; j < w.right; ++j) {
            const Real value = plane[i * p.width + j];
            if (beats(value, best)) {
                found = i * p.width + j;
                best = value;
            }
        }
    return found;
}

extern "C" __global__ void max_pool(Real* out, const Real* x, Pool p)
{
    const Real* plane = image_of(x, p);
    for (int at = first_pixel(); at < p.rows * p.columns; at += next_pixel())
        out[result_of(p, at)] = plane[first_largest(plane, p, at)];
}

// The index of each window's largest pixel: the first half of the backward pass.
extern "C" __global__ void max_pool_indices(int* indices, const Real* x, Pool p)
{
    const Real* plane = image_of(x, p);
    for (int at = first_pixel(); at < p.rows * p.columns; at += next_pixel())
        indices[result_of(p, at)] = first_largest(plane, p, at);
}

// The windows that contain a pixel, as ranges of rows and columns.
__device__ __forceinline__ Window seeing(const Pool& p, int pixel)
{
    const int down = pixel / p.width + p.before[0], along = pixel % p.width + p.before[1];
    return {
        down < p.size[0] ? 0 : (down - p.size[0]) / p.stride[0] + 1,
        min(down / p.stride[0] + 1, p.rows),
        along < p.size[1] ? 0 : (along - p.size[1]) / p.stride[1] + 1,
        min(along / p.stride[1] + 1, p.columns),
    };
}

extern "C" __global__ void max_pool_gradient(Real* out, const Real* g, const int* indices, Pool p)
{
    for (int own = first_pixel(); own < p.height * p.width; own += next_pixel()) {
        const Window w = seeing(p, own);
        Real total = 0;
        for (int i = w.top; i < w.bottom; ++i)
            for (int j = w.left; j < w.right; ++j) {
                const Size at = result_of(p, i * p.columns + j);
                if (indices[at] == own)
                    total += g[at];
            }
        out[(Size)blockIdx.x * (p.height * p.width) + own] = total;
    }
}

__device__ __forceinline__ Real pixels_in(const Window& w)
{
    return Real((w.bottom - w.top) * (w.right - w.left));
}

extern "C" __global__ void average_pool(Real* out, const Real* x, Pool p)
{
    const Real* plane = image_of(x, p);
    for (int at = first_pixel(); at < p.rows * p.columns; at += next_pixel()) {
        const Window w = window_of(p, at / p.columns, at % p.columns);
        Real total = 0;
        for (int i = w.top; i < w.bottom; ++i)
            for (int j = w.left; j < w.right; ++j)
                total += plane[i * p.width + j];
        out[result_of(p, at)] = total / pixels_in(w);
    }
}

extern "C" __global__ void average_pool_gradient(Real* out, const Real* g, Pool p)
{
    for (int own = first_pixel(); own < p.height * p.width; own += next_pixel()) {
        const Window w = seeing(p, own);
        Real total = 0;
        for (int i = w.top; i < w.bottom; ++i)
            for (int j = w.left; j < w.right; ++j)
                total += g[result_of(p, i * p.columns + j)] / pixels_in(window_of(p, i, j));
        out[(Size)blockIdx.x * (p.height * p.width) + own] = total;
    }
}

// The first paper's trainable pooling: one filter w and one bias b for all planes.
extern "C" __global__ void subsample(Real* out, const Real* x, const Real* w, const Real* b, Pool p)
{
    const Real* plane = image_of(x, p);
    for (int at = first_pixel(); at < p.rows * p.columns; at += next_pixel()) {
        const int i = at / p.columns, j = at % p.columns;
        const Real* corner = plane + i * p.stride[0] * p.width + j * p.stride[1];
        Real total = *b;
        for (int u = 0; u < p.size[0]; ++u)
            for (int v = 0; v < p.size[1]; ++v)
                total += corner[u * p.width + v] * w[u * p.size[1] + v];
        out[result_of(p, at)] = total;
    }
}
