// Attention: y = softmax(q k' * scale + mask) v for each head, in tiles that never leave shared
// memory, and its gradients. `sums` is log(sum(exp(scores))) of each row. NAME_32, _64 and _128 have
// up to so many columns in q, k and v. All blocks have 256 threads; none shares its results with
// another, so that all sums are the same at every run.

#include "attention.cuh"

extern __shared__ char memory[];

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
        accumulate<COLUMNS, false>(total, chances, others, down, along);
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
    store<COLUMNS>(y, total, Real(1), first, how.queries, how.width, down, along);
}

// Of each row the inner product of g and y, (heads, queries): a warp for each row.
extern "C" __global__ void inner_products(
    Real* out, const Real* g, const Real* y, Size rows, Attention how)
{
    const Size row = first_position() / 32;
    if (row >= rows)
        return;
    const Place place = place_of(how, row / how.queries);
    const Size query = row % how.queries;
    g = OPERAND(g, G), y = OPERAND(y, Y);
    Real total = 0;
    for (Size c = threadIdx.x % 32; c < how.width; c += 32)
        total += g[query * how.row[G] + c * how.column[G]] * y[query * how.row[Y] + c * how.column[Y]];
    for (int apart = 16; apart; apart /= 2)
        total += __shfl_xor_sync(~0u, total, apart);
    if (threadIdx.x % 32 == 0)
        out[row] = total;
}

// Four tiles and one of scores.
template <int COLUMNS> struct Tiles {
    Real *queries, *errors, *keys, *values, *scores;

    __device__ __forceinline__ Tiles()
    {
        queries = reinterpret_cast<Real*>(memory);
        errors = queries + SIDE * LINE<COLUMNS>;
        keys = errors + SIDE * LINE<COLUMNS>;
        values = keys + SIDE * LINE<COLUMNS>;
        scores = values + SIDE * LINE<COLUMNS>;
    }
};

// The share that each key has of each query, and what the loss changes with its score.
template <int COLUMNS>
__device__ __forceinline__ void recomputed(
    Real (&chance)[EACH][EACH], Real (&error)[EACH][EACH], const Tiles<COLUMNS>& tiles,
    const Real* mask, const Real* sums, const Real* inner, Real scale, Size first, Size start,
    const Attention& how, int down, int along)
{
    multiply<COLUMNS>(chance, tiles.queries, tiles.keys, (int)how.depth, down, along);
    multiply<COLUMNS>(error, tiles.errors, tiles.values, (int)how.width, down, along);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const Size query = first + down * EACH + i;
        const bool there = query < how.queries;
        const Real shift = there ? shift_of(sums[query * how.row[SUMS]]) : Real(0);
        const Real level = there ? inner[query] : Real(0);
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const Size key = start + along + 16 * j;
            const bool hidden = is_hidden(how, query, key);
            chance[i][j] = hidden
                ? Real(0)
                : exp(score(chance[i][j], scale, mask, how, query, key) - shift);
            error[i][j] = hidden ? Real(0) : chance[i][j] * (error[i][j] - level);
        }
    }
}

__device__ __forceinline__ void put(
    Real* scores, const Real (&values)[EACH][EACH], int down, int along)
{
#pragma unroll
    for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int j = 0; j < EACH; ++j)
            scores[(down * EACH + i) * SCORES + along + 16 * j] = values[i][j];
}

#define BACKWARD \
    const Real *g, const Real *q, const Real *k, const Real *v, const Real *mask, \
        const Real *sums, const Real *inner, Real scale

