// Images (planes of height x width) shrunk window by window; a thread has one result.
// The ways back gather: each pixel asks the windows that see it, so no two threads add to one place.

#include "common.cuh"

struct Pool {
    Size height, width, rows, columns;  // of the image and of the result
    Size size[2], stride[2], before[2];
};

struct Window {
    Size top, bottom, left, right;
};

__device__ __forceinline__ Window window_of(const Pool& p, Size i, Size j)
{
    const Size top = i * p.stride[0] - p.before[0], left = j * p.stride[1] - p.before[1];
    Window w;
    w.top = top > 0 ? top : 0;
    w.left = left > 0 ? left : 0;
    w.bottom = top + p.size[0] < p.height ? top + p.size[0] : p.height;
    w.right = left + p.size[1] < p.width ? left + p.size[1] : p.width;
    return w;
}

// The place, in its plane, of the first largest pixel of a window, or of its first NaN.
__device__ __forceinline__ Size first_largest(const Real* plane, const Pool& p, const Window& w)
{
    Size found = w.top * p.width + w.left;
    Real best = plane[found];
    for (Size i = w.top; i < w.bottom; ++i)
        for (Size j = w.left; j < w.right; ++j)
            if (beats(plane[i * p.width + j], best)) {
                found = i * p.width + j;
                best = plane[found];
            }
    return found;
}

extern "C" __global__ void max_pool(Real* out, const Real* x, Size count, Pool p)
{
    for (Size at = first_position(); at < count; at += all_threads()) {
        const Size j = at % p.columns, i = at / p.columns % p.rows;
        const Real* plane = x + at / (p.columns * p.rows) * p.height * p.width;
        out[at] = plane[first_largest(plane, p, window_of(p, i, j))];
    }
}

// Where each window's largest pixel lies: the first half of the way back.
extern "C" __global__ void max_pool_places(int* places, const Real* x, Size count, Pool p)
{
    for (Size at = first_position(); at < count; at += all_threads()) {
        const Size j = at % p.columns, i = at / p.columns % p.rows;
        const Real* plane = x + at / (p.columns * p.rows) * p.height * p.width;
        places[at] = (int)first_largest(plane, p, window_of(p, i, j));
    }
}

// The windows along one axis that see a pixel: from `first` up to, not including, `last`.
__device__ __forceinline__ void seeing(
    Size pixel, Size size, Size stride, Size before, Size windows, Size* first, Size* last)
{
    const Size padded = pixel + before;
    *first = padded < size ? 0 : (padded - size) / stride + 1;
    *last = padded / stride + 1 < windows ? padded / stride + 1 : windows;
}

extern "C" __global__ void max_pool_gradient(
    Real* out, const Real* g, const int* places, Size count, Pool p)
{
    for (Size at = first_position(); at < count; at += all_threads()) {
        const Size own = at % (p.height * p.width);
        const Size plane = at / (p.height * p.width) * p.rows * p.columns;
        Size top, bottom, left, right;
        seeing(own / p.width, p.size[0], p.stride[0], p.before[0], p.rows, &top, &bottom);
        seeing(own % p.width, p.size[1], p.stride[1], p.before[1], p.columns, &left, &right);
        Real total = 0;
        for (Size i = top; i < bottom; ++i)
            for (Size j = left; j < right; ++j)
                if (places[plane + i * p.columns + j] == own)
                    total += g[plane + i * p.columns + j];
        out[at] = total;
    }
}

extern "C" __global__ void average_pool(Real* out, const Real* x, Size count, Pool p)
{
    for (Size at = first_position(); at < count; at += all_threads()) {
        const Size j = at % p.columns, i = at / p.columns % p.rows;
        const Real* plane = x + at / (p.columns * p.rows) * p.height * p.width;
        const Window w = window_of(p, i, j);
        Real total = 0;
        for (Size row = w.top; row < w.bottom; ++row)
            for (Size column = w.left; column < w.right; ++column)
                total += plane[row * p.width + column];
        out[at] = total / Real((w.bottom - w.top) * (w.right - w.left));
    }
}

extern "C" __global__ void average_pool_gradient(Real* out, const Real* g, Size count, Pool p)
{
    for (Size at = first_position(); at < count; at += all_threads()) {
        const Size own = at % (p.height * p.width);
        const Size plane = at / (p.height * p.width) * p.rows * p.columns;
        Size top, bottom, left, right;
        seeing(own / p.width, p.size[0], p.stride[0], p.before[0], p.rows, &top, &bottom);
        seeing(own % p.width, p.size[1], p.stride[1], p.before[1], p.columns, &left, &right);
        Real total = 0;
        for (Size i = top; i < bottom; ++i)
            for (Size j = left; j < right; ++j) {
                const Window w = window_of(p, i, j);
                total += g[plane + i * p.columns + j] / Real((w.bottom - w.top) * (w.right - w.left));
            }
        out[at] = total;
    }
}

// The first paper's trainable pooling: one filter w and one number b for all planes.
extern "C" __global__ void subsample(
    Real* out, const Real* x, const Real* w, const Real* b, Size count, Pool p)
{
    for (Size at = first_position(); at < count; at += all_threads()) {
        const Size j = at % p.columns, i = at / p.columns % p.rows;
        const Real* corner = x + at / (p.columns * p.rows) * p.height * p.width
            + i * p.stride[0] * p.width + j * p.stride[1];
        Real total = *b;
        for (Size u = 0; u < p.size[0]; ++u)
            for (Size v = 0; v < p.size[1]; ++v)
                total += corner[u * p.width + v] * w[u * p.size[1] + v];
        out[at] = total;
    }
}
