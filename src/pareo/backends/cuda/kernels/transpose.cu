// Transposed matrices: out[k][i][j] = a[k * stack + i + j * apart], in tiles of 64 x 64. Both reads
// and writes are coalesced. Blocks are (64, 4).

#include "common.cuh"

constexpr int TILE = 64;
constexpr int LINES = 4;

extern "C" __global__ void transpose(
    Real* out, const Real* a, Size rows, Size columns, Size apart, Size stack)
{
    __shared__ Real tile[TILE][TILE + 1];  // padded, so that a column has no bank conflicts
    const Size i = (Size)blockIdx.y * TILE, j = (Size)blockIdx.x * TILE;
    a += blockIdx.z * stack;
    out += blockIdx.z * rows * columns;
    const bool whole = i + TILE <= rows && j + TILE <= columns;
    Real read[TILE / LINES];
#pragma unroll
    for (int k = 0; k < TILE / LINES; ++k) {
        const int line = k * LINES + threadIdx.y;
        if (whole || (i + threadIdx.x < rows && j + line < columns))
            read[k] = a[i + threadIdx.x + (j + line) * apart];
    }
#pragma unroll
    for (int k = 0; k < TILE / LINES; ++k)
        tile[k * LINES + threadIdx.y][threadIdx.x] = read[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE / LINES; ++k) {
        const int line = k * LINES + threadIdx.y;
        if (whole || (i + line < rows && j + threadIdx.x < columns))
            out[(i + line) * columns + j + threadIdx.x] = tile[threadIdx.x][line];
    }
}
