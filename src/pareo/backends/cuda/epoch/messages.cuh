// Messages between blocks: words in global memory that carry the number of their step (the stamp)
// beside the value, so that a reader needs no barrier: it polls until the stamp is the expected
// one. A word is written and read atomically.
//
// No double buffering is needed. A block sends its first word of a step after it has received every
// parameter and the loss of the step before; their owners sent those after they had read all of its
// words. And it sends a parameter after it has read a word from every block, which each block sends
// after it has received the parameters of the step before.

using Word = unsigned long long;

__device__ __forceinline__ void send(Word* to, float value, unsigned stamp)
{
    const Word word = (Word)stamp << 32 | __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

__device__ __forceinline__ Word look(const Word* at)
{
    Word word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}

// The whole block waits for one word: polling by thousands of threads would slow down the messages.
__device__ __forceinline__ void wait_for(const Word* at, unsigned stamp)
{
    if (threadIdx.x == 0)
        while ((unsigned)(look(at) >> 32) != stamp) {}
    __syncthreads();
}

// The whole block reads COUNT words, the i-th from at(i), and stores their values in `to`. All
// loads are issued before the first is waited for.
template <int COUNT, class At>
__device__ __forceinline__ void receive(float* to, At at, unsigned stamp)
{
    constexpr int MANY = least(16, (COUNT + THREADS - 1) / THREADS);
    for (int first = threadIdx.x; first < COUNT; first += MANY * THREADS) {
        Word words[MANY];
#pragma unroll
        for (int k = 0; k < MANY; k++)
            if (first + k * THREADS < COUNT) words[k] = look(at(first + k * THREADS));
#pragma unroll
        for (int k = 0; k < MANY; k++) {
            const int i = first + k * THREADS;
            if (i >= COUNT) break;
            while ((unsigned)(words[k] >> 32) != stamp) words[k] = look(at(i));
            to[i] = __uint_as_float((unsigned)words[k]);
        }
    }
}
