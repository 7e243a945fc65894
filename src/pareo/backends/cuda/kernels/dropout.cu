// Dropout: out[i] is 0 where the hash of (seed, i) is below the threshold, else x[i] * factor.
// All devices give the same bits: splitmix64 of the element's position (operators/normalisation).

extern "C" __global__ void dropout(
    Real* out, const Real* x, const long long* seed, long long count, unsigned threshold, Real factor)
{
    const unsigned long long golden = 0x9E3779B97F4A7C15ull;
    const unsigned long long start = (unsigned long long)*seed * golden;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        unsigned long long z = start + (unsigned long long)i;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        out[i] = (unsigned)(z >> 40) < threshold ? Real(0) : x[i] * factor;
    }
}
