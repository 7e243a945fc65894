// Normalisation over rows, or over the batch for each channel, and the gradients.
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

// x is [IMAGES, C, PIXELS]. A block has a channel; of single pixels, a channel for each lane, and the
// warps share the images.
template <int IMAGES, int C, int PIXELS> struct Channel {
    static constexpr bool FLAT = PIXELS == 1;
    static constexpr int STOP = IMAGES * PIXELS, EACH = FLAT ? WARPS : THREADS, COUNT = (STOP + EACH - 1) / EACH;
    int c, first;
    bool leads;  // is the one that stores what belongs to the channel
    __device__ explicit Channel(int tile)
    {
        const int thread = this_thread();
        c = FLAT ? tile * LANES + thread % LANES : tile;
        first = c >= C ? STOP : FLAT ? thread / LANES : thread;
        leads = first == 0;
        if (c >= C) c = C - 1;
    }
    __device__ int place(int e) const { return (e / PIXELS * C + c) * PIXELS + e % PIXELS; }
    template <class At> __device__ auto elements(At at) const { return held<COUNT, EACH>(first, STOP, at); }
    __device__ Moments totals(float a, float b, float* room) const
    {
        return FLAT ? totals_of_lanes(a, b, room) : totals_of_block(a, b, room);
    }
};
template <int IMAGES, int C, int PIXELS, class End> __device__ inline void batch_norm(
    int tile, float* room, const float* x, const float* scale, const float* shift, float epsilon, float* to_mean,
    float* to_variance, End end)
{
    using Own = Channel<IMAGES, C, PIXELS>;
    const Own own(tile);
    const float factor = scale[own.c], start = shift[own.c];
    const auto values = own.elements([&](int e) { return x[own.place(e)]; });
    float sum = 0, squares = 0;
    values.over(own.first, Own::STOP, [&](int, float value, int) { sum += value; });
    const float mean = own.totals(sum, 0, room).mean / Own::STOP;
    values.over(own.first, Own::STOP, [&](int, float value, int) { squares += (value - mean) * (value - mean); });
    const float variance = own.totals(squares, 0, room).mean / Own::STOP;
    const float slope = factor / sqrtf(variance + epsilon);
    values.over(own.first, Own::STOP, [&](int e, float value, int) { end(own.place(e), (value - mean) * slope + start); });
    if (own.leads) {
        to_mean[own.c] = mean;
        to_variance[own.c] = variance;
    }
}
template <int IMAGES, int C, int PIXELS, class Scale, class Shift, class End> __device__ inline void batch_norm_back(
    int tile, float* room, const float* g, const float* x, const float* scale, const float* means,
    const float* variances, float epsilon, Scale to_scale, Shift to_shift, End end)
{
    using Own = Channel<IMAGES, C, PIXELS>;
    const Own own(tile);
    const float mean = means[own.c], inverse = 1 / sqrtf(variances[own.c] + epsilon), factor = scale[own.c] * inverse;
    const auto normal = own.elements([&](int e) { return (x[own.place(e)] - mean) * inverse; });
    const auto errors = own.elements([&](int e) { return g[own.place(e)]; });
    float by_scale = 0, by_shift = 0;
    errors.over(own.first, Own::STOP, [&](int, float error, int k) {
        by_scale += error * of(normal, k);
        by_shift += error;
    });
    const Moments s = own.totals(by_scale, by_shift, room);
    errors.over(own.first, Own::STOP, [&](int e, float error, int k) {
        end(own.place(e), factor * (error - (s.inverse + of(normal, k) * s.mean) / Own::STOP));
    });
    if (own.leads) {
        to_scale(own.c, s.mean);
        to_shift(own.c, s.inverse);
    }
}

