// Softmax and the losses. A block computes a row; the largest logit is subtracted first, so that
// nothing overflows. Rows are the middle axis of (outer, length, inner): blockIdx.x is (outer,
// inner).

#include "common.cuh"

__device__ __forceinline__ Real largest_of(const Real* row, Size length, Size step)
{
    Real top = Largest::start();
    for (Size i = threadIdx.x; i < length; i += blockDim.x)
        top = Largest::of(top, row[i * step]);
    return over_block<Largest>(top);
}

__device__ __forceinline__ Real total_above(const Real* row, Size length, Size step, Real top)
{
    Real total = 0;
    for (Size i = threadIdx.x; i < length; i += blockDim.x)
        total += exp(row[i * step] - top);
    return over_block<Sum>(total);
}

__device__ __forceinline__ Size row_start(Size length, Size inner)
{
    return blockIdx.x / inner * length * inner + blockIdx.x % inner;
}

extern "C" __global__ void softmax(Real* out, const Real* a, Size length, Size inner)
{
    const Size start = row_start(length, inner);
    const Real top = largest_of(a + start, length, inner);
    const Real total = total_above(a + start, length, inner, top);
    for (Size i = threadIdx.x; i < length; i += blockDim.x)
        out[start + i * inner] = exp(a[start + i * inner] - top) / total;
}

extern "C" __global__ void log_softmax(Real* out, const Real* a, Size length, Size inner)
{
    const Size start = row_start(length, inner);
    const Real top = largest_of(a + start, length, inner);
    const Real shift = log(total_above(a + start, length, inner, top));
    for (Size i = threadIdx.x; i < length; i += blockDim.x)
        out[start + i * inner] = a[start + i * inner] - top - shift;
}

// Labels may have any integer type; `kind` is its size in bytes, negative for a signed type.
__device__ __forceinline__ Size label_at(const void* labels, int kind, Size row)
{
    switch (kind) {
    case -8: return static_cast<const long long*>(labels)[row];
    case -4: return static_cast<const int*>(labels)[row];
    case -2: return static_cast<const short*>(labels)[row];
    case -1: return static_cast<const signed char*>(labels)[row];
    case 8: return static_cast<const unsigned long long*>(labels)[row];
    case 4: return static_cast<const unsigned*>(labels)[row];
    case 2: return static_cast<const unsigned short*>(labels)[row];
    default: return static_cast<const unsigned char*>(labels)[row];
    }
}

// Writes the loss of each row to `losses` unless it is null, and d = g / rows * (softmax - one-hot
// label) unless d is null; in a stack of matrices each has its own g. A label that names no class
// makes both NaN: a kernel cannot raise an error.
extern "C" __global__ void cross_entropy_rows(
    Real* losses, Real* d, const Real* g, const Real* logits, const void* labels, int kind, Size rows,
    Size classes)
{
    const Real* row = logits + blockIdx.x * classes;
    const Size label = label_at(labels, kind, blockIdx.x);
    const bool known = label >= 0 && label < classes;
    const Real top = largest_of(row, classes, 1);
    const Real total = total_above(row, classes, 1, top);
    const Real nothing = Real(__int_as_float(0x7fffffff));
    if (losses && threadIdx.x == 0)
        losses[blockIdx.x] = known ? log(total) - (row[label] - top) : nothing;
    if (!d)
        return;
    const Real share = known ? g[blockIdx.x / rows] / Real(rows) : nothing;
    // d may be the memory of the logits; the label's logit was read above by the thread that needs
    // it.
    if (losses)
        __syncthreads();
    for (Size i = threadIdx.x; i < classes; i += blockDim.x) {
        const Real chance = exp(row[i] - top) / total;
        d[blockIdx.x * classes + i] = share * (i == label ? chance - Real(1) : chance);
    }
}

// The sum of `count` numbers divided by `divisor`; a block computes one such sum.
extern "C" __global__ void gathered(Real* out, const Real* parts, Size count, Size divisor)
{
    Real total = 0;
    for (Size i = threadIdx.x; i < count; i += blockDim.x)
        total += parts[blockIdx.x * count + i];
    total = over_block<Sum>(total);
    if (threadIdx.x == 0)
        out[blockIdx.x] = total / Real(divisor);
}

// Each block's part of the sum of (a - b) squared.
extern "C" __global__ void squared_error_parts(Real* parts, const Real* a, const Real* b, Size count)
{
    Real total = 0;
    for (Size i = first_position(); i < count; i += all_threads()) {
        const Real error = a[i] - b[i];
        total += error * error;
    }
    total = over_block<Sum>(total);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = total;
}
