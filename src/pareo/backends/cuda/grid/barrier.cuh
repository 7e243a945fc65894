// A barrier for all blocks of a launch: what they wrote before it is visible to all of them after it.
#pragma once

// The number of a thread and of a block. Each task asks for them again: the compiler would move what
// follows from them out of the loop over steps, and keep all of it in registers and on the stack. Divisions of
// what is not negative take fewer instructions.
__device__ inline int this_thread()
{
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    __builtin_assume(thread >= 0 && thread < THREADS);
    return thread;
}
__device__ inline int this_block()
{
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    __builtin_assume(block >= 0 && block < BLOCKS);
    return block;
}

// A pointer to memory of the GPU: the compiler need not ask whether it is to shared memory.
__device__ inline void assume_global(const void* pointer) { __builtin_assume(__isGlobal(pointer)); }
template <class T> __device__ inline T* global(void* pointer)
{
    assume_global(pointer);
    return (T*)pointer;
}

#ifdef CLUSTER
#define TOGETHER __cluster_dims__(BLOCKS, 1, 1)
struct Barrier {
    __device__ Barrier(unsigned*) {}
    __device__ void meet()
    {
        __syncthreads();
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
};
#else
#define TOGETHER
// The blocks add up to 2^31, so that the highest bit of the word changes when the last one arrives. It
// keeps its value from launch to launch.
struct Barrier {
    unsigned* word;
    unsigned highest;  // before the blocks have met
    __device__ Barrier(unsigned* word) : word(word) { highest = read() & 0x80000000u; }
    __device__ unsigned read() const
    {
        unsigned now;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
        return now;
    }
    __device__ void meet()
    {
        __syncthreads();
        if (threadIdx.x == 0) {
            const unsigned added = blockIdx.x == 0 ? 0x80000000u - (BLOCKS - 1) : 1u;
            asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(added) : "memory");
            while ((read() & 0x80000000u) == highest) {}
            highest ^= 0x80000000u;
        }
        __syncthreads();
    }
};
#endif