// The same where several blocks share a channel. First each of them has the moments of its part: the mean,
// and the sum of the squared differences from it.
template <int IMAGES, int C, int PIXELS, int PARTS> struct PartOfChannel {
    static constexpr int TERMS = IMAGES * PIXELS, COUNT = ((TERMS + PARTS - 1) / PARTS + THREADS - 1) / THREADS;
    int c, part, first, stop;
    __device__ explicit PartOfChannel(int tile) : c(tile % C), part(tile / C)
    {
        first = part_of(TERMS, part, PARTS) + this_thread();
        stop = part_of(TERMS, part + 1, PARTS);
    }
    __device__ static float terms(int part) { return part_of(TERMS, part + 1, PARTS) - part_of(TERMS, part, PARTS); }
    __device__ int place(int e) const { return (e / PIXELS * C + c) * PIXELS + e % PIXELS; }
    template <class At> __device__ auto elements(At at) const { return held<COUNT, THREADS>(first, stop, at); }
    __device__ bool leads() const { return part == 0 && this_thread() == 0; }
    // The sum of what the parts have.
    template <class Of> __device__ float over_parts(Of of) const
    {
        float sum = 0;
        for (int p = this_thread() % LANES; p < PARTS; p += LANES) sum += of(p);
        return total_of_lanes(sum);
    }
};
template <int IMAGES, int C, int PIXELS, int PARTS> __device__ inline void batch_moments(
    int tile, float* room, const float* x, float* means, float* squares)
{
    const PartOfChannel<IMAGES, C, PIXELS, PARTS> own(tile);
    const auto values = own.elements([&](int e) { return x[own.place(e)]; });
    float sum = 0, square = 0;
    values.over(own.first, own.stop, [&](int, float value, int) { sum += value; });
    const float mean = total_of_block(sum, room) / own.terms(own.part);
    values.over(own.first, own.stop, [&](int, float value, int) { square += (value - mean) * (value - mean); });
    square = total_of_block(square, room);
    if (this_thread() == 0) {
        means[tile] = mean;
        squares[tile] = square;
    }
}
template <int IMAGES, int C, int PIXELS, int PARTS, class End> __device__ inline void batch_norm_of_part(
    int tile, const float* x, const float* scale, const float* shift, const float* means, const float* squares,
    float epsilon, float* to_mean, float* to_variance, End end)
{
    const PartOfChannel<IMAGES, C, PIXELS, PARTS> own(tile);
    const float factor = scale[own.c], start = shift[own.c];
    const auto values = own.elements([&](int e) { return x[own.place(e)]; });
    const float mean = own.over_parts([&](int p) { return own.terms(p) * means[p * C + own.c]; }) / own.TERMS;
    const float variance = own.over_parts([&](int p) {
        const float apart = means[p * C + own.c] - mean;
        return squares[p * C + own.c] + own.terms(p) * apart * apart;
    }) / own.TERMS;
    const float slope = factor / sqrtf(variance + epsilon);
    values.over(own.first, own.stop, [&](int e, float value, int) { end(own.place(e), (value - mean) * slope + start); });
    if (own.leads()) {
        to_mean[own.c] = mean;
        to_variance[own.c] = variance;
    }
}
template <int IMAGES, int C, int PIXELS, int PARTS> __device__ inline void batch_sums(
    int tile, float* room, const float* g, const float* x, const float* means, const float* variances, float epsilon,
    float* by_scale, float* by_shift)
{
    const PartOfChannel<IMAGES, C, PIXELS, PARTS> own(tile);
    const float mean = means[own.c], inverse = 1 / sqrtf(variances[own.c] + epsilon);
    const auto normal = own.elements([&](int e) { return (x[own.place(e)] - mean) * inverse; });
    const auto errors = own.elements([&](int e) { return g[own.place(e)]; });
    float scale = 0, shift = 0;
    errors.over(own.first, own.stop, [&](int, float error, int k) {
        scale += error * of(normal, k);
        shift += error;
    });
    const Moments s = totals_of_block(scale, shift, room);
    if (this_thread() == 0) {
        by_scale[tile] = s.mean;
        by_shift[tile] = s.inverse;
    }
}
template <int IMAGES, int C, int PIXELS, int PARTS, class Scale, class Shift, class End>
__device__ inline void batch_norm_back_of_part(
    int tile, const float* g, const float* x, const float* scale, const float* means, const float* variances,
    const float* by_scale, const float* by_shift, float epsilon, Scale to_scale, Shift to_shift, End end)
{
    const PartOfChannel<IMAGES, C, PIXELS, PARTS> own(tile);
    const float mean = means[own.c], inverse = 1 / sqrtf(variances[own.c] + epsilon), factor = scale[own.c] * inverse;
    const auto normal = own.elements([&](int e) { return (x[own.place(e)] - mean) * inverse; });
    const auto errors = own.elements([&](int e) { return g[own.place(e)]; });
    const float slope = own.over_parts([&](int p) { return by_scale[p * C + own.c]; });
    const float level = own.over_parts([&](int p) { return by_shift[p * C + own.c]; });
    errors.over(own.first, own.stop, [&](int e, float error, int k) {
        end(own.place(e), factor * (error - (level + of(normal, k) * slope) / own.TERMS));
    });
    if (own.leads()) {
        to_scale(own.c, slope);
        to_shift(own.c, level);
    }
}