// The gradient of q: a block has SIDE queries, and passes over the keys.
template <int COLUMNS>
__device__ __forceinline__ void to_queries(Real* out, BACKWARD, const Attention& how)
{
    const Tiles<COLUMNS> tiles;
    const Size count = (how.queries + SIDE - 1) / SIDE, head = blockIdx.x / count;
    const Size first = (count - 1 - blockIdx.x % count) * SIDE;
    const int down = threadIdx.x / 16, along = threadIdx.x % 16;
    const Place place = place_of(how, head);
    g = OPERAND(g, G), q = OPERAND(q, Q), k = OPERAND(k, K), v = OPERAND(v, V);
    mask = OPERAND(mask, MASK), sums = OPERAND(sums, SUMS), inner += head * how.queries;
    load<COLUMNS>(tiles.queries, q, first, how.queries, how.depth, how.row[Q], how.column[Q]);
    load<COLUMNS>(tiles.errors, g, first, how.queries, how.width, how.row[G], how.column[G]);
    Real chance[EACH][EACH], error[EACH][EACH], total[EACH][COLUMNS];
#pragma unroll
    for (int i = 0; i < EACH * COLUMNS; ++i)
        total[i / COLUMNS][i % COLUMNS] = 0;
    const Size last = how.causal ? min(how.keys, first + SIDE) : how.keys;
    for (Size start = 0; start < last; start += SIDE) {
        __syncthreads();
        load<COLUMNS>(tiles.keys, k, start, how.keys, how.depth, how.row[K], how.column[K]);
        load<COLUMNS>(tiles.values, v, start, how.keys, how.width, how.row[V], how.column[V]);
        __syncthreads();
        recomputed(chance, error, tiles, mask, sums, inner, scale, first, start, how, down, along);
        put(tiles.scores, error, down, along);
        __syncthreads();
        accumulate<COLUMNS, false>(total, tiles.scores, tiles.keys, down, along);
    }
    out += head * how.queries * how.depth;
    store<COLUMNS>(out, total, scale, first, how.queries, how.depth, down, along);
}

// The gradients of k and v: a block has SIDE keys, and passes over the queries.
template <int COLUMNS>
__device__ __forceinline__ void to_keys(Real* out, Real* to_values, BACKWARD, const Attention& how)
{
    const Tiles<COLUMNS> tiles;
    const Size count = (how.keys + SIDE - 1) / SIDE, head = blockIdx.x / count;
    const Size start = blockIdx.x % count * SIDE;
    const int down = threadIdx.x / 16, along = threadIdx.x % 16;
    const Place place = place_of(how, head);
    g = OPERAND(g, G), q = OPERAND(q, Q), k = OPERAND(k, K), v = OPERAND(v, V);
    mask = OPERAND(mask, MASK), sums = OPERAND(sums, SUMS), inner += head * how.queries;
    load<COLUMNS>(tiles.keys, k, start, how.keys, how.depth, how.row[K], how.column[K]);
    load<COLUMNS>(tiles.values, v, start, how.keys, how.width, how.row[V], how.column[V]);
    Real chance[EACH][EACH], error[EACH][EACH], total[EACH][COLUMNS], values[EACH][COLUMNS];
#pragma unroll
    for (int i = 0; i < EACH * COLUMNS; ++i)
        total[i / COLUMNS][i % COLUMNS] = values[i / COLUMNS][i % COLUMNS] = 0;
    for (Size first = how.causal ? start : 0; first < how.queries; first += SIDE) {
        __syncthreads();
        load<COLUMNS>(tiles.queries, q, first, how.queries, how.depth, how.row[Q], how.column[Q]);
        load<COLUMNS>(tiles.errors, g, first, how.queries, how.width, how.row[G], how.column[G]);
        __syncthreads();
        recomputed(chance, error, tiles, mask, sums, inner, scale, first, start, how, down, along);
        put(tiles.scores, chance, down, along);
        __syncthreads();
        accumulate<COLUMNS, true>(values, tiles.scores, tiles.errors, down, along);
        __syncthreads();
        put(tiles.scores, error, down, along);
        __syncthreads();
        accumulate<COLUMNS, true>(total, tiles.scores, tiles.queries, down, along);
    }
    out += head * how.keys * how.depth;
    to_values += head * how.keys * how.width;
    store<COLUMNS>(out, total, scale, start, how.keys, how.depth, down, along);
    store<COLUMNS>(to_values, values, Real(1), start, how.keys, how.width, down, along);
}

#define ATTENTION(columns) \
    extern "C" __global__ void __launch_bounds__(256) attention_##columns( \
        Real* y, Real* sums, const Real* q, const Real* k, const Real* v, const Real* mask, \
        Real scale, Attention how) \
    { \
        forward<columns / 16>(y, sums, q, k, v, mask, scale, how); \
    } \
    extern "C" __global__ void __launch_bounds__(256) \
        to_queries_##columns(Real* out, BACKWARD, Attention how) \
    { \
        to_queries<columns / 16>(out, g, q, k, v, mask, sums, inner, scale, how); \
    } \
    extern "C" __global__ void __launch_bounds__(256) \
        to_keys_##columns(Real* out, Real* to_values, BACKWARD, Attention how) \
    { \
        to_keys<columns / 16>(out, to_values, g, q, k, v, mask, sums, inner, scale, how); \
    }

ATTENTION(32)
ATTENTION(64)
ATTENTION(128)
