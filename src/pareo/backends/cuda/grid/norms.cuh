// Normalisation over rows, or over the batch for each channel, and the gradients.
#pragma once

struct Moments { float mean, inverse; };

// x is [OUTER, C, INNER]; a row has the C elements at one place of OUTER and INNER. A team computes a
// row: the whole block, or a warp.
__device__ inline int start_of_row(int row, int count, int inner) { return row / inner * (count * inner) + row % inner; }
template <bool BLOCK> __device__ inline int member() { return BLOCK ? threadIdx.x : threadIdx.x % LANES; }
template <bool BLOCK> __device__ inline int row_of_team(int tile) { return BLOCK ? tile : tile * WARPS + threadIdx.x / LANES; }
template <bool BLOCK> __device__ inline float total_of_team(float value, float* room)
{
    return BLOCK ? total_of_block(value, room) : total_of_lanes(value);
}
template <bool BLOCK> __device__ __noinline__ Moments moments_of_row(
    const float* x, int count, int inner, float epsilon, float* room)
{
    constexpr int EACH = BLOCK ? THREADS : LANES;
    float sum = 0, squares = 0;
#pragma unroll 4
    for (int c = member<BLOCK>(); c < count; c += EACH) sum += x[c * inner];
    const float mean = total_of_team<BLOCK>(sum, room) / count;
#pragma unroll 4
    for (int c = member<BLOCK>(); c < count; c += EACH) squares += (x[c * inner] - mean) * (x[c * inner] - mean);
    return {mean, 1 / sqrtf(total_of_team<BLOCK>(squares, room) / count + epsilon)};
}
template <bool BLOCK, int ROWS, int C, int INNER, class End> __device__ inline void layer_norm(
    int tile, float* room, const float* x, const float* scale, const float* shift, float epsilon, End end)
{
    const int row = row_of_team<BLOCK>(tile);
    if (row >= ROWS) return;
    const int start = start_of_row(row, C, INNER);
    const Moments m = moments_of_row<BLOCK>(x + start, C, INNER, epsilon, room);
#pragma unroll 2
    for (int c = member<BLOCK>(); c < C; c += BLOCK ? THREADS : LANES)
        end(start + c * INNER, (x[start + c * INNER] - m.mean) * m.inverse * scale[c] + shift[c]);
}
// Level and slope of the gradient: the means of g * scale, and of it times the normalised x.
template <bool BLOCK> __device__ __noinline__ Moments slopes_of_row(
    const float* g, const float* x, const float* scale, int count, int inner, float mean, float inverse, float* room)
{
    float level = 0, slope = 0;
#pragma unroll 4
    for (int c = member<BLOCK>(); c < count; c += BLOCK ? THREADS : LANES) {
        const float weighted = g[c * inner] * scale[c];
        level += weighted;
        slope += weighted * ((x[c * inner] - mean) * inverse);
    }
    level = total_of_team<BLOCK>(level, room);
    return {level / count, total_of_team<BLOCK>(slope, room) / count};
}
template <bool BLOCK, int ROWS, int C, int INNER, class End> __device__ inline void layer_norm_back(
    int tile, float* room, const float* g, const float* x, const float* scale, float* mean, float* inverse,
    float epsilon, End end)
{
    const int row = row_of_team<BLOCK>(tile);
    if (row >= ROWS) return;
    const int start = start_of_row(row, C, INNER);
    const Moments m = moments_of_row<BLOCK>(x + start, C, INNER, epsilon, room);
    const Moments s = slopes_of_row<BLOCK>(g + start, x + start, scale, C, INNER, m.mean, m.inverse, room);
#pragma unroll 2
    for (int c = member<BLOCK>(); c < C; c += BLOCK ? THREADS : LANES) {
        const float value = (x[start + c * INNER] - m.mean) * m.inverse;
        end(start + c * INNER, m.inverse * (g[start + c * INNER] * scale[c] - s.mean - value * s.inverse));
    }
    if (member<BLOCK>() == 0) {
        mean[row] = m.mean;
        inverse[row] = m.inverse;
    }
}
// The gradients of scale and shift: neighbouring lanes have neighbouring channels, the warps share rows.
__device__ __noinline__ void layer_sums(
    int tile, float* room, float* to_scale, float* to_shift, const float* g, const float* x, const float* mean,
    const float* inverse, int rows, int count, int inner)
{
    const int c = tile * LANES + threadIdx.x % LANES;
    float by_scale = 0, by_shift = 0;
    if (c < count)
#pragma unroll 4
        for (int row = threadIdx.x / LANES; row < rows; row += WARPS) {
            const int i = start_of_row(row, count, inner) + c * inner;
            by_scale += g[i] * ((x[i] - mean[row]) * inverse[row]);
            by_shift += g[i];
        }
    by_scale = total_of_warps(by_scale, room);
    by_shift = total_of_warps(by_shift, room);
    if (threadIdx.x < LANES && c < count) {
        to_scale[c] = by_scale;
        to_shift[c] = by_shift;
    }
}

