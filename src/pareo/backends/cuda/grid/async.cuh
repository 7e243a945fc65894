// Copies to shared memory that a thread need not wait for.
#pragma once

// Copies COUNT floats, 1, 2 or 4 of them at a multiple of their size, or zeros where there are none.
template <int COUNT = 1> __device__ inline void copy_later(float* to, const float* from, bool has)
{
    constexpr int SIZE = 4 * COUNT;
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(at), "l"(from), "r"(has ? SIZE : 0), "n"(SIZE)
                 : "memory");
}
// Ends a group of copies of this thread; and waits for all groups but the last so many.
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LAST> __device__ inline void wait_for_all_but()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LAST) : "memory");
}
// Waits for the copies of this thread.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
