// Batch normalisation of (N, C, pixels). Each direction has three kernels: sums over the parts of a
// channel (channels.cuh), what follows from them for each channel, and one pass over all elements.
//
// After the normalisation may come a sum with another array, `rest`, and relu. Then the gradient is
// that of relu first: g where its result y is above 0. Where there is none, rest and y are null.
//
// The sums are those of x minus the channel's first element: its distance from the mean is no larger
// than the root of the sum of all squared distances, so little cancels, however large the mean is.

#include "channels.cuh"

// The element that others are compared with; 0 where it is not finite.
__device__ __forceinline__ double origin(const Real* x, Size channel, const Layout& layout)
{
    const double first = x[channel * layout.pixels];
    return first - first == 0 ? first : 0;
}

struct Distances {
    const Real* x;
    double from;

    template <int WIDE>
    __device__ __forceinline__ void add(Two& total, Size, Size, Size, Size at) const
    {
        const Some<WIDE> values(x + at);
#pragma unroll
        for (int k = 0; k < WIDE; ++k) {
            const double distance = (double)values.at[k] - from;
            total.add({distance, distance * distance});
        }
    }
};

extern "C" __global__ void statistics_rows(Two* partial, const Real* x, Layout layout)
{
    channel_rows<1>(partial, layout, Distances {x, origin(x, blockIdx.x, layout)});
}

extern "C" __global__ void statistics_packs(Two* partial, const Real* x, Layout layout)
{
    channel_rows<WIDTH>(partial, layout, Distances {x, origin(x, blockIdx.x, layout)});
}

extern "C" __global__ void statistics_columns(Two* partial, const Real* x, Layout layout)
{
    const Size channel = min((Size)blockIdx.x * 32 + threadIdx.x, layout.channels - 1);
    channel_columns(partial, layout, Distances {x, origin(x, channel, layout)});
}

// What a channel's elements are computed with: y = ((x - mean) - rest) * factor + shift, where mean
// is rounded to Real and rest is what this rounding has lost.
struct alignas(16) Channel {
    Real mean, rest, factor, shift;
};

extern "C" __global__ void statistics(
    Real* mean, Real* variance, Channel* channels, const Two* partial, const Real* x,
    const Real* scale, const Real* shift, Layout layout, double epsilon)
{
    const Size c = channel_of_warp();
    if (c >= layout.channels)
        return;
    const Two total = channel_total(partial, c, layout.parts);
    if (threadIdx.x % 32)
        return;
    const double count = (double)(layout.images * layout.pixels), along = total.first / count;
    const double centre = origin(x, c, layout) + along;
    double spread = (total.second - total.first * along) / count;
    spread = spread < 0 ? 0 : spread;
    mean[c] = Real(centre);
    variance[c] = Real(spread);
    const double lost = centre - (double)Real(centre);
    const double factor = (double)scale[c] / sqrt(spread + epsilon);
    channels[c] = {Real(centre), lost == lost ? Real(lost) : Real(0), Real(factor), shift[c]};
}

extern "C" __global__ void inference(
    Channel* channels, const Real* scale, const Real* shift, const Real* mean, const Real* variance,
    Size count, double epsilon)
{
    for (Size c = first_position(); c < count; c += all_threads()) {
        const double factor = (double)scale[c] / sqrt((double)variance[c] + epsilon);
        channels[c] = {mean[c], Real(0), Real(factor), shift[c]};
    }
}

__device__ __forceinline__ Size channel_at(Size at, Size channels, Size pixels)
{
    if (at >> 32)
        return at / pixels % channels;
    return (unsigned)at / (unsigned)pixels % (unsigned)channels;
}

__device__ __forceinline__ Real normal(Real x, const Channel& c)
{
    return ((x - c.mean) - c.rest) * c.factor + c.shift;
}

__device__ __forceinline__ Real activated(Real value, Real rest, int relu)
{
    value += rest;
    return relu && value < Real(0) ? Real(0) : value;
}

#define NORMALISED \
    Real *out, const Real *x, const Real *rest, const Channel *channels, Size count, Size in_all, \
        Size pixels, int relu

extern "C" __global__ void normalised(NORMALISED)
{
    for (Size i = first_position(); i < count; i += all_threads()) {
        const Real value = normal(x[i], channels[channel_at(i, in_all, pixels)]);
        out[i] = activated(value, rest ? rest[i] : Real(0), relu);
    }
}

