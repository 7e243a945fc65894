// Normalisation over the batch for each channel, and the gradients.
#pragma once

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
    template <int SLOT, int SLOTS, class Make> __device__ auto elements(float* room, const float* from, Make make) const
    {
        return kept<COUNT, EACH, SLOT, SLOTS>(room, first, STOP, from, [own = *this](int e) { return own.place(e); }, make);
    }
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
    __syncthreads();
    const auto values = own.template elements<0, 1>(room, x, [](float value) { return value; });
    wait_for_copies();
    float sum = 0, squares = 0;
    values.over(own.first, Own::STOP, [&](int, float value, int) { sum += value; });
    const float mean = own.totals(sum, 0, room).mean / Own::STOP;
    values.over(own.first, Own::STOP, [&](int, float value, int) { squares += (value - mean) * (value - mean); });
    const float variance = own.totals(squares, 0, room).mean / Own::STOP;
    const float slope = factor / sqrtf(variance + epsilon);
    values.at_last(own.first, Own::STOP, [&](int e, float value, int) { end(own.place(e), (value - mean) * slope + start); });
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
    __syncthreads();
    const auto normal = own.template elements<0, 2>(room, x, [=](float value) { return (value - mean) * inverse; });
    const auto errors = own.template elements<1, 2>(room, g, [](float value) { return value; });
    wait_for_copies();
    float by_scale = 0, by_shift = 0;
    errors.over(own.first, Own::STOP, [&](int, float error, int k) {
        by_scale += error * of(normal, k);
        by_shift += error;
    });
    const Moments s = own.totals(by_scale, by_shift, room);
    errors.at_last(own.first, Own::STOP, [&](int e, float error, int k) {
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
    template <int SLOT, int SLOTS, class Make> __device__ auto elements(float* room, const float* from, Make make) const
    {
        return kept<COUNT, THREADS, SLOT, SLOTS>(room, first, stop, from, [own = *this](int e) { return own.place(e); }, make);
    }
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
    __syncthreads();
    const auto values = own.template elements<0, 1>(room, x, [](float value) { return value; });
    wait_for_copies();
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
    int tile, float* room, const float* x, const float* scale, const float* shift, const float* means, const float* squares,
    float epsilon, float* to_mean, float* to_variance, End end)
{
    const PartOfChannel<IMAGES, C, PIXELS, PARTS> own(tile);
    const float factor = scale[own.c], start = shift[own.c];
    __syncthreads();
    const auto values = own.template elements<0, 1>(room, x, [](float value) { return value; });
    wait_for_copies();
    const float mean = own.over_parts([&](int p) { return own.terms(p) * means[p * C + own.c]; }) / own.TERMS;
    const float variance = own.over_parts([&](int p) {
        const float apart = means[p * C + own.c] - mean;
        return squares[p * C + own.c] + own.terms(p) * apart * apart;
    }) / own.TERMS;
    const float slope = factor / sqrtf(variance + epsilon);
    values.at_last(own.first, own.stop, [&](int e, float value, int) { end(own.place(e), (value - mean) * slope + start); });
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
    __syncthreads();
    const auto normal = own.template elements<0, 2>(room, x, [=](float value) { return (value - mean) * inverse; });
    const auto errors = own.template elements<1, 2>(room, g, [](float value) { return value; });
    wait_for_copies();
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
    int tile, float* room, const float* g, const float* x, const float* scale, const float* means, const float* variances,
    const float* by_scale, const float* by_shift, float epsilon, Scale to_scale, Shift to_shift, End end)
{
    const PartOfChannel<IMAGES, C, PIXELS, PARTS> own(tile);
    const float mean = means[own.c], inverse = 1 / sqrtf(variances[own.c] + epsilon), factor = scale[own.c] * inverse;
    __syncthreads();
    const auto normal = own.template elements<0, 2>(room, x, [=](float value) { return (value - mean) * inverse; });
    const auto errors = own.template elements<1, 2>(room, g, [](float value) { return value; });
    wait_for_copies();
    const float slope = own.over_parts([&](int p) { return by_scale[p * C + own.c]; });
    const float level = own.over_parts([&](int p) { return by_shift[p * C + own.c]; });
    errors.at_last(own.first, own.stop, [&](int e, float error, int k) {
        end(own.place(e), factor * (error - (level + of(normal, k) * slope) / own.TERMS));
    });
    if (own.leads()) {
        to_scale(own.c, slope);
        to_shift(own.c, level);
    }
}
