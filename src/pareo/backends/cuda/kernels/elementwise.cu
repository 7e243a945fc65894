// Elementwise functions: out[i] = f(a[i]) and out[i] = f(a[i], b[i]).
//
// Each function has five kernels. NAME takes contiguous arrays aligned to 16 bytes; a thread loads
// 16 bytes, which reaches memory speed (four times as many took up to 8 % longer). NAME_left and
// NAME_right do the same with a scalar for a or b. NAME_walk takes any layout with broadcasting,
// and NAME_far likewise for more elements than 32 bits can count. out may be the memory of an
// operand.

#include "elementwise.cuh"

// A function of one argument ignores b: callers pass a twice, which costs no second load.
#define ELEMENTWISE(name, expression) \
    struct name##_of { \
        static __device__ __forceinline__ Real of(Real a, Real b) { return expression; } \
    }; \
    extern "C" __global__ void name(ARRAYS) { packed<name##_of, false, false>(out, a, b, count); } \
    extern "C" __global__ void name##_left(ARRAYS) \
    { \
        packed<name##_of, true, false>(out, a, b, count); \
    } \
    extern "C" __global__ void name##_right(ARRAYS) \
    { \
        packed<name##_of, false, true>(out, a, b, count); \
    } \
    extern "C" __global__ void name##_walk(ARRAYS, Walk<2> walk) \
    { \
        walked<name##_of, unsigned>(out, a, b, count, walk); \
    } \
    extern "C" __global__ void name##_far(ARRAYS, Walk<2> walk) \
    { \
        walked<name##_of, unsigned long long>(out, a, b, count, walk); \
    }

ELEMENTWISE(copied, a)
ELEMENTWISE(add, a + b)
ELEMENTWISE(sub, a - b)
ELEMENTWISE(hadamard, a * b)
ELEMENTWISE(divide, a / b)
ELEMENTWISE(exponential, exp(a))
ELEMENTWISE(logarithm, log(a))
ELEMENTWISE(sigmoid, Real(1) / (Real(1) + exp(-a)))
ELEMENTWISE(hyperbolic, tanh(a))
ELEMENTWISE(relu, a < Real(0) ? Real(0) : a)
ELEMENTWISE(sigmoid_gradient, a* b*(Real(1) - b))
ELEMENTWISE(tanh_gradient, a*(Real(1) - b * b))
ELEMENTWISE(relu_gradient, b <= Real(0) ? Real(0) : a)
