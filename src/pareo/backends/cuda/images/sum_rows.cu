// Totals over images, of what the images' blocks left: a row of `columns` numbers each. All sums are
// in a fixed order. A block has 32 columns.
const int LANES = 32, HIGH = 16;

// The sum of what threads with the same threadIdx.x have, known to all of them.
__device__ inline float total(float value, float (&room)[HIGH][LANES])
{
    __syncthreads();
    room[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    float sum = 0;
    for (int y = 0; y < HIGH; y++) sum += room[y][threadIdx.x];
    return sum;
}

// out[c] = sum of parts[r, c].
extern "C" __global__ void __launch_bounds__(LANES * HIGH) sum_rows(
    float* out, const float* parts, int rows, int columns)
{
    __shared__ float room[HIGH][LANES];
    const int column = blockIdx.x * LANES + threadIdx.x;
    float sum = 0;
    if (column < columns)
#pragma unroll 4
        for (int row = threadIdx.y; row < rows; row += HIGH) sum += parts[(long long)row * columns + column];
    sum = total(sum, room);
    if (threadIdx.y == 0 && column < columns) out[column] = sum;
}

// Mean and variance of each channel, from those of images with so many pixels: their means from
// column `start` on, and behind them their sums of squared deviations.
extern "C" __global__ void __launch_bounds__(LANES * HIGH) merge_moments(
    float* mean, float* variance, const float* parts, int rows, int columns, int start, int channels,
    int pixels)
{
    __shared__ float room[HIGH][LANES];
    const int c = blockIdx.x * LANES + threadIdx.x;
    const bool inside = c < channels;
    const float* means = parts + start + c;
    float sum = 0, squares = 0;
    if (inside)
#pragma unroll 4
        for (int row = threadIdx.y; row < rows; row += HIGH) sum += means[(long long)row * columns];
    const float middle = total(sum, room) / rows;
    if (inside)
#pragma unroll 4
        for (int row = threadIdx.y; row < rows; row += HIGH) {
            const float apart = means[(long long)row * columns] - middle;
            squares += means[(long long)row * columns + channels] + apart * apart * pixels;
        }
    squares = total(squares, room);
    if (threadIdx.y == 0 && inside) {
        mean[c] = middle;
        variance[c] = squares / ((float)rows * pixels);
    }
}
