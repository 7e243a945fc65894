// Activations: the value of x, and the gradient at the value y.

struct Linear {
    static __device__ float value(float x) { return x; }
    static __device__ float slope(float) { return 1.0f; }
};

struct Sigmoid {
    static __device__ float value(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
    static __device__ float slope(float y) { return y * (1.0f - y); }
};

struct Tanh {
    static __device__ float value(float x) { return tanhf(x); }
    static __device__ float slope(float y) { return 1.0f - y * y; }
};

struct Relu {
    static __device__ float value(float x) { return x <= 0.0f ? 0.0f : x; }
    static __device__ float slope(float y) { return y <= 0.0f ? 0.0f : 1.0f; }
};
