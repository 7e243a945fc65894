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

// A block of 256 threads is 16 x 16. Thread (down, along) has the rows EACH * down + i of a tile. Of
// a tile of scores it has the columns along + 16 * j, of other tiles WIDTH neighbouring ones in each
// group of 16 * WIDTH (`column_of`). Rows begin 16 bytes after a multiple of 128 bytes from each
// other, so that packs of a column lie in different banks.
constexpr int SIDE = sizeof(Real) == 4 ? 64 : 32;  // queries, or keys, of a tile
constexpr int EACH = SIDE / 16;
constexpr int SCORES = SIDE + WIDTH;  // from one row of a tile of scores to the next

// Tiles of q, k and v have up to 16 * COLUMNS columns.
template <int COLUMNS> constexpr int LINE = 16 * COLUMNS + WIDTH;

__device__ __forceinline__ int column_of(int c, int along)
{
    return c / WIDTH * 16 * WIDTH + along * WIDTH + c % WIDTH;
}

__device__ __forceinline__ Pack pack_at(const Real* tile, int at)
{
    return *reinterpret_cast<const Pack*>(tile + at);
}

// Rows from `first` on, zeros beyond the last.
template <int COLUMNS>
__device__ __forceinline__ void load(
    Real* tile, const Real* from, Size first, Size rows, Size columns, Size row, Size column)
{
#pragma unroll 8
    for (int i = threadIdx.x; i < SIDE * 16 * COLUMNS; i += 256) {
        const int r = i / (16 * COLUMNS), c = i % (16 * COLUMNS);
        const bool there = first + r < rows && c < columns;
        tile[r * LINE<COLUMNS> + c] = there ? from[(first + r) * row + c * column] : Real(0);
    }
}

// found = a b', over `depth` columns; those up to the next pack are zeros.
template <int COLUMNS>
__device__ __forceinline__ void multiply(
    Real (&found)[EACH][EACH], const Real* a, const Real* b, int depth, int down, int along)
{
#pragma unroll
    for (int i = 0; i < EACH * EACH; ++i)
        found[i / EACH][i % EACH] = 0;
#pragma unroll 2
    for (int c = 0; c < depth; c += WIDTH) {
        Pack left[EACH], right[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            left[i] = pack_at(a, (down * EACH + i) * LINE<COLUMNS> + c);
#pragma unroll
        for (int j = 0; j < EACH; ++j)
            right[j] = pack_at(b, (along + 16 * j) * LINE<COLUMNS> + c);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k)
#pragma unroll
            for (int i = 0; i < EACH * EACH; ++i)
                found[i / EACH][i % EACH] += left[i / EACH].at[k] * right[i % EACH].at[k];
    }
}

// total += scores b.
template <int COLUMNS>
__device__ __forceinline__ void accumulate(
    Real (&total)[EACH][COLUMNS], const Real* scores, const Real* b, int down, int along)
{
#pragma unroll 2
    for (int r = 0; r < SIDE; r += WIDTH) {
        Pack left[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            left[i] = pack_at(scores, (down * EACH + i) * SCORES + r);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            Pack right[COLUMNS / WIDTH];
#pragma unroll
            for (int c = 0; c < COLUMNS / WIDTH; ++c)
                right[c] = pack_at(b, (r + k) * LINE<COLUMNS> + column_of(c * WIDTH, along));
#pragma unroll
            for (int i = 0; i < EACH; ++i)
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    total[i][c] += left[i].at[k] * right[c / WIDTH].at[c % WIDTH];
        }
    }
}

// Rows of a result from `first` on, which is contiguous.
template <int COLUMNS>
__device__ __forceinline__ void store(
    Real* out, const Real (&total)[EACH][COLUMNS], Size first, Size rows, Size columns, int down,
    int along)
{
#pragma unroll
    for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const Size row = first + down * EACH + i, column = column_of(c, along);
            if (row < rows && column < columns)
                out[row * columns + column] = total[i][c];
        }
}
