// Local response normalisation of element i of x (N, C, PIXELS): x / (k + share * s) ** beta, where s is the sum of
// squares over SIZE neighbouring channels.
#pragma once

struct Lrn { float share, beta, k; };

// The channels from `before` before a channel on, SIZE of them at most.
__device__ inline int first_near(int channel, int before) { return channel < before ? 0 : channel - before; }
template <int C, int SIZE> __device__ inline int end_near(int channel, int before) { return least(channel - before + SIZE, C); }

template <int C, int PIXELS, int SIZE> __device__ inline float divisor_of(const float* x, int i, Lrn how)
{
    const int channel = i / PIXELS % C, end = end_near<C, SIZE>(channel, SIZE / 2);
    float sum = 0;
    for (int c = first_near(channel, SIZE / 2); c < end; c++) {
        const float value = x[i + (c - channel) * PIXELS];
        sum += value * value;
    }
    return how.k + how.share * sum;
}
// The usual beta of 0.75 is two square roots.
__device__ inline float power(float value, float beta)
{
    if (beta == 0.75f) return sqrtf(value) * sqrtf(sqrtf(value));
    return powf(value, beta);
}
template <int C, int PIXELS, int SIZE> __device__ inline float lrn_at(const float* x, int i, Lrn how)
{
    return x[i] / power(divisor_of<C, PIXELS, SIZE>(x, i, how), how.beta);
}
// An element is part of the divisors of its neighbours, too.
template <int C, int PIXELS, int SIZE> __device__ inline float lrn_back_at(const float* g, const float* x, int i, Lrn how)
{
    const int channel = i / PIXELS % C, before = SIZE - 1 - SIZE / 2, end = end_near<C, SIZE>(channel, before);
    float pulls = 0, own = 0;
    for (int c = first_near(channel, before); c < end; c++) {
        const int at = i + (c - channel) * PIXELS;
        const float divisor = divisor_of<C, PIXELS, SIZE>(x, at, how), direct = g[at] / power(divisor, how.beta);
        pulls += direct * x[at] / divisor;
        if (c == channel) own = direct;
    }
    return own - 2 * how.beta * how.share * x[i] * pulls;
}