// x is [IMAGES, C, PIXELS]; a block has a channel.
__device__ inline int element_of(int c, int e, int channels, int pixels)
{
    return (e / pixels * channels + c) * pixels + e % pixels;
}
// Mean and variance of a channel.
__device__ __noinline__ Moments moments_of_channel(
    int c, float* room, const float* x, int images, int channels, int pixels)
{
    const int count = images * pixels;
    const float mean = total_of_block(sum_of(x, c, channels, pixels, count, threadIdx.x, THREADS), room) / count;
    float squares = 0;
#pragma unroll 4
    for (int e = threadIdx.x; e < count; e += THREADS) {
        const float apart = x[element_of(c, e, channels, pixels)] - mean;
        squares += apart * apart;
    }
    return {mean, total_of_block(squares, room) / count};
}
template <int IMAGES, int C, int PIXELS, class End> __device__ inline void batch_norm(
    int c, float* room, float* to_mean, float* to_variance, const float* x, const float* scale, const float* shift,
    float epsilon, End end)
{
    const Moments m = moments_of_channel(c, room, x, IMAGES, C, PIXELS);
    const float slope = scale[c] / sqrtf(m.inverse + epsilon), start = shift[c];
#pragma unroll 2
    for (int e = threadIdx.x; e < IMAGES * PIXELS; e += THREADS) {
        const int i = element_of(c, e, C, PIXELS);
        end(i, (x[i] - m.mean) * slope + start);
    }
    if (threadIdx.x == 0) {
        to_mean[c] = m.mean;
        to_variance[c] = m.inverse;
    }
}
// The gradients of scale and shift of a channel.
__device__ __noinline__ Moments sums_of_channel(
    int c, float* room, const float* g, const float* x, float mean, float inverse, int images, int channels, int pixels)
{
    float by_scale = 0, by_shift = 0;
#pragma unroll 4
    for (int e = threadIdx.x; e < images * pixels; e += THREADS) {
        const int i = element_of(c, e, channels, pixels);
        by_scale += g[i] * ((x[i] - mean) * inverse);
        by_shift += g[i];
    }
    by_scale = total_of_block(by_scale, room);
    return {by_scale, total_of_block(by_shift, room)};
}
template <int IMAGES, int C, int PIXELS, class End> __device__ inline void batch_norm_back(
    int c, float* room, float* to_scale, float* to_shift, const float* g, const float* x, const float* scale,
    const float* means, const float* variances, float epsilon, End end)
{
    const float mean = means[c], inverse = 1 / sqrtf(variances[c] + epsilon), factor = scale[c] * inverse;
    const Moments s = sums_of_channel(c, room, g, x, mean, inverse, IMAGES, C, PIXELS);
#pragma unroll 2
    for (int e = threadIdx.x; e < IMAGES * PIXELS; e += THREADS) {
        const int i = element_of(c, e, C, PIXELS);
        end(i, factor * (g[i] - (s.inverse + (x[i] - mean) * inverse * s.mean) / (IMAGES * PIXELS)));
    }
    if (threadIdx.x == 0) {
        to_scale[c] = s.mean;
        to_shift[c] = s.inverse;
    }
}