// Where pixels are whole packs: `count` and `pixels` count packs.
extern "C" __global__ void normalised_packed(NORMALISED)
{
    for (Size i = first_position(); i < count; i += all_threads()) {
        const Channel c = channels[channel_at(i, in_all, pixels)];
        Pack values = reinterpret_cast<const Pack*>(x)[i], others = {};
        if (rest)
            others = reinterpret_cast<const Pack*>(rest)[i];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            values.at[k] = activated(normal(values.at[k], c), others.at[k], relu);
        reinterpret_cast<Pack*>(out)[i] = values;
    }
}

__device__ __forceinline__ Real through(Real g, Real y) { return y <= Real(0) ? Real(0) : g; }

struct Errors {
    const Real *g, *y, *x;
    Real mean;

    template <int WIDE>
    __device__ __forceinline__ void add(Two& total, Size, Size, Size, Size at) const
    {
        const Some<WIDE> errors(g + at), values(x + at), results((y ? y : g) + at);
#pragma unroll
        for (int k = 0; k < WIDE; ++k) {
            const double error = y ? through(errors.at[k], results.at[k]) : errors.at[k];
            total.add({error, error * ((double)values.at[k] - (double)mean)});
        }
    }
};

extern "C" __global__ void errors_rows(
    Two* partial, const Real* g, const Real* y, const Real* x, const Real* mean, Layout layout)
{
    channel_rows<1>(partial, layout, Errors {g, y, x, mean[blockIdx.x]});
}

extern "C" __global__ void errors_packs(
    Two* partial, const Real* g, const Real* y, const Real* x, const Real* mean, Layout layout)
{
    channel_rows<WIDTH>(partial, layout, Errors {g, y, x, mean[blockIdx.x]});
}

extern "C" __global__ void errors_columns(
    Two* partial, const Real* g, const Real* y, const Real* x, const Real* mean, Layout layout)
{
    const Size channel = min((Size)blockIdx.x * 32 + threadIdx.x, layout.channels - 1);
    channel_columns(partial, layout, Errors {g, y, x, mean[channel]});
}

// What a channel's gradient is computed with: factor * (g - level - (x - mean) * slope).
struct alignas(16) Slope {
    Real mean, factor, level, slope;
};

extern "C" __global__ void slopes(
    Real* to_scale, Real* to_shift, Slope* channels, const Two* partial, const Real* scale,
    const Real* mean, const Real* variance, Layout layout, double epsilon)
{
    const Size c = channel_of_warp();
    if (c >= layout.channels)
        return;
    const Two total = channel_total(partial, c, layout.parts);
    if (threadIdx.x % 32)
        return;
    const double inverse = 1 / sqrt((double)variance[c] + epsilon);
    const double count = (double)max(layout.images * layout.pixels, 1ll);
    to_scale[c] = Real(total.second * inverse);
    to_shift[c] = Real(total.first);
    channels[c] = {mean[c], Real((double)scale[c] * inverse), Real(total.first / count),
                   Real(total.second * inverse * inverse / count)};
}

__device__ __forceinline__ Real gradient(Real g, Real x, const Slope& c)
{
    return c.factor * (g - c.level - (x - c.mean) * c.slope);
}

// `after` is null, or becomes the gradient of relu; it may be the memory of g.
#define GRADIENT \
    Real *out, Real *after, const Real *g, const Real *y, const Real *x, const Slope *channels, \
        Size count, Size in_all, Size pixels

extern "C" __global__ void gradients(GRADIENT)
{
    for (Size i = first_position(); i < count; i += all_threads()) {
        const Real error = y ? through(g[i], y[i]) : g[i];
        const Real value = gradient(error, x[i], channels[channel_at(i, in_all, pixels)]);
        if (after)
            after[i] = error;
        out[i] = value;
    }
}

extern "C" __global__ void gradients_packed(GRADIENT)
{
    for (Size i = first_position(); i < count; i += all_threads()) {
        const Slope c = channels[channel_at(i, in_all, pixels)];
        Pack errors = reinterpret_cast<const Pack*>(g)[i];
        Pack values = reinterpret_cast<const Pack*>(x)[i];
        if (y) {
            const Pack results = reinterpret_cast<const Pack*>(y)[i];
#pragma unroll
            for (int k = 0; k < WIDTH; ++k)
                errors.at[k] = through(errors.at[k], results.at[k]);
        }
#pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            values.at[k] = gradient(errors.at[k], values.at[k], c);
        if (after)
            reinterpret_cast<Pack*>(after)[i] = errors;
        reinterpret_cast<Pack*>(out)[i] = values;
    }
}
