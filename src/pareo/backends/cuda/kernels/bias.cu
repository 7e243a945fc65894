// out = f(a + b), b having one number for each channel of (N, C, pixels); out may be a's memory.

#include "common.cuh"

template <typename F>
__device__ __forceinline__ void biased(Real* out, const Real* a, const Real* b, Size count, Size channels, Size pixels)
{
    for (Size i = first_position(); i < count; i += all_threads()) {
        const Size channel = count >> 31 ? i / pixels % channels
                                         : (unsigned)i / (unsigned)pixels % (unsigned)channels;
        out[i] = F::of(a[i] + b[channel]);
    }
}

#define BIASED(name, expression) \
    struct name##_of { \
        static __device__ __forceinline__ Real of(Real a) { return expression; } \
    }; \
    extern "C" __global__ void name( \
        Real* out, const Real* a, const Real* b, Size count, Size channels, Size pixels) \
    { \
        biased<name##_of>(out, a, b, count, channels, pixels); \
    }

BIASED(bias, a)
BIASED(bias_relu, a < Real(0) ? Real(0) : a)
BIASED(bias_sigmoid, Real(1) / (Real(1) + exp(-a)))
BIASED(bias_tanh, tanh(a))
