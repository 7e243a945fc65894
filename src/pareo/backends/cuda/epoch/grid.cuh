// All blocks of a launch at work together, and memory that they all write: it is read and written
// past the first cache, which other multiprocessors cannot see.

struct Grid {
    unsigned* arrived;  // goes on counting from launch to launch
    unsigned goal;

    // Wait for all blocks; what they wrote before can be read after.
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

// Ask for four floats to be copied into shared memory, or for zeros.
__device__ __forceinline__ void ask(float* to, const float* from, bool inside)
{
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void asked() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until all but the last PENDING groups that were asked for are there.
template <int PENDING> __device__ __forceinline__ void arrived()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
