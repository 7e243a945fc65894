// Attention and its gradients with scores in memory, (heads, rows, keys), for queries from `first` on:
// what remains beside the matrix products. blockIdx.x is a row of the scores.

#include "attention.cuh"

// The products of a row become its softmax.
extern "C" __global__ void softmax(
    Real* scores, Real* sums, const Real* mask, Real scale, Size rows, Size first, Attention how)
{
    const Size head = blockIdx.x / rows, query = first + blockIdx.x % rows;
    mask += place_of(how, head).at[MASK];
    scores += blockIdx.x * how.keys;
    Real top = minus_infinity();
    for (Size key = threadIdx.x; key < how.keys; key += blockDim.x) {
        const Real value = is_hidden(how, query, key)
            ? minus_infinity()
            : score(scores[key], scale, mask, how, query, key);
        scores[key] = value;
        top = Largest::of(top, value);
    }
    top = over_block<Largest>(top);
    const Real shift = shift_of(top);
    Real total = 0;
    for (Size key = threadIdx.x; key < how.keys; key += blockDim.x) {
        const Real chance = exp(scores[key] - shift);
        scores[key] = chance;
        total += chance;
    }
    total = over_block<Sum>(total);
    for (Size key = threadIdx.x; key < how.keys; key += blockDim.x)
        scores[key] = top == minus_infinity() ? Real(0) : scores[key] / total;
    if (threadIdx.x == 0)
        sums[head * how.queries + query] = log(total) + shift;
}

// The products of a row become the share of each key, and the products of g and v, in `pulls`, what
// the loss changes with each product of q and k. `inner` is the product of g and y for each row.
extern "C" __global__ void slopes(
    Real* scores, Real* pulls, const Real* mask, const Real* sums, const Real* inner, Real scale,
    Size rows, Size first, Attention how)
{
    const Size head = blockIdx.x / rows, query = first + blockIdx.x % rows;
    const Place place = place_of(how, head);
    mask += place.at[MASK];
    const Real shift = shift_of(sums[place.at[SUMS] + query * how.row[SUMS]]);
    const Real level = inner[head * how.queries + query];
    for (Size key = threadIdx.x; key < how.keys; key += blockDim.x) {
        const Size at = blockIdx.x * how.keys + key;
        const bool hidden = is_hidden(how, query, key);
        const Real chance
            = hidden ? Real(0) : exp(score(scores[at], scale, mask, how, query, key) - shift);
        scores[at] = chance;
        pulls[at] = hidden ? Real(0) : chance * (pulls[at] - level) * scale;
    }
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
    g += place.at[G], y += place.at[Y];
    Real total = 0;
    for (Size c = threadIdx.x % 32; c < how.width; c += 32)
        total += g[query * how.row[G] + c * how.column[G]] * y[query * how.row[Y] + c * how.column[Y]];
    for (int apart = 16; apart; apart /= 2)
        total += __shfl_xor_sync(~0u, total, apart);
    if (threadIdx.x % 32 == 0)
        out[row] = total;
}
