// Layers of one image, computed by one block. All sizes are known at compile time. Each function is
// one or more phases: a loop in which every thread computes other elements, and a barrier.
#pragma once

#define EACH(i, count) for (int i = threadIdx.x; i < (count); i += THREADS)
#define PHASE_END __syncthreads()

struct alignas(16) Four { float at[4]; };

// Copies to shared memory, which is aligned to 16 bytes. Many loads are under way at once.
template <int COUNT> __device__ inline void copy(float* to, const float* from)
{
    if ((unsigned long long)from % 16 == 0) {
#pragma unroll 8
        EACH(i, COUNT / 4)
            reinterpret_cast<Four*>(to)[i] = reinterpret_cast<const Four*>(from)[i];
        EACH(i, COUNT % 4) to[COUNT / 4 * 4 + i] = from[COUNT / 4 * 4 + i];
    } else {
#pragma unroll 8
        EACH(i, COUNT) to[i] = from[i];
    }
    PHASE_END;
}

// Adds up PARTS parts of SIZE sums, which lie one behind the other in `room`.
template <int SIZE, int PARTS> __device__ inline void add_parts(float* out, const float* room)
{
    if constexpr (PARTS > 1) {
        EACH(i, SIZE) {
            float sum = 0;
            for (int part = 0; part < PARTS; part++) sum += room[part * SIZE + i];
            out[i] = sum;
        }
        PHASE_END;
    }
}
