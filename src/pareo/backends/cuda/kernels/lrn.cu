// Local response normalisation: y = x / (k + share * s) ** beta, where s is the sum of squares over
// `size` neighbouring channels, size / 2 of them before. blockIdx.x is a plane of (N, C, pixels).

#include "common.cuh"

struct Lrn {
    Size channels, pixels, size;
    double share, beta, k;
};

struct Neighbours {
    int first, last;
};

__device__ __forceinline__ Neighbours around(int channel, int before, const Lrn& how)
{
    return {max(channel - before, 0), min(channel - before + (int)how.size, (int)how.channels)};
}

__device__ __forceinline__ Real divisor_of(const Real* x, int channel, Neighbours n, const Lrn& how)
{
    Real total = 0;
    for (int c = n.first; c < n.last; ++c) {
        const Real value = x[(c - channel) * how.pixels];
        total += value * value;
    }
    return Real(how.k) + Real(how.share) * total;
}

// value ** beta; the usual beta of 0.75 as two square roots, which are cheap and precise.
__device__ __forceinline__ Real power(Real value, double beta)
{
    if (beta == 0.75) {
        const Real root = sqrt(value);
        return root * sqrt(root);
    }
    return pow(value, Real(beta));
}

extern "C" __global__ void lrn(Real* out, const Real* x, Lrn how)
{
    const int channel = blockIdx.x % (int)how.channels;
    const Neighbours n = around(channel, (int)how.size / 2, how);
    for (int pixel = first_pixel(); pixel < how.pixels; pixel += next_pixel()) {
        const Size at = blockIdx.x * how.pixels + pixel;
        out[at] = x[at] / power(divisor_of(x + at, channel, n, how), how.beta);
    }
}

// First half of the backward pass: writes g / divisor ** beta to out, and each element's
// contribution to the gradient of its neighbours, through their divisor, to pulls.
extern "C" __global__ void lrn_pulls(Real* out, Real* pulls, const Real* g, const Real* x, Lrn how)
{
    const int channel = blockIdx.x % (int)how.channels;
    const Neighbours n = around(channel, (int)how.size / 2, how);
    for (int pixel = first_pixel(); pixel < how.pixels; pixel += next_pixel()) {
        const Size at = blockIdx.x * how.pixels + pixel;
        const Real divisor = divisor_of(x + at, channel, n, how);
        const Real direct = g[at] / power(divisor, how.beta);
        out[at] = direct;
        pulls[at] = direct * x[at] / divisor;
    }
}

extern "C" __global__ void lrn_gradient(Real* out, const Real* pulls, const Real* x, Lrn how)
{
    const Real slope = Real(2 * how.beta * how.share);
    const int channel = blockIdx.x % (int)how.channels;
    const Neighbours n = around(channel, (int)how.size - 1 - (int)how.size / 2, how);
    for (int pixel = first_pixel(); pixel < how.pixels; pixel += next_pixel()) {
        const Size at = blockIdx.x * how.pixels + pixel;
        Real total = 0;
        for (int c = n.first; c < n.last; ++c)
            total += pulls[at + (c - channel) * how.pixels];
        out[at] -= slope * x[at] * total;
    }
}
