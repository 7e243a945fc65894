// What elementwise kernels share: a function f of one or two arrays, over layouts of every kind.
// f has a member `of(a, b)`; a function of one argument ignores b.
#pragma once

#include "common.cuh"

template <bool one> __device__ __forceinline__ Pack taken(const Real* a, Size pack)
{
    if constexpr (one) {
        Pack found;
        for (int i = 0; i < WIDTH; ++i)
            found.at[i] = *a;
        return found;
    } else {
        return reinterpret_cast<const Pack*>(a)[pack];
    }
}

template <typename F, bool one_a, bool one_b>
__device__ __forceinline__ void packed(
    Real* out, const Real* a, const Real* b, Size count, const F& f = F())
{
    const Size packs = count / WIDTH, pack = (Size)blockIdx.x * blockDim.x + threadIdx.x;
    if (pack < packs) {
        Pack x = taken<one_a>(a, pack), y = taken<one_b>(b, pack);
        for (int i = 0; i < WIDTH; ++i)
            x.at[i] = f.of(x.at[i], y.at[i]);
        reinterpret_cast<Pack*>(out)[pack] = x;
    }
    const Size rest = packs * WIDTH + pack;
    if (rest < count)
        out[rest] = f.of(one_a ? *a : a[rest], one_b ? *b : b[rest]);
}

template <typename F, typename Index>
__device__ __forceinline__ void walked(
    Real* out, const Real* a, const Real* b, Size count, const Walk<2>& walk, const F& f = F())
{
    for (Size i = first_position(); i < count; i += all_threads()) {
        Size offsets[2];
        locate(walk, (Index)i, offsets);
        out[i] = f.of(a[offsets[0]], b[offsets[1]]);
    }
}

#define ARRAYS Real *out, const Real *a, const Real *b, Size count
