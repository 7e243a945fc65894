// Two sums for each channel of arrays (N, C, pixels), in double and in an order that is always the
// same. Terms is a function object: `terms.add<WIDE>(total, image, channel, pixel, at)` adds the two
// terms of each of WIDE elements from the offset `at` on.
//
// The elements of a channel are divided into `parts`; the sums of a part are at
// partial[(channel * parts + part)]. `channel_total` adds them.
#pragma once

#include "common.cuh"

struct Layout {
    Size images, channels, pixels, parts;
};

struct alignas(16) Two {
    double first, second;

    __device__ __forceinline__ void add(Two other)
    {
        first += other.first;
        second += other.second;
    }
};

__device__ __forceinline__ Two over_warp(Two value)
{
    for (int apart = 16; apart; apart /= 2) {
        value.first += __shfl_xor_sync(~0u, value.first, apart);
        value.second += __shfl_xor_sync(~0u, value.second, apart);
    }
    return value;
}

// The sum of one value for each thread of a block, in its first thread.
__device__ __forceinline__ Two over_threads(Two value)
{
    __shared__ Two shared[32];
    value = over_warp(value);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = value;
    __syncthreads();
    for (int warp = 1; threadIdx.x == 0 && warp < blockDim.x / 32; ++warp)
        value.add(shared[warp]);
    return value;
}

__device__ __forceinline__ void part_of(Size count, Size parts, Size* first, Size* last)
{
    const Size share = (count + parts - 1) / parts;
    *first = min(share * blockIdx.y, count);
    *last = min(*first + share, count);
}

// blockIdx.x is a channel, blockIdx.y a part. Where pixels are a multiple of WIDE, a thread has WIDE
// neighbouring elements at a time, and `terms` may load them at once.
template <int WIDE, typename Terms>
__device__ __forceinline__ void channel_rows(Two* partial, const Layout& layout, const Terms& terms)
{
    Size first, last;
    part_of(layout.images * layout.pixels / WIDE, layout.parts, &first, &last);
    const Size pixels = layout.pixels / WIDE;
    const Size jump = layout.channels * layout.pixels;
    const Size start = blockIdx.x * layout.pixels;
    Two total = {0, 0};
#pragma unroll 4
    for (Size i = first + threadIdx.x; i < last; i += blockDim.x) {
        const Size image = i >> 32 ? i / pixels : (unsigned)i / (unsigned)pixels;
        const Size pixel = (i - image * pixels) * WIDE;
        terms.template add<WIDE>(total, image, blockIdx.x, pixel, image * jump + start + pixel);
    }
    total = over_threads(total);
    if (threadIdx.x == 0)
        partial[blockIdx.x * layout.parts + blockIdx.y] = total;
}

// WIDE neighbouring elements, in one load if they are a pack.
template <int WIDE> struct Some {
    Real at[WIDE];

    __device__ __forceinline__ Some(const Real* from)
    {
        if constexpr (WIDE == 1) {
            at[0] = *from;
        } else {
            const Pack pack = *reinterpret_cast<const Pack*>(from);
            for (int k = 0; k < WIDE; ++k)
                at[k] = pack.at[k];
        }
    }
};

// The same for one pixel: neighbouring threads have neighbouring channels. Blocks are (32, 8);
// blockIdx.x is a group of 32 channels, blockIdx.y a part.
template <typename Terms>
__device__ __forceinline__ void channel_columns(Two* partial, const Layout& layout, const Terms& terms)
{
    __shared__ Two shared[8][32];
    Size first, last;
    part_of(layout.images, layout.parts, &first, &last);
    const Size channel = (Size)blockIdx.x * 32 + threadIdx.x;
    Two total = {0, 0};
    if (channel < layout.channels) {
#pragma unroll 4
        for (Size image = first + threadIdx.y; image < last; image += 8)
            terms.template add<1>(total, image, channel, 0, image * layout.channels + channel);
    }
    shared[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y || channel >= layout.channels)
        return;
    for (int line = 1; line < 8; ++line)
        total.add(shared[line][threadIdx.x]);
    partial[channel * layout.parts + blockIdx.y] = total;
}

// For kernels with one warp for each channel: its number, and all threads' copy of its sums.
__device__ __forceinline__ Size channel_of_warp() { return first_position() / 32; }

__device__ __forceinline__ Two channel_total(const Two* partial, Size channel, Size parts)
{
    Two total = {0, 0};
    for (Size part = threadIdx.x % 32; part < parts; part += 32)
        total.add(partial[channel * parts + part]);
    return over_warp(total);
}
