// Rows of a matrix by index: take, and its gradient. A row that does not exist is NaN.
// `index` has `taken` elements; `columns` is the length of a row.

#include "common.cuh"

__device__ __forceinline__ Real not_a_number() { return Real(__int_as_float(0x7fffffff)); }

// Load is Real, or a Pack where rows are whole packs; `columns` counts loads.
template <typename Load>
__device__ __forceinline__ void take_rows(
    Load* out, const Load* a, const Size* index, Size taken, Size columns, Size rows, Load missing)
{
    for (Size i = first_position(); i < taken * columns; i += all_threads()) {
        const Size row = index[i / columns];
        out[i] = row >= 0 && row < rows ? a[row * columns + i % columns] : missing;
    }
}

extern "C" __global__ void take(
    Real* out, const Real* a, const Size* index, Size taken, Size columns, Size rows)
{
    take_rows<Real>(out, a, index, taken, columns, rows, not_a_number());
}

extern "C" __global__ void take_packed(
    Real* out, const Real* a, const Size* index, Size taken, Size columns, Size rows)
{
    Pack missing;
    for (int k = 0; k < WIDTH; ++k)
        missing.at[k] = not_a_number();
    take_rows<Pack>(
        reinterpret_cast<Pack*>(out), reinterpret_cast<const Pack*>(a), index, taken, columns, rows,
        missing);
}

// A block has `share` rows of out, and searches the whole index for them. What it finds it adds in
// the order of the index, so that the sums are the same at every run. blockIdx.x is a group of rows
// and blockIdx.y a group of columns, one for each thread. A place that does not exist makes out NaN.
constexpr int LIST = 1024;
constexpr int AHEAD = 8;  // loads at a time

extern "C" __global__ void take_gradient(
    Real* out, const Real* g, const Size* index, Size taken, Size columns, Size rows, Size share)
{
    __shared__ Size places[LIST];  // in the index
    __shared__ Size targets[LIST];  // rows of out
    __shared__ int of_warp[32];
    const Size first = blockIdx.x * share, last = min(first + share, rows);
    const Size column = (Size)blockIdx.y * blockDim.x + threadIdx.x;
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (column < columns)
        for (Size row = first; row < last; ++row)
            out[row * columns + column] = Real(0);
    int wrong = 0;
    Size row = -1;
    Real total = 0;  // of this row so far: stored when another row comes
    for (Size start = 0; start < taken; start += LIST) {
        int found = 0;
        for (Size base = start; base < min(start + LIST, taken); base += blockDim.x) {
            const Size at = base + threadIdx.x;
            const Size target = at < min(start + LIST, taken) ? index[at] : first;
            const bool mine = at < min(start + LIST, taken) && target >= first && target < last;
            wrong |= target < 0 || target >= rows;
            const unsigned votes = __ballot_sync(~0u, mine);
            __syncthreads();  // all threads have read the counts of the last round
            if (lane == 0)
                of_warp[warp] = __popc(votes);
            __syncthreads();
            int before = found;
            for (int other = 0; other < warps; ++other) {
                before += other < warp ? of_warp[other] : 0;
                found += of_warp[other];
            }
            if (mine) {
                const int place = before + __popc(votes & ((1u << lane) - 1));
                places[place] = at;
                targets[place] = target;
            }
        }
        __syncthreads();
        if (column < columns)
            for (int i = 0; i < found; i += AHEAD) {
                Real read[AHEAD];
#pragma unroll
                for (int k = 0; k < AHEAD; ++k)
                    read[k] = i + k < found ? g[places[i + k] * columns + column] : Real(0);
                for (int k = 0; k < AHEAD && i + k < found; ++k) {
                    if (targets[i + k] != row) {
                        if (row >= 0)
                            out[row * columns + column] = total;
                        row = targets[i + k];
                        total = out[row * columns + column];
                    }
                    total += read[k];
                }
            }
        __syncthreads();  // before the lists are written again
    }
    wrong = __syncthreads_or(wrong);
    if (column >= columns)
        return;
    if (row >= 0)
        out[row * columns + column] = total;
    if (wrong)
        for (Size each = first; each < last; ++each)
            out[each * columns + column] = not_a_number();
}
