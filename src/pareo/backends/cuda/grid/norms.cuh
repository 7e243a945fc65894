// Normalisation over rows, and the gradients.
#pragma once

struct Moments { float mean, inverse; };

// The first of `count` elements that belongs to a part.
__device__ inline int part_of(int count, int part, int parts) { return (int)((long long)count * part / parts); }

// The sums of what all threads have, and of what the warps have for each lane; known to all of them.
__device__ __noinline__ Moments totals_of_block(float a, float b, float* room)
{
    a = total_of_lanes(a);
    b = total_of_lanes(b);
    __syncthreads();
    if (threadIdx.x % LANES == 0) {
        room[threadIdx.x / LANES] = a;
        room[WARPS + threadIdx.x / LANES] = b;
    }
    __syncthreads();
    Moments sum = {};
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        sum.mean += room[w];
        sum.inverse += room[WARPS + w];
    }
    return sum;
}
__device__ __noinline__ Moments totals_of_lanes(float a, float b, float* room)
{
    __syncthreads();
    room[threadIdx.x] = a;
    room[THREADS + threadIdx.x] = b;
    __syncthreads();
    Moments sum = {};
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        sum.mean += room[w * LANES + threadIdx.x % LANES];
        sum.inverse += room[THREADS + w * LANES + threadIdx.x % LANES];
    }
    return sum;
}

