// Vectors of V numbers: float or bfloat16 in memory, float in registers.
#pragma once
#include <cuda_bf16.h>

typedef __nv_bfloat16 bfloat16;

__device__ inline float wide(float a) { return a; }
__device__ inline float wide(bfloat16 a) { return __bfloat162float(a); }

template <class T> __device__ inline T narrow(float a);
template <> __device__ inline float narrow<float>(float a) { return a; }
template <> __device__ inline bfloat16 narrow<bfloat16>(float a) { return __float2bfloat16_rn(a); }

// V contiguous elements, aligned to their size.
template <class T, int V> struct alignas(sizeof(T) * V) Pack { T at[V]; };

template <class T, int V> __device__ inline void load(float (&to)[V], const T* from)
{
    const Pack<T, V> pack = *reinterpret_cast<const Pack<T, V>*>(from);
#pragma unroll
    for (int i = 0; i < V; i++) to[i] = wide(pack.at[i]);
}

template <class T, int V> __device__ inline void store(T* to, const float (&from)[V])
{
    Pack<T, V> pack;
#pragma unroll
    for (int i = 0; i < V; i++) pack.at[i] = narrow<T>(from[i]);
    *reinterpret_cast<Pack<T, V>*>(to) = pack;
}
