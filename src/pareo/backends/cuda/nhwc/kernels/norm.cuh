// The vectors that normalise channels.
#pragma once

// What normalises a channel: z = (x - mean) * factor + shift.
struct Vectors {
    const float *mean, *variance, *scale, *shift;
    float epsilon;
};

template <int V> struct Norm {
    float mean[V], factor[V], shift[V];
    __device__ Norm(const Vectors& of, int channel)
    {
#pragma unroll
        for (int i = 0; i < V; i++) {
            mean[i] = of.mean[channel + i];
            factor[i] = of.scale[channel + i] * rsqrtf(of.variance[channel + i] + of.epsilon);
            shift[i] = of.shift[channel + i];
        }
    }
    __device__ float operator()(float x, int i) const { return (x - mean[i]) * factor[i] + shift[i]; }
};

// What the gradient of x needs besides: factor * d - (x - mean) * slope - constant.
template <int V> struct Slopes {
    float slope[V], constant[V];
    __device__ Slopes(
        const Vectors& of, const Norm<V>& norm, const float* to_scale, const float* to_shift, int channel,
        unsigned pixels)
    {
#pragma unroll
        for (int i = 0; i < V; i++) {
            const float inverse = rsqrtf(of.variance[channel + i] + of.epsilon);
            slope[i] = norm.factor[i] * inverse * to_scale[channel + i] / pixels;
            constant[i] = norm.factor[i] * to_shift[channel + i] / pixels;
        }
    }
};
