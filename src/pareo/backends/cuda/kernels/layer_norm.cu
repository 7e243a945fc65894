// Layer normalisation along the middle axis of (outer, length, inner). A row is what is normalised:
// there are outer * inner of them. Sums are double, of distances from the row's first element, as in
// batch_norm.cu. NAME_rows has a block for each row (inner is 1), NAME_warps a warp, NAME_lines a
// thread.

#include "channels.cuh"

struct Rows {
    Size outer, length, inner;
};

// A row's elements from `data` on, `step` apart; this thread has every `stride`th from `first` on.
struct Row {
    Size start, step;
    int first, stride;
};

__device__ __forceinline__ Row row_of_block(const Rows& rows)
{
    return {blockIdx.x * rows.length, 1, (int)threadIdx.x, (int)blockDim.x};
}

__device__ __forceinline__ Row row_of_warp(const Rows& rows, Size row)
{
    return {row * rows.length, 1, (int)threadIdx.x % 32, 32};
}

__device__ __forceinline__ Row row_of_thread(const Rows& rows, Size row)
{
    return {row / rows.inner * rows.length * rows.inner + row % rows.inner, rows.inner, 0, 1};
}

// The sums of a row's threads, for all of them.
enum Threads { BLOCK, WARP, ONE };

template <Threads threads> __device__ __forceinline__ Two gathered(Two value)
{
    if constexpr (threads == WARP)
        return over_warp(value);
    if constexpr (threads == BLOCK) {
        __shared__ Two whole;
        value = over_threads(value);
        if (threadIdx.x == 0)
            whole = value;
        __syncthreads();
        value = whole;
        __syncthreads();  // before the next call
    }
    return value;
}

struct alignas(16) Normal {
    double mean, inverse;
};

template <Threads threads>
__device__ __forceinline__ Normal statistics(
    const Real* x, const Row& row, const Rows& rows, double epsilon)
{
    double from = x[row.start];
    from = from - from == 0 ? from : 0;
    Two total = {0, 0};
#pragma unroll 4
    for (Size i = row.first; i < rows.length; i += row.stride) {
        const double distance = (double)x[row.start + i * row.step] - from;
        total.add({distance, distance * distance});
    }
    total = gathered<threads>(total);
    const double count = (double)rows.length, along = total.first / count;
    double spread = (total.second - total.first * along) / count;
    spread = spread < 0 ? 0 : spread;
    return {from + along, 1 / sqrt(spread + epsilon)};
}

template <Threads threads>
__device__ __forceinline__ void forward(
    Real* out, const Real* x, const Real* scale, const Real* shift, const Row& row,
    const Rows& rows, double epsilon)
{
    const Normal normal = statistics<threads>(x, row, rows, epsilon);
    const Real inverse = Real(normal.inverse);
    for (Size i = row.first; i < rows.length; i += row.stride) {
        const Size at = row.start + i * row.step;
        out[at] = Real((double)x[at] - normal.mean) * inverse * scale[i] + shift[i];
    }
}

#define FORWARD \
    Real *out, const Real *x, const Real *scale, const Real *shift, Rows rows, double epsilon

extern "C" __global__ void layer_norm_rows(FORWARD)
{
    forward<BLOCK>(out, x, scale, shift, row_of_block(rows), rows, epsilon);
}

extern "C" __global__ void layer_norm_warps(FORWARD)
{
    const Size row = first_position() / 32;
    if (row < rows.outer)
        forward<WARP>(out, x, scale, shift, row_of_warp(rows, row), rows, epsilon);
}

extern "C" __global__ void layer_norm_lines(FORWARD)
{
    const Size row = first_position();
    if (row < rows.outer * rows.inner)
        forward<ONE>(out, x, scale, shift, row_of_thread(rows, row), rows, epsilon);
}

// The gradient of x; `normals` keeps mean and factor of each row for the other gradients.
template <Threads threads>
__device__ __forceinline__ void backward(
    Real* out, Normal* normals, const Real* g, const Real* x, const Real* scale, Size number,
    const Row& row, const Rows& rows, double epsilon)
{
    const Normal normal = statistics<threads>(x, row, rows, epsilon);
    Two total = {0, 0};
#pragma unroll 4
    for (Size i = row.first; i < rows.length; i += row.stride) {
        const Size at = row.start + i * row.step;
        const double error = (double)g[at] * (double)scale[i];
        total.add({error, error * ((double)x[at] - normal.mean)});
    }
    total = gathered<threads>(total);
    const double inverse = normal.inverse, count = (double)rows.length;
    const Real level = Real(total.first / count);
    const Real slope = Real(total.second * inverse * inverse / count);
    if (row.first == 0)
        normals[number] = normal;
    for (Size i = row.first; i < rows.length; i += row.stride) {
        const Size at = row.start + i * row.step;
        const Real distance = Real((double)x[at] - normal.mean);
        out[at] = Real(inverse) * (g[at] * scale[i] - level - distance * slope);
    }
}

#define BACKWARD \
    Real *out, Normal *normals, const Real *g, const Real *x, const Real *scale, Rows rows, \
        double epsilon

extern "C" __global__ void layer_norm_gradient_rows(BACKWARD)
{
    backward<BLOCK>(out, normals, g, x, scale, blockIdx.x, row_of_block(rows), rows, epsilon);
}

extern "C" __global__ void layer_norm_gradient_warps(BACKWARD)
{
    const Size row = first_position() / 32;
    if (row < rows.outer)
        backward<WARP>(out, normals, g, x, scale, row, row_of_warp(rows, row), rows, epsilon);
}

extern "C" __global__ void layer_norm_gradient_lines(BACKWARD)
{
    const Size row = first_position();
    if (row < rows.outer * rows.inner)
        backward<ONE>(out, normals, g, x, scale, row, row_of_thread(rows, row), rows, epsilon);
}

// The gradients of scale and shift: sums over all rows, as over the channels of (N, C, pixels).
struct Errors {
    const Real *g, *x;
    const Normal* normals;
    Size inner;

    template <int WIDE>
    __device__ __forceinline__ void add(Two& total, Size outer, Size, Size within, Size at) const
    {
        const Some<WIDE> errors(g + at), values(x + at);
#pragma unroll
        for (int k = 0; k < WIDE; ++k) {
            const Normal normal = normals[outer * inner + within + k];
            const double error = errors.at[k];
            total.add({error * (((double)values.at[k] - normal.mean) * normal.inverse), error});
        }
    }
};

extern "C" __global__ void errors_rows(
    Two* partial, const Real* g, const Real* x, const Normal* normals, Layout layout)
{
    channel_rows<1>(partial, layout, Errors {g, x, normals, layout.pixels});
}

extern "C" __global__ void errors_packs(
    Two* partial, const Real* g, const Real* x, const Normal* normals, Layout layout)
{
    channel_rows<WIDTH>(partial, layout, Errors {g, x, normals, layout.pixels});
}

extern "C" __global__ void errors_columns(
    Two* partial, const Real* g, const Real* x, const Normal* normals, Layout layout)
{
    channel_columns(partial, layout, Errors {g, x, normals, layout.pixels});
}

extern "C" __global__ void totals(Real* first, Real* second, const Two* partial, Layout layout)
{
    const Size c = channel_of_warp();
    if (c >= layout.channels)
        return;
    const Two total = channel_total(partial, c, layout.parts);
    if (threadIdx.x % 32 == 0) {
        first[c] = Real(total.first);
        second[c] = Real(total.second);
    }
}
