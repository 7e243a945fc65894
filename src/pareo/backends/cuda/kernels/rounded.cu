// Numbers rounded to bfloat16, stored as unsigned short: four at a time, then the rest.

#include "common.cuh"

__device__ __forceinline__ unsigned pair(Real low, Real high)
{
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"((float)high), "f"((float)low));
    return bits;
}

extern "C" __global__ void rounded(unsigned short* out, const Real* a, Size count)
{
    for (Size i = first_position(); i < count / 4; i += all_threads()) {
        const Real* four = a + 4 * i;
        const uint2 bits = {pair(four[0], four[1]), pair(four[2], four[3])};
        reinterpret_cast<uint2*>(out)[i] = bits;
    }
    const Size rest = count / 4 * 4 + first_position();
    if (rest < count)
        out[rest] = (unsigned short)pair(a[rest], Real(0));
}
