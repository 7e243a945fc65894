// Reductions along axes: sums, maxima, their positions and gradients.
//
// The elements of a result are split into stretches; NAME_rows then folds the results of the
// stretches, always in the same order, so that sums are the same in every run.
//
// NAME_rows: a block for each result (blockIdx.x) and stretch (blockIdx.y), for arrays whose
// innermost axis is folded. NAME_nested: the same where several axes are folded and the innermost
// is long; a stretch is every gridDim.y-th run along it. NAME_columns: for arrays whose innermost
// axis is kept; a block has 32 neighbouring results, and 8 threads share a stretch of each.

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

// A thread's accumulators: as many as it loads at once, folded into one at the end.
constexpr int PACKS = 4;

template <typename Fold> struct Values {
    Pack packs[PACKS];

    __device__ __forceinline__ Values()
    {
#pragma unroll
        for (int k = 0; k < PACKS * WIDTH; ++k)
            packs[k / WIDTH].at[k % WIDTH] = Fold::start();
    }

    __device__ __forceinline__ void take(Real value)
    {
        packs[0].at[0] = Fold::of(packs[0].at[0], value);
    }

    // A run of contiguous elements, shared by the threads of a block.
    __device__ __forceinline__ void run(const Real* from, Size length)
    {
        Size rest = 0;
        if (reinterpret_cast<size_t>(from) % sizeof(Pack) == 0) {
            const Pack* source = reinterpret_cast<const Pack*>(from);
            const Size count = length / WIDTH, apart = blockDim.x;
            for (Size i = threadIdx.x; i < count; i += PACKS * apart) {
                Pack read[PACKS];
#pragma unroll
                for (int k = 0; k < PACKS; ++k)
                    if (i + k * apart < count)
                        read[k] = source[i + k * apart];
#pragma unroll
                for (int k = 0; k < PACKS; ++k)
                    if (i + k * apart < count)
#pragma unroll
                        for (int j = 0; j < WIDTH; ++j)
                            packs[k].at[j] = Fold::of(packs[k].at[j], read[k].at[j]);
            }
            rest = count * WIDTH;
        }
#pragma unroll 4
        for (Size i = rest + threadIdx.x; i < length; i += blockDim.x)
            take(from[i]);
    }

    __device__ __forceinline__ Real folded() const
    {
        Real value = packs[0].at[0];
#pragma unroll
        for (int k = 1; k < PACKS * WIDTH; ++k)
            value = Fold::of(value, packs[k / WIDTH].at[k % WIDTH]);
        return value;
    }
};

template <typename Fold> __device__ __forceinline__ void finish(Real* out, Real value, Size divisor)
{
    value = over_block<Fold>(value);
    if (threadIdx.x == 0)
        out[(Size)blockIdx.x * gridDim.y + blockIdx.y] = divisor == 1 ? value : value / Real(divisor);
}

// A stretch of the elements: a multiple of WIDTH of them, so that all stretches are aligned alike.
__device__ __forceinline__ void stretch(Size length, Size* first, Size* last)
{
    Size share = (length + gridDim.y - 1) / gridDim.y;
    share = (share + WIDTH - 1) / WIDTH * WIDTH;
    *first = share * blockIdx.y < length ? share * blockIdx.y : length;
    *last = *first + share < length ? *first + share : length;
}

template <typename Fold>
__device__ __forceinline__ void rows(Real* out, const Real* a, Size length, Size divisor, const Folds& folds)
{
    const Real* from = a + offset(folds.kept, blockIdx.x);
    Size first, last;
    stretch(length, &first, &last);
    Values<Fold> values;
    if (folds.folded.axes == 1 && folds.folded.steps[0][0] == 1)
        values.run(from + first, last - first);
    else
        for (Size i = first + threadIdx.x; i < last; i += blockDim.x)
            values.take(from[offset(folds.folded, i)]);
    finish<Fold>(out, values.folded(), divisor);
}

