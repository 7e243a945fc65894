// Activations and their gradients, by a number that is known at compile time.
#pragma once

enum Activation { IDENTITY, RELU, CLIP, SILU, HARD_SWISH, HARD_SIGMOID, LEAKY, GELU, GELU_TANH, SIGMOID };

__device__ inline float logistic(float z) { return 1 / (1 + __expf(-z)); }

// The inner function of the approximation of gelu by tanh.
__device__ inline float gelu_tanh_of(float z)
{
    return tanhf(0.7978845608028654f * (z + 0.044715f * z * z * z));
}

// The normal distribution function at z, and its density there. The function's error is below 2e-7.
__device__ inline float normal(float z, float& density)
{
    const float e = __expf(-0.5f * z * z), t = __fdividef(1, 1 + 0.2316418880f * fabsf(z));
    const float tail = 0.5f * e * t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f
        + t * (-1.453152027f + t * 1.061405429f))));
    density = 0.3989422804014327f * e;
    return z < 0 ? tail : z >= 0 ? 1 - tail : z;
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
    if (A == GELU) {
        float density;
        return z * normal(z, density);
    }
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
    if (A == GELU) {
        float density;
        const float share = normal(z, density);
        return g * (share + z * density);
    }
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
