// A block of threads that computes one image.
#pragma once

#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
const int LANES = 32;

__device__ inline float of_lane(float value, int apart) { return __shfl_xor_sync(~0u, value, apart); }
__device__ inline float total_of_lanes(float value)
{
    for (int apart = LANES / 2; apart > 0; apart /= 2) value += of_lane(value, apart);
    return value;
}
__device__ inline float largest_of_lanes(float value)
{
    for (int apart = LANES / 2; apart > 0; apart /= 2) value = fmaxf(value, of_lane(value, apart));
    return value;
}
// 1 / a, within two units in the last place; 0 for the largest numbers. It has no branches, so that threads
// compute several at a time.
__device__ inline float inverse_of(float a) { return __fdividef(1, a); }
