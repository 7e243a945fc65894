// Functions of one element. A NaN stays one.
#pragma once

__device__ inline float logistic(float a) { return inverse_of(1 + expf(-a)); }
__device__ inline float clipped(float a, float low, float high) { return a < low ? low : a > high ? high : a; }
__device__ inline float hard(float a) { return clipped(a + 3, 0, 6) / 6; }
// The normal distribution function.
__device__ inline float normal(float a) { return 0.5f * erfcf(-a * 0.70710678f); }
__device__ inline float gelu_slope(float a) { return normal(a) + a * (0.39894228f * expf(-0.5f * a * a)); }
// (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)).
__device__ inline float twice_inside(float a) { return a * (1.59576912f + 0.07135481f * (a * a)); }
__device__ inline float gelu_tanh_slope(float a)
{
    const float share = logistic(twice_inside(a));
    return share + a * share * (1 - share) * (1.59576912f + 0.21406444f * (a * a));
}
__device__ inline float silu_slope(float a)
{
    const float s = logistic(a);
    return s * (1 + a * (1 - s));
}
__device__ inline float hard_swish_back(float g, float a)
{
    return a <= -3 ? 0 : a >= 3 ? g : g * (a / 3 + 0.5f);
}
