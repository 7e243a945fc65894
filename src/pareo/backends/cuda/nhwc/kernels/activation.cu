// Activations by themselves, forward and backward, in either precision.
#include "nhwc/kernels/activation.cuh"
#include "nhwc/kernels/vector.cuh"

template <class T, int V, int A> __global__ void activation(
    T* out, const T* x, long long count, float low, float high)
{
    for (long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * V; i < count;
         i += (long long)gridDim.x * blockDim.x * V) {
        float value[V];
        load<T, V>(value, x + i);
#pragma unroll
        for (int j = 0; j < V; j++) value[j] = activate<A>(value[j], low, high);
        store<T, V>(out + i, value);
    }
}

template <class T, int V, int A> __global__ void activation_back(
    T* out, const T* g, const T* x, long long count, float low, float high)
{
    for (long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * V; i < count;
         i += (long long)gridDim.x * blockDim.x * V) {
        float error[V], value[V];
        load<T, V>(error, g + i);
        load<T, V>(value, x + i);
#pragma unroll
        for (int j = 0; j < V; j++) error[j] = activate_back<A>(error[j], value[j], low, high);
        store<T, V>(out + i, error);
    }
}
