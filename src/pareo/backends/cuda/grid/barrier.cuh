// A barrier for all blocks of a launch: what they wrote before it is visible to all of them after it.
#pragma once

#ifdef CLUSTER
#define TOGETHER __cluster_dims__(BLOCKS, 1, 1)
__device__ inline void meet(unsigned*)
{
    __syncthreads();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#else
#define TOGETHER
// The blocks add up to 2^31, so that the highest bit of the word changes when the last one arrives. It
// keeps its value from launch to launch.
__device__ inline void meet(unsigned* word)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned added = blockIdx.x == 0 ? 0x80000000u - (BLOCKS - 1) : 1u;
        unsigned before, now;
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                     : "=r"(before) : "l"(word), "r"(added) : "memory");
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
        while (((before ^ now) & 0x80000000u) == 0);
    }
    __syncthreads();
}
#endif
