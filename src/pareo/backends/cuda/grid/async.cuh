// Copies to shared memory that a thread need not wait for.
#pragma once

// Copies a float, or 0 where there is none.
__device__ inline void copy_later(float* to, const float* from, bool has)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(has ? 4 : 0) : "memory");
}
// Waits for the copies of this thread.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
