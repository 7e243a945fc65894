// Axes folded into one value each: sums, largest elements, their positions and gradients.
//
// NAME_rows gives a block to each result (blockIdx.x) and each stretch (blockIdx.y) of the elements
// that fold into it: for arrays whose innermost axis is folded. NAME_columns gives a thread to each
// result and 8 threads to a stretch, 32 results side by side: for arrays whose innermost axis is
// kept. Stretches are folded by NAME_rows in their turn, so sums are the same at every run.

#include "common.cuh"

struct Folds {
    Walk<1> kept;
    Walk<1> folded;
};

__device__ __forceinline__ Size offset(const Walk<1>& walk, Size position)
{
    Size found;
    if (walk.axes == 1)
        return position * walk.steps[0][0];
    if (position >> 31)
        locate(walk, (unsigned long long)position, &found);
    else
        locate(walk, (unsigned)position, &found);
    return found;
}

// Every `apart`-th element from `first` up to `last`; along one axis, several are read at once.
template <typename Fold>
__device__ __forceinline__ Real folded(
    const Real* from, const Walk<1>& walk, Size first, Size last, Size apart)
{
    constexpr int SEVERAL = 8;
    Real values[SEVERAL];
#pragma unroll
    for (int k = 0; k < SEVERAL; ++k)
        values[k] = Fold::start();
    Size i = first;
    if (walk.axes == 1)
        for (const Size step = walk.steps[0][0]; i + (SEVERAL - 1) * apart < last; i += SEVERAL * apart) {
            Real read[SEVERAL];
#pragma unroll
            for (int k = 0; k < SEVERAL; ++k)
                read[k] = from[(i + k * apart) * step];
#pragma unroll
            for (int k = 0; k < SEVERAL; ++k)
                values[k] = Fold::of(values[k], read[k]);
        }
#pragma unroll 1
    for (; i < last; i += apart)
        values[0] = Fold::of(values[0], from[offset(walk, i)]);
#pragma unroll
    for (int k = 1; k < SEVERAL; ++k)
        values[0] = Fold::of(values[0], values[k]);
    return values[0];
}

template <typename Fold>
__device__ __forceinline__ void rows(Real* out, const Real* a, Size length, Size divisor, const Folds& folds)
{
    const Real* from = a + offset(folds.kept, blockIdx.x);
    const Size share = (length + gridDim.y - 1) / gridDim.y;
    const Size first = share * blockIdx.y;
    const Size last = first + share < length ? first + share : length;
    Real value = folded<Fold>(from, folds.folded, first + threadIdx.x, last, blockDim.x);
    value = over_block<Fold>(value);
    if (threadIdx.x == 0)
        out[(Size)blockIdx.x * gridDim.y + blockIdx.y] = divisor == 1 ? value : value / Real(divisor);
}

template <typename Fold>
__device__ __forceinline__ void columns(
    Real* out, const Real* a, Size results, Size length, Size divisor, const Folds& folds)
{
    __shared__ Real shared[8][32];
    const Size result = (Size)blockIdx.x * 32 + threadIdx.x;
    const Size share = (length + gridDim.y - 1) / gridDim.y;
    const Size first = share * blockIdx.y;
    const Size last = first + share < length ? first + share : length;
    Real value = Fold::start();
    if (result < results) {
        const Real* from = a + offset(folds.kept, result);
        value = folded<Fold>(from, folds.folded, first + threadIdx.y, last, 8);
    }
    shared[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.y || result >= results)
        return;
    for (int other = 1; other < 8; ++other)
        value = Fold::of(value, shared[other][threadIdx.x]);
    out[result * gridDim.y + blockIdx.y] = divisor == 1 ? value : value / Real(divisor);
}

#define FOLD(name, Fold) \
    extern "C" __global__ void name##_rows( \
        Real* out, const Real* a, Size results, Size length, Size divisor, Folds folds) \
    { \
        rows<Fold>(out, a, length, divisor, folds); \
    } \
    extern "C" __global__ void name##_columns( \
        Real* out, const Real* a, Size results, Size length, Size divisor, Folds folds) \
    { \
        columns<Fold>(out, a, results, length, divisor, folds); \
    }

FOLD(sum, Sum)
FOLD(largest, Largest)

// The first largest element of each fold, or the first NaN, as its position in the fold.
extern "C" __global__ void argmax(Size* out, const Real* a, Size length, Folds folds)
{
    __shared__ Real values[1024];
    __shared__ Size places[1024];
    const Real* from = a + offset(folds.kept, blockIdx.x);
    Real best = 0;
    Size place = -1;
    for (Size i = threadIdx.x; i < length; i += blockDim.x) {
        const Real value = from[offset(folds.folded, i)];
        if (place < 0 || beats(value, best)) {
            best = value;
            place = i;
        }
    }
    values[threadIdx.x] = best;
    places[threadIdx.x] = place;
    __syncthreads();
    for (int apart = blockDim.x / 2; apart; apart /= 2) {
        if (threadIdx.x < apart && places[threadIdx.x + apart] >= 0) {
            const Real other = values[threadIdx.x + apart], own = values[threadIdx.x];
            const bool beaten = places[threadIdx.x] < 0 || beats(other, own);
            const bool alike = !beats(own, other) && places[threadIdx.x + apart] < places[threadIdx.x];
            if (beaten || alike) {
                values[threadIdx.x] = other;
                places[threadIdx.x] = places[threadIdx.x + apart];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = places[0];
}

// g, shared by the elements of a fold that are equal to y; out lies as a does.
extern "C" __global__ void max_gradient(
    Real* out, const Real* g, const Real* a, const Real* y, Size length, Folds folds)
{
    const Size start = offset(folds.kept, blockIdx.x);
    const Real top = y[blockIdx.x];
    Real equal = 0;
    for (Size i = threadIdx.x; i < length; i += blockDim.x)
        equal += a[start + offset(folds.folded, i)] == top ? Real(1) : Real(0);
    const Real share = g[blockIdx.x] / over_block<Sum>(equal);
    for (Size i = threadIdx.x; i < length; i += blockDim.x) {
        const Size at = start + offset(folds.folded, i);
        out[at] = a[at] == top ? share : Real(0);
    }
}