template <typename Fold>
__device__ __forceinline__ void nested(Real* out, const Real* a, Size length, Size divisor, Folds& folds)
{
    const Real* from = a + offset(folds.kept, blockIdx.x);
    const Size run = folds.folded.sizes[folds.folded.axes - 1];
    folds.folded.axes -= 1;
    Values<Fold> values;
    for (Size outer = blockIdx.y; outer < length / run; outer += gridDim.y)
        values.run(from + offset(folds.folded, outer), run);
    finish<Fold>(out, values.folded(), divisor);
}

template <typename Fold>
__device__ __forceinline__ void columns(
    Real* out, const Real* a, Size results, Size length, Size divisor, const Folds& folds)
{
    constexpr int SEVERAL = 8;
    __shared__ Real shared[8][32];
    const Size result = (Size)blockIdx.x * 32 + threadIdx.x;
    Size first, last;
    stretch(length, &first, &last);
    Real values[SEVERAL];
#pragma unroll
    for (int k = 0; k < SEVERAL; ++k)
        values[k] = Fold::start();
    if (result < results) {
        const Real* from = a + offset(folds.kept, result);
        Size i = first + threadIdx.y;
        if (folds.folded.axes == 1)
            for (; i + 8 * (SEVERAL - 1) < last; i += 8 * SEVERAL) {
                Real read[SEVERAL];
#pragma unroll
                for (int k = 0; k < SEVERAL; ++k)
                    read[k] = from[(i + 8 * k) * folds.folded.steps[0][0]];
#pragma unroll
                for (int k = 0; k < SEVERAL; ++k)
                    values[k] = Fold::of(values[k], read[k]);
            }
#pragma unroll 1
        for (; i < last; i += 8)
            values[0] = Fold::of(values[0], from[offset(folds.folded, i)]);
    }
#pragma unroll
    for (int k = 1; k < SEVERAL; ++k)
        values[0] = Fold::of(values[0], values[k]);
    shared[threadIdx.y][threadIdx.x] = values[0];
    __syncthreads();
    if (threadIdx.y || result >= results)
        return;
    Real value = values[0];
    for (int other = 1; other < 8; ++other)
        value = Fold::of(value, shared[other][threadIdx.x]);
    out[result * gridDim.y + blockIdx.y] = divisor == 1 ? value : value / Real(divisor);
}

#define FOLDED Real *out, const Real *a, Size results, Size length, Size divisor, Folds folds

#define FOLD(name, Fold) \
    extern "C" __global__ void name##_rows(FOLDED) { rows<Fold>(out, a, length, divisor, folds); } \
    extern "C" __global__ void name##_nested(FOLDED) \
    { \
        nested<Fold>(out, a, length, divisor, folds); \
    } \
    extern "C" __global__ void name##_columns(FOLDED) \
    { \
        columns<Fold>(out, a, results, length, divisor, folds); \
    }

FOLD(sum, Sum)
FOLD(largest, Largest)

// The position of the first largest element of each fold, or of its first NaN.
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

// g, divided among the elements of a fold that equal y; NaN where y is NaN. out has a's layout.
extern "C" __global__ void max_gradient(
    Real* out, const Real* g, const Real* a, const Real* y, Size length, Folds folds)
{
    const Size start = offset(folds.kept, blockIdx.x);
    const Real top = y[blockIdx.x];
    Real equal = 0;
    for (Size i = threadIdx.x; i < length; i += blockDim.x)
        equal += a[start + offset(folds.folded, i)] == top ? Real(1) : Real(0);
    const Real share = g[blockIdx.x] / over_block<Sum>(equal);
    const Real rest = top != top ? top : Real(0);
    for (Size i = threadIdx.x; i < length; i += blockDim.x) {
        const Size at = start + offset(folds.folded, i);
        out[at] = a[at] == top ? share : rest;
    }
}
