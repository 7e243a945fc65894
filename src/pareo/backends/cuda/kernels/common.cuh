// Shared by all kernels: sizes, iteration over strided arrays, reductions over a block.
// `Real`, float or double, is a macro of the compilation.
#pragma once

typedef long long Size;

constexpr int MOST_AXES = 8;

// Some arrays of one shape, outermost axis first. Steps are in elements; 0 broadcasts.
template <int arrays> struct Walk {
    Size axes;
    Size sizes[MOST_AXES];
    Size steps[arrays][MOST_AXES];
};

// Each array's offset of the element at a position. A 32-bit Index is faster where it suffices.
template <typename Index, int arrays>
__device__ __forceinline__ void locate(const Walk<arrays>& walk, Index position, Size* offsets)
{
    for (int array = 0; array < arrays; ++array)
        offsets[array] = 0;
    for (int axis = (int)walk.axes - 1; axis >= 0; --axis) {
        const Index size = (Index)walk.sizes[axis];
        const Index here = position % size;
        position /= size;
        for (int array = 0; array < arrays; ++array)
            offsets[array] += (Size)here * walk.steps[array][axis];
    }
}

// The elements that a thread loads at once, from addresses that are multiples of 16 bytes.
constexpr int WIDTH = 16 / sizeof(Real);

struct alignas(16) Pack {
    Real at[WIDTH];
};

__device__ __forceinline__ Size first_position() { return (Size)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ Size all_threads() { return (Size)gridDim.x * blockDim.x; }

// Where blockIdx.x is a plane: a thread's first pixel, and the distance to its next.
__device__ __forceinline__ int first_pixel() { return blockIdx.y * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int next_pixel() { return gridDim.y * blockDim.x; }

// Whether a value replaces the largest so far: a NaN beats everything but another NaN.
__device__ __forceinline__ bool beats(Real value, Real best)
{
    return value > best || (value != value && best == best);
}

struct Sum {
    static __device__ __forceinline__ Real start() { return Real(0); }
    static __device__ __forceinline__ Real of(Real a, Real b) { return a + b; }
};

struct Largest {
    static __device__ __forceinline__ Real start() { return Real(__int_as_float(0xff800000)); }
    static __device__ __forceinline__ Real of(Real a, Real b) { return beats(b, a) ? b : a; }
};

// The reduction of one value for each thread of a block, returned to all. blockDim.x is a multiple
// of 32.
template <typename Fold> __device__ Real over_block(Real value)
{
    __shared__ Real shared[32];
    for (int apart = 16; apart; apart /= 2)
        value = Fold::of(value, __shfl_xor_sync(~0u, value, apart));
    if (blockDim.x == 32)
        return value;
    __syncthreads();  // all threads have read the values of the last call
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp)
        value = Fold::of(value, shared[warp]);
    return value;
}
