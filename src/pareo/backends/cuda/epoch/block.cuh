// Sums by all threads of one block. THREADS is their number, a multiple of 32.

__device__ constexpr int least(int a, int b) { return a < b ? a : b; }
__device__ constexpr int rounded(int count, int unit) { return (count + unit - 1) / unit * unit; }

// The number of neighbouring threads that share one result: a power of two, for shuffles.
__device__ constexpr int lanes_for(int results, int terms)
{
    int lanes = 1;
    while (lanes < 32 && 2 * lanes * results <= THREADS && 2 * lanes <= terms) lanes *= 2;
    return lanes;
}

// Calls use(r, term(r, 0) + ... + term(r, TERMS - 1)) for each of RESULTS; the order of summation
// is fixed.
template <int RESULTS, int TERMS, class Term, class Use>
__device__ __forceinline__ void sum_each(Term term, Use use)
{
    constexpr int LANES = lanes_for(RESULTS, TERMS);
    for (int item = threadIdx.x; item < rounded(RESULTS * LANES, 32); item += THREADS) {
        const int result = item / LANES, lane = item % LANES;
        float sum = 0.0f;
        if (result < RESULTS) {
#pragma unroll 8
            for (int n = lane; n < TERMS; n += LANES) sum += term(result, n);
        }
#pragma unroll
        for (int far = LANES / 2; far; far /= 2) sum += __shfl_xor_sync(~0u, sum, far);
        if (lane == 0 && result < RESULTS) use(result, sum);
    }
}

template <int COUNT> __device__ __forceinline__ void copy_all(float* to, const float* from)
{
    for (int i = threadIdx.x; i < COUNT; i += THREADS) to[i] = from[i];
}
