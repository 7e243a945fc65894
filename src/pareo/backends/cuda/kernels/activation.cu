// The activations of newer networks and their gradients, elementwise: out[i] = f(a[i]), and
// out[i] = f(g[i], a[i]) for a gradient, which stands here with g as its first argument.
//
// Each function has three kernels, as in elementwise.cu: NAME for contiguous arrays that are aligned
// to 16 bytes, NAME_walk for any layout, and NAME_far for more elements than 32 bits can count. A
// function may have numbers, `low` and `high`; all kernels take both. out may be the memory of an
// operand.

#include "elementwise.cuh"

#define ACTIVATION(name, expression) \
    struct name##_of { \
        Real low, high; \
        __device__ __forceinline__ Real of(Real first, Real second) const { return expression; } \
    }; \
    extern "C" __global__ void name(ARRAYS, Real low, Real high) \
    { \
        packed<name##_of, false, false>(out, a, b, count, {low, high}); \
    } \
    extern "C" __global__ void name##_walk(ARRAYS, Walk<2> walk, Real low, Real high) \
    { \
        walked<name##_of, unsigned>(out, a, b, count, walk, {low, high}); \
    } \
    extern "C" __global__ void name##_far(ARRAYS, Walk<2> walk, Real low, Real high) \
    { \
        walked<name##_of, unsigned long long>(out, a, b, count, walk, {low, high}); \
    }

constexpr Real HALF_ROOT = Real(0.70710678118654752440);  // sqrt(1 / 2)
constexpr Real DENSITY = Real(0.39894228040143267794);  // 1 / sqrt(2 pi)
constexpr Real TWICE = Real(1.59576912160573071175);  // 2 sqrt(2 / pi)
constexpr Real CUBE = Real(0.044715);

__device__ __forceinline__ Real logistic(Real a) { return Real(1) / (Real(1) + exp(-a)); }

// The normal distribution function; erfc keeps its accuracy where a is far below 0.
__device__ __forceinline__ Real normal(Real a) { return Real(0.5) * erfc(-a * HALF_ROOT); }

__device__ __forceinline__ Real gelu_slope(Real a)
{
    return normal(a) + a * (DENSITY * exp(Real(-0.5) * a * a));
}

// (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)).
__device__ __forceinline__ Real twice_inside(Real a) { return a * (TWICE + TWICE * CUBE * (a * a)); }

__device__ __forceinline__ Real gelu_tanh_slope(Real a)
{
    const Real share = logistic(twice_inside(a));
    return share + a * share * (Real(1) - share) * (TWICE + 3 * TWICE * CUBE * (a * a));
}

__device__ __forceinline__ Real silu_slope(Real a)
{
    const Real s = logistic(a);
    return s * (Real(1) + a * (Real(1) - s));
}

// A NaN stays.
__device__ __forceinline__ Real clipped(Real a, Real low, Real high)
{
    return a < low ? low : a > high ? high : a;
}

__device__ __forceinline__ Real hard(Real a) { return clipped(a + Real(3), Real(0), Real(6)) / Real(6); }

__device__ __forceinline__ Real hard_swish_slope(Real g, Real a)
{
    if (a <= Real(-3))
        return Real(0);
    return a >= Real(3) ? g : g * (a / Real(3) + Real(0.5));
}

ACTIVATION(gelu, first* normal(first))
ACTIVATION(gelu_tanh, first / (Real(1) + exp(-twice_inside(first))))
ACTIVATION(silu, first / (Real(1) + exp(-first)))
ACTIVATION(hard_sigmoid, hard(first))
ACTIVATION(hard_swish, first* hard(first))
ACTIVATION(leaky_relu, first > Real(0) ? first : low * first)
ACTIVATION(clip, clipped(first, low, high))
ACTIVATION(gelu_gradient, first* gelu_slope(second))
ACTIVATION(gelu_tanh_gradient, first* gelu_tanh_slope(second))
ACTIVATION(silu_gradient, first* silu_slope(second))
ACTIVATION(hard_sigmoid_gradient, second > Real(-3) && second < Real(3) ? first / Real(6) : Real(0))
ACTIVATION(hard_swish_gradient, hard_swish_slope(first, second))
ACTIVATION(leaky_relu_gradient, second > Real(0) ? first : low * first)
ACTIVATION(clip_gradient, second > low && second < high ? first : Real(0))