// x is [OUTER, C, INNER]; a row has the C elements at one place of OUTER and INNER. A team computes a
// row: the whole block, or a warp.
__device__ inline int start_of_row(int row, int count, int inner) { return row / inner * (count * inner) + row % inner; }
template <bool BLOCK> __device__ inline int member() { return BLOCK ? this_thread() : this_thread() % LANES; }
template <bool BLOCK> __device__ inline int row_of_team(int tile) { return BLOCK ? tile : tile * WARPS + this_thread() / LANES; }
template <bool BLOCK> __device__ inline float total_of_team(float value, float* room)
{
    return BLOCK ? total_of_block(value, room) : total_of_lanes(value);
}
template <bool BLOCK, int C, class Row> __device__ inline Moments moments_of_row(const Row& x, float epsilon, float* room)
{
    const int first = member<BLOCK>();
    float sum = 0, squares = 0;
    x.over(first, C, [&](int, float value, int) { sum += value; });
    const float mean = total_of_team<BLOCK>(sum, room) / C;
    x.over(first, C, [&](int, float value, int) { squares += (value - mean) * (value - mean); });
    return {mean, 1 / sqrtf(total_of_team<BLOCK>(squares, room) / C + epsilon)};
}
template <bool BLOCK, int ROWS, int C, int INNER, class End> __device__ inline void layer_norm(
    int tile, float* room, const float* x, const float* scale, const float* shift, float epsilon, End end)
{
    constexpr int EACH = BLOCK ? THREADS : LANES, COUNT = (C + EACH - 1) / EACH;
    const int row = row_of_team<BLOCK>(tile), first = member<BLOCK>();
    if (row >= ROWS) return;
    const int start = start_of_row(row, C, INNER);
    const auto values = held<COUNT, EACH>(first, C, [&](int c) { return x[start + c * INNER]; });
    const auto scales = held<COUNT, EACH>(first, C, [&](int c) { return scale[c]; });
    const auto shifts = held<COUNT, EACH>(first, C, [&](int c) { return shift[c]; });
    const Moments m = moments_of_row<BLOCK, C>(values, epsilon, room);
    values.over(first, C, [&](int c, float value, int k) {
        end(start + c * INNER, (value - m.mean) * m.inverse * of(scales, k) + of(shifts, k));
    });
}
// Level and slope of the gradient are the means of g * scale, and of it times the normalised x.
template <bool BLOCK, int ROWS, int C, int INNER, class End> __device__ inline void layer_norm_back(
    int tile, float* room, const float* g, const float* x, const float* scale, float* mean, float* inverse,
    float epsilon, End end)
{
    constexpr int EACH = BLOCK ? THREADS : LANES, COUNT = (C + EACH - 1) / EACH;
    const int row = row_of_team<BLOCK>(tile), first = member<BLOCK>();
    if (row >= ROWS) return;
    const int start = start_of_row(row, C, INNER);
    const auto values = held<COUNT, EACH>(first, C, [&](int c) { return x[start + c * INNER]; });
    const auto weighted = held<COUNT, EACH>(first, C, [&](int c) { return g[start + c * INNER] * scale[c]; });
    const Moments m = moments_of_row<BLOCK, C>(values, epsilon, room);
    float level = 0, slope = 0;
    values.over(first, C, [&](int, float value, int k) {
        level += of(weighted, k);
        slope += of(weighted, k) * ((value - m.mean) * m.inverse);
    });
    const Moments s = BLOCK ? totals_of_block(level, slope, room) : Moments{total_of_lanes(level), total_of_lanes(slope)};
    values.over(first, C, [&](int c, float value, int k) {
        const float normal = (value - m.mean) * m.inverse;
        end(start + c * INNER, m.inverse * (of(weighted, k) - (s.mean + normal * s.inverse) / C));
    });
    if (first == 0) {
        mean[row] = m.mean;
        inverse[row] = m.inverse;
    }
}
// The same where neighbouring rows lie side by side: ACROSS threads have as many rows, and the others of the block
// share their elements.
template <int ROWS, int C, int INNER, int SPLIT> struct Beside {
    static constexpr int ACROSS = THREADS / SPLIT, COUNT = (C + SPLIT - 1) / SPLIT;
    int row, share, start, stop;
    __device__ explicit Beside(int tile)
    {
        const int thread = this_thread();
        row = tile * ACROSS + thread % ACROSS;
        share = thread / ACROSS;
        stop = row < ROWS ? C : 0;
        start = start_of_row(least(row, ROWS - 1), C, INNER);
    }
    template <class At> __device__ auto elements(At at) const { return held<COUNT, SPLIT>(share, stop, at); }
    __device__ Moments totals(float a, float b, float* room) const
    {
        const int thread = this_thread();
        __syncthreads();
        room[thread] = a;
        room[THREADS + thread] = b;
        __syncthreads();
        Moments sum = {};
#pragma unroll
        for (int s = 0; s < SPLIT; s++) {
            sum.mean += room[s * ACROSS + thread % ACROSS];
            sum.inverse += room[THREADS + s * ACROSS + thread % ACROSS];
        }
        return sum;
    }
    template <class Row> __device__ Moments moments(const Row& x, float epsilon, float* room) const
    {
        float sum = 0, squares = 0;
        x.over(share, stop, [&](int, float value, int) { sum += value; });
        const float mean = totals(sum, 0, room).mean / C;
        x.over(share, stop, [&](int, float value, int) { squares += (value - mean) * (value - mean); });
        return {mean, 1 / sqrtf(totals(squares, 0, room).mean / C + epsilon)};
    }
};
template <int ROWS, int C, int INNER, int SPLIT, class End> __device__ inline void layer_norm_beside(
    int tile, float* room, const float* x, const float* scale, const float* shift, float epsilon, End end)
{
    const Beside<ROWS, C, INNER, SPLIT> own(tile);
    const auto values = own.elements([&](int c) { return x[own.start + c * INNER]; });
    const auto scales = own.elements([&](int c) { return scale[c]; });
    const auto shifts = own.elements([&](int c) { return shift[c]; });
    const Moments m = own.moments(values, epsilon, room);
    values.over(own.share, own.stop, [&](int c, float value, int k) {
        end(own.start + c * INNER, (value - m.mean) * m.inverse * of(scales, k) + of(shifts, k));
    });
}
template <int ROWS, int C, int INNER, int SPLIT, class End> __device__ inline void layer_norm_back_beside(
    int tile, float* room, const float* g, const float* x, const float* scale, float* mean, float* inverse,
    float epsilon, End end)
{
    const Beside<ROWS, C, INNER, SPLIT> own(tile);
    const auto values = own.elements([&](int c) { return x[own.start + c * INNER]; });
    const auto weighted = own.elements([&](int c) { return g[own.start + c * INNER] * scale[c]; });
    const Moments m = own.moments(values, epsilon, room);
    float level = 0, slope = 0;
    values.over(own.share, own.stop, [&](int, float value, int k) {
        level += of(weighted, k);
        slope += of(weighted, k) * ((value - m.mean) * m.inverse);
    });
    const Moments s = own.totals(level, slope, room);
    values.over(own.share, own.stop, [&](int c, float value, int k) {
        const float normal = (value - m.mean) * m.inverse;
        end(own.start + c * INNER, m.inverse * (of(weighted, k) - (s.mean + normal * s.inverse) / C));
    });
    if (own.share == 0 && own.stop) {
        mean[own.row] = m.mean;
        inverse[own.row] = m.inverse;
    }
}
// The gradients of scale and shift, of each of PARTS parts of the rows: neighbouring lanes have neighbouring
// channels, the warps share rows.
template <int ROWS, int C, int INNER, int PARTS, class Scale, class Shift> __device__ inline void layer_sums(
    int tile, float* room, const float* g, const float* x, const float* mean, const float* inverse,
    Scale to_scale, Shift to_shift)
{
    constexpr int ACROSS = (C + LANES - 1) / LANES, COUNT = ((ROWS + PARTS - 1) / PARTS + WARPS - 1) / WARPS;
    const int thread = this_thread(), part = tile / ACROSS, c = tile % ACROSS * LANES + thread % LANES;
    const int stop = part_of(ROWS, part + 1, PARTS), first = c < C ? part_of(ROWS, part, PARTS) + thread / LANES : stop;
    const auto at = [&](int row) { return start_of_row(row, C, INNER) + c * INNER; };
    const auto errors = held<COUNT, WARPS>(first, stop, [&](int row) { return g[at(row)]; });
    const auto normal = held<COUNT, WARPS>(first, stop, [&](int row) { return (x[at(row)] - mean[row]) * inverse[row]; });
    float by_scale = 0, by_shift = 0;
    errors.over(first, stop, [&](int, float error, int k) {
        by_scale += error * of(normal, k);
        by_shift += error;
    });
    const Moments sums = totals_of_lanes(by_scale, by_shift, room);
    if (thread < LANES && c < C) {
        to_scale(part * C + c, sums.mean);
        to_shift(part * C + c, sums.inverse);
    }
}
