// The norm of several arrays as one vector. `squares` adds the squares of a stretch of one array for
// each block, `root` adds these sums. All sums are double, so that squares do not overflow.

#include "common.cuh"

constexpr int MOST_ARRAYS = 64;  // of one launch
constexpr Size STRETCH = 8192;  // elements for each block

// Blocks from first[k] to first[k + 1] have the array k.
struct Several {
    Size arrays;
    const Real* data[MOST_ARRAYS];
    Size count[MOST_ARRAYS];
    Size first[MOST_ARRAYS + 1];
};

__device__ double summed(double value)
{
    __shared__ double shared[32];
    for (int apart = 16; apart; apart /= 2)
        value += __shfl_xor_sync(~0u, value, apart);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (int warp = 0; warp < blockDim.x / 32; ++warp)
        value += shared[warp];
    return value;
}

extern "C" __global__ void squares(double* sums, Several several)
{
    int low = 0, high = (int)several.arrays;  // the array lies between
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (several.first[middle] <= blockIdx.x ? low : high) = middle;
    }
    const Size start = (blockIdx.x - several.first[low]) * STRETCH;
    const Size stop = min(start + STRETCH, several.count[low]);
    const Real* data = several.data[low];
    double total = 0;
#pragma unroll 8
    for (Size i = start + threadIdx.x; i < stop; i += blockDim.x)
        total += (double)data[i] * (double)data[i];
    total = summed(total);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = total;
}

extern "C" __global__ void root(Real* out, const double* sums, Size count)
{
    double total = 0;
    for (Size i = threadIdx.x; i < count; i += blockDim.x)
        total += sums[i];
    total = summed(total);
    if (threadIdx.x == 0)
        *out = Real(sqrt(total));
}
