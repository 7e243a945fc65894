// Sums over pixels for each channel: each block writes a row of partial sums, in a fixed order. The
// first row is a header, whose first element is the number of rows after it.
#pragma once
#include "nhwc/kernels/vector.cuh"

// A block is (groups of V channels, pixels). Adds `sums` over its pixels into its row of `partial`.
template <int V> __device__ inline void leave_sums(
    float* partial, const float (&sums)[V], int channel, int channels)
{
    extern __shared__ float room[];  // blockDim.y rows of blockDim.x * V
    if (blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0)
        *reinterpret_cast<int*>(partial) = gridDim.x;
    float* mine = room + (threadIdx.y * blockDim.x + threadIdx.x) * V;
#pragma unroll
    for (int i = 0; i < V; i++) mine[i] = sums[i];
    __syncthreads();
    if (threadIdx.y == 0 && channel < channels) {
        float total[V] = {};
        for (int y = 0; y < blockDim.y; y++)
#pragma unroll
            for (int i = 0; i < V; i++) total[i] += room[(y * blockDim.x + threadIdx.x) * V + i];
#pragma unroll
        for (int i = 0; i < V; i++) partial[(blockIdx.x + 1ll) * channels + channel + i] = total[i];
    }
}
