// A barrier for all blocks of a launch, and loads that bypass the first-level cache, in which
// writes of other multiprocessors are not visible.

struct Grid {
    unsigned* arrived;  // keeps counting from launch to launch
    unsigned goal;

    // Wait for all blocks; what they wrote before is visible afterwards.
    __device__ __forceinline__ void meet()
    {
        goal += BLOCKS;
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
            unsigned seen;
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                             : "=r"(seen)
                             : "l"(arrived)
                             : "memory");
            } while ((int)(seen - goal) < 0);
        }
        __syncthreads();
    }
};

// Start an asynchronous copy of four floats to shared memory, or of zeros if not `inside`.
__device__ __forceinline__ void copy_async(float* to, const float* from, bool inside)
{
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until all but the last PENDING groups of copies have arrived.
template <int PENDING> __device__ __forceinline__ void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
