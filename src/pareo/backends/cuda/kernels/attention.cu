// Attention: y = softmax(q k' * scale + mask) v for each head, in tiles that never leave shared
// memory, with up to 64 columns in q, k and v. `sums` is log(sum(exp(scores))) of each row. Blocks
// have 256 threads.

#include "attention.cuh"

extern __shared__ __align__(16) char memory[];

#define OPERAND(name, which) name + place.at[which]

__device__ __forceinline__ Real over_sixteen_largest(Real value)
{
    for (int apart = 8; apart; apart /= 2) {
        const Real other = __shfl_xor_sync(~0u, value, apart);
        value = other > value ? other : value;
    }
    return value;
}

__device__ __forceinline__ Real over_sixteen(Real value)
{
    for (int apart = 8; apart; apart /= 2)
        value += __shfl_xor_sync(~0u, value, apart);
    return value;
}

// A block has SIDE queries of one head, and passes over its keys.
template <int COLUMNS>
__device__ __forceinline__ void forward(
    Real* y, Real* sums, const Real* q, const Real* k, const Real* v, const Real* mask, Real scale,
    const Attention& how)
{
    Real* queries = reinterpret_cast<Real*>(memory);
    Real* others = queries + SIDE * LINE<COLUMNS>;  // keys, then values
    Real* chances = others + SIDE * LINE<COLUMNS>;
    const Size tiles = (how.queries + SIDE - 1) / SIDE, head = blockIdx.x / tiles;
    const Size first = (tiles - 1 - blockIdx.x % tiles) * SIDE;  // the longest rows go first
    const int down = threadIdx.x / 16, along = threadIdx.x % 16;
    const Place place = place_of(how, head);
    q = OPERAND(q, Q), k = OPERAND(k, K), v = OPERAND(v, V), mask = OPERAND(mask, MASK);
    load<COLUMNS>(queries, q, first, how.queries, how.depth, how.row[Q], how.column[Q]);
    Real found[EACH][EACH], total[EACH][COLUMNS], top[EACH], sum[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        top[i] = minus_infinity();
        sum[i] = 0;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            total[i][c] = 0;
    }
    const Size last = how.causal ? min(how.keys, first + SIDE) : how.keys;
    for (Size start = 0; start < last; start += SIDE) {
        __syncthreads();
        load<COLUMNS>(others, k, start, how.keys, how.depth, how.row[K], how.column[K]);
        __syncthreads();
        multiply<COLUMNS>(found, queries, others, (int)how.depth, down, along);
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const Size query = first + down * EACH + i;
            Real fresh = top[i];
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                const Size key = start + along + 16 * j;
                found[i][j] = is_hidden(how, query, key)
                    ? minus_infinity()
                    : score(found[i][j], scale, mask, how, query, key);
                fresh = found[i][j] > fresh ? found[i][j] : fresh;
            }
            fresh = over_sixteen_largest(fresh);
            const Real shift = shift_of(fresh), factor = exp(top[i] - shift);
            top[i] = fresh;
            sum[i] *= factor;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c)
                total[i][c] *= factor;
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                const Real chance = exp(found[i][j] - shift);
                sum[i] += chance;
                chances[(down * EACH + i) * SCORES + along + 16 * j] = chance;
            }
        }
        __syncthreads();
        load<COLUMNS>(others, v, start, how.keys, how.width, how.row[V], how.column[V]);
        __syncthreads();
        accumulate<COLUMNS>(total, chances, others, down, along);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const Real whole = over_sixteen(sum[i]);
        const bool forbidden = top[i] == minus_infinity() && whole == Real(0);
        const Size query = first + down * EACH + i;
        if (along == 0 && query < how.queries)
            sums[head * how.queries + query] = log(whole) + shift_of(top[i]);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            total[i][c] = forbidden ? Real(0) : total[i][c] / whole;
    }
    y += head * how.queries * how.width;
    store<COLUMNS>(y, total, first, how.queries, how.width, down, along);
}

extern "C" __global__ void __launch_bounds__(256) attention(
    Real* y, Real* sums, const Real* q, const Real* k, const Real* v, const Real* mask, Real scale,
    Attention how)
{
    forward<4>(y, sums, q, k, v, mask, scale, how);
}
