// What the kernels of attention share: the description of the operands, and products of tiles.
#pragma once

#include "common.cuh"

// The operands in the order of `Operand`: their offsets for each head, and the steps of their rows
// and columns. (Sums have one column.)
enum Operand { Q, K, V, MASK, G, Y, SUMS, OPERANDS };

struct Attention {
    Size queries, keys, depth, width, causal;  // depth: of q and k; width: of v
    Size row[OPERANDS], column[OPERANDS];
    Walk<OPERANDS> heads;
};

struct Place {
    Size at[OPERANDS];
};

__device__ __forceinline__ Place place_of(const Attention& how, Size head)
{
    Place place;
    locate(how.heads, (unsigned long long)head, place.at);
    return place;
}

__device__ __forceinline__ bool is_hidden(const Attention& how, Size query, Size key)
{
    return query >= how.queries || key >= how.keys || (how.causal && key > query);
}

__device__ __forceinline__ Real minus_infinity() { return Largest::start(); }

// A product of query and key as a score.
__device__ __forceinline__ Real score(
    Real product, Real scale, const Real* mask, const Attention& how, Size query, Size key)
{
    return product * scale + mask[query * how.row[MASK] + key * how.column[MASK]];
}

// What is subtracted from scores before exp: 0 where all are minus infinity, so that none is NaN.
__device__ __forceinline__ Real shift_of(Real top) { return top == minus_infinity() ? Real(0) : top; }

// A block of 256 threads is 16 x 16. Thread (down, along) has the rows EACH * down + i of a tile and
// its columns along + 16 * j.
constexpr int SIDE = sizeof(Real) == 4 ? 64 : 32;  // queries, or keys, of a tile
constexpr int EACH = SIDE / 16;
constexpr int SCORES = SIDE + 1;  // from one row of a tile of scores to the next

// Tiles of q, k, v and g have up to 16 * COLUMNS columns. Rows are an odd number of elements apart,
// so that a column lies in different banks.
template <int COLUMNS> constexpr int LINE = 16 * COLUMNS + 1;

// Rows from `first` on, zeros beyond the last.
template <int COLUMNS>
__device__ __forceinline__ void load(
    Real* tile, const Real* from, Size first, Size rows, Size columns, Size row, Size column)
{
    for (int i = threadIdx.x; i < SIDE * 16 * COLUMNS; i += 256) {
        const int r = i / (16 * COLUMNS), c = i % (16 * COLUMNS);
        const bool there = first + r < rows && c < columns;
        tile[r * LINE<COLUMNS> + c] = there ? from[(first + r) * row + c * column] : Real(0);
    }
}

// found = a b', over `depth` columns.
template <int COLUMNS>
__device__ __forceinline__ void multiply(
    Real (&found)[EACH][EACH], const Real* a, const Real* b, int depth, int down, int along)
{
#pragma unroll
    for (int i = 0; i < EACH * EACH; ++i)
        found[i / EACH][i % EACH] = 0;
#pragma unroll 4
    for (int c = 0; c < depth; ++c) {
        Real left[EACH], right[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            left[i] = a[(down * EACH + i) * LINE<COLUMNS> + c];
#pragma unroll
        for (int j = 0; j < EACH; ++j)
            right[j] = b[(along + 16 * j) * LINE<COLUMNS> + c];
#pragma unroll
        for (int i = 0; i < EACH * EACH; ++i)
            found[i / EACH][i % EACH] += left[i / EACH] * right[i % EACH];
    }
}

// total += scores b, or scores' b if transposed.
template <int COLUMNS, bool transposed>
__device__ __forceinline__ void accumulate(
    Real (&total)[EACH][COLUMNS], const Real* scores, const Real* b, int down, int along)
{
#pragma unroll 4
    for (int r = 0; r < SIDE; ++r) {
        Real left[EACH], right[COLUMNS];
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            left[i] = transposed ? scores[r * SCORES + down * EACH + i]
                                 : scores[(down * EACH + i) * SCORES + r];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            right[c] = b[r * LINE<COLUMNS> + along + 16 * c];
#pragma unroll
        for (int i = 0; i < EACH * COLUMNS; ++i)
            total[i / COLUMNS][i % COLUMNS] += left[i / COLUMNS] * right[i % COLUMNS];
    }
}

// Rows of a result from `first` on, which is contiguous.
template <int COLUMNS>
__device__ __forceinline__ void store(
    Real* out, const Real (&total)[EACH][COLUMNS], Real factor, Size first, Size rows, Size columns,
    int down, int along)
{
#pragma unroll
    for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const Size row = first + down * EACH + i, column = along + 16 * c;
            if (row < rows && column < columns)
                out[row * columns + column] = total[i][c] * factor;
        }
}
