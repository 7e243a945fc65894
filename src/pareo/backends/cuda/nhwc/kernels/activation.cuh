// Activations and their gradients, by a number that is known at compile time.
#pragma once

enum Activation { IDENTITY, RELU, CLIP, SILU, HARD_SWISH, HARD_SIGMOID, LEAKY, GELU, GELU_TANH, SIGMOID };

__device__ inline float logistic(float z) { return 1 / (1 + __expf(-z)); }

// The inner function of the approximation of gelu by tanh.
__device__ inline float gelu_tanh_of(float z)
{
    return tanhf(0.7978845608028654f * (z + 0.044715f * z * z * z));
}

// The activation of z; `low` and `high` are the limits of CLIP, `low` is the slope of LEAKY.
template <int A> __device__ inline float activate(float z, float low, float high)
{
    if (A == RELU) return z <= 0 ? 0 : z;
    if (A == CLIP) return z < low ? low : z > high ? high : z;
    if (A == SILU) return z * logistic(z);
    if (A == HARD_SWISH) return z <= -3 ? 0 * z : z >= 3 ? z : z * (z + 3) / 6;
    if (A == HARD_SIGMOID) return z <= -3 ? 0 : z >= 3 ? 1 : (z + 3) / 6;
    if (A == LEAKY) return z > 0 ? z : low * z;
    if (A == GELU) return z * normcdff(z);
    if (A == GELU_TANH) return 0.5f * z * (1 + gelu_tanh_of(z));
    if (A == SIGMOID) return logistic(z);
    return z;
}

// The gradient with respect to z, where g is that with respect to the activation of z.
template <int A> __device__ inline float activate_back(float g, float z, float low, float high)
{
    if (A == RELU) return z <= 0 ? 0 : g;
    if (A == CLIP) return z > low && z < high ? g : 0;
    if (A == SILU) {
        const float s = logistic(z);
        return g * s * (1 + z * (1 - s));
    }
    if (A == HARD_SWISH) return z <= -3 ? 0 : z >= 3 ? g : g * (z / 3 + 0.5f);
    if (A == HARD_SIGMOID) return z > -3 && z < 3 ? g / 6 : 0;
    if (A == LEAKY) return z > 0 ? g : low * g;
    if (A == GELU) return g * (normcdff(z) + z * 0.3989422804014327f * __expf(-0.5f * z * z));
    if (A == GELU_TANH) {
        const float t = gelu_tanh_of(z);
        const float inner = 0.7978845608028654f * (1 + 3 * 0.044715f * z * z);
        return g * 0.5f * (1 + t + z * (1 - t * t) * inner);
    }
    if (A == SIGMOID) {
        const float s = logistic(z);
        return g * s * (1 - s);
    }
    return g;
}
