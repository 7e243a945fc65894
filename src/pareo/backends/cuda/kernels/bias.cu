// out = f(a + b), where b has one element for each channel of (N, C, pixels); out may be a.
// NAME takes any arrays; NAME_packed those aligned to 16 bytes whose pixels are whole packs.

#include "common.cuh"

__device__ __forceinline__ int channel_of(Size at, Size channels, Size pixels)
{
    if (at >> 32)
        return (int)(at / pixels % channels);
    return (unsigned)at / (unsigned)pixels % (unsigned)channels;
}

template <typename F>
__device__ __forceinline__ void biased(
    Real* out, const Real* a, const Real* b, Size count, Size channels, Size pixels)
{
    for (Size i = first_position(); i < count; i += all_threads())
        out[i] = F::of(a[i] + b[channel_of(i, channels, pixels)]);
}

template <typename F>
__device__ __forceinline__ void biased_packs(
    Real* out, const Real* a, const Real* b, Size count, Size channels, Size pixels)
{
    for (Size i = first_position(); i < count / WIDTH; i += all_threads()) {
        Pack values = reinterpret_cast<const Pack*>(a)[i];
        const Real bias = b[channel_of(i, channels, pixels / WIDTH)];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            values.at[k] = F::of(values.at[k] + bias);
        reinterpret_cast<Pack*>(out)[i] = values;
    }
}

#define BIAS Real *out, const Real *a, const Real *b, Size count, Size channels, Size pixels

#define BIASED(name, expression) \
    struct name##_of { \
        static __device__ __forceinline__ Real of(Real a) { return expression; } \
    }; \
    extern "C" __global__ void name(BIAS) { biased<name##_of>(out, a, b, count, channels, pixels); } \
    extern "C" __global__ void name##_packed(BIAS) \
    { \
        biased_packs<name##_of>(out, a, b, count, channels, pixels); \
    }

BIASED(bias, a)
BIASED(bias_relu, a < Real(0) ? Real(0) : a)
BIASED(bias_sigmoid, Real(1) / (Real(1) + exp(-a)))
BIASED(bias_tanh, tanh(a))
