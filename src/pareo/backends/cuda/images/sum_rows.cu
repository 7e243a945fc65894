// out[c] = sum of parts[r, c] over the rows, in a fixed order. A block has 32 columns.
const int LANES = 32, HIGH = 16;

extern "C" __global__ void __launch_bounds__(LANES* HIGH) sum_rows(float* out, const float* parts, int rows, int columns)
{
    __shared__ float room[HIGH][LANES];
    const int column = blockIdx.x * LANES + threadIdx.x;
    float sum = 0;
    if (column < columns)
#pragma unroll 4
        for (int row = threadIdx.y; row < rows; row += HIGH) sum += parts[(long long)row * columns + column];
    room[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || column >= columns) return;
    for (int y = 1; y < HIGH; y++) sum += room[y][threadIdx.x];
    out[column] = sum;
}
