// Local response normalisation: y = x / (k + share * s) ** beta, s being the sum of squares over
// `size` neighbouring channels, size / 2 of them before. A thread has one element of (N, C, pixels).

#include "common.cuh"

struct Lrn {
    Size channels, pixels, size;
    double share, beta, k;
};

__device__ __forceinline__ Real divisor_of(const Real* x, Size at, Size channel, const Lrn& how)
{
    const Size start = channel - how.size / 2;
    const Size first = start > 0 ? start : 0;
    const Size last = start + how.size < how.channels ? start + how.size : how.channels;
    Real total = 0;
    for (Size c = first; c < last; ++c) {
        const Real value = x[at + (c - channel) * how.pixels];
        total += value * value;
    }
    return Real(how.k) + Real(how.share) * total;
}

extern "C" __global__ void lrn(Real* out, const Real* x, Size count, Lrn how)
{
    for (Size at = first_position(); at < count; at += all_threads()) {
        const Size channel = at / how.pixels % how.channels;
        out[at] = x[at] / pow(divisor_of(x, at, channel, how), Real(how.beta));
    }
}

// The first half of the way back: g / divisor ** beta into out, and how much each element pulls at
// its neighbours through their divisor into pulls.
extern "C" __global__ void lrn_pulls(
    Real* out, Real* pulls, const Real* g, const Real* x, Size count, Lrn how)
{
    for (Size at = first_position(); at < count; at += all_threads()) {
        const Size channel = at / how.pixels % how.channels;
        const Real divisor = divisor_of(x, at, channel, how);
        const Real direct = g[at] / pow(divisor, Real(how.beta));
        out[at] = direct;
        pulls[at] = direct * x[at] / divisor;
    }
}

extern "C" __global__ void lrn_gradient(Real* out, const Real* pulls, const Real* x, Size count, Lrn how)
{
    const Real slope = Real(2 * how.beta * how.share);
    for (Size at = first_position(); at < count; at += all_threads()) {
        const Size channel = at / how.pixels % how.channels;
        const Size start = channel - (how.size - 1 - how.size / 2);
        const Size first = start > 0 ? start : 0;
        const Size last = start + how.size < how.channels ? start + how.size : how.channels;
        Real around = 0;
        for (Size c = first; c < last; ++c)
            around += pulls[at + (c - channel) * how.pixels];
        out[at] -= slope * x[at] * around;
    }
}
