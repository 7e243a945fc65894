// Matrices turned: out[k][i][j] = a[k * stack + i + j * apart], in tiles of 32 x 32 that are read
// along one axis and written along the other, both as the memory likes it.

#include "common.cuh"

extern "C" __global__ void transpose(
    Real* out, const Real* a, Size rows, Size columns, Size apart, Size stack)
{
    __shared__ Real tile[32][33];  // a column more, so that a column lies in all banks
    const Size i = (Size)blockIdx.y * 32, j = (Size)blockIdx.x * 32;
    a += blockIdx.z * stack;
    out += blockIdx.z * rows * columns;
    for (int k = threadIdx.y; k < 32; k += blockDim.y)
        if (i + threadIdx.x < rows && j + k < columns)
            tile[k][threadIdx.x] = a[i + threadIdx.x + (j + k) * apart];
    __syncthreads();
    for (int k = threadIdx.y; k < 32; k += blockDim.y)
        if (i + k < rows && j + threadIdx.x < columns)
            out[(i + k) * columns + j + threadIdx.x] = tile[threadIdx.x][k];
}
