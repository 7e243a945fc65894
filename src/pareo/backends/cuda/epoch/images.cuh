// The images of one block; each is loaded from global memory while the one before is computed.

struct Images {
    static constexpr int EACH = (PIXELS + THREADS - 1) / THREADS;
    const float* images;
    const long long *labels, *order;
    long long place, last, chosen, label;
    float pixels[EACH];

    __device__ Images(
        const float* images, const long long* labels, const long long* order, long long steps)
        : images(images), labels(labels), order(order), place(blockIdx.x), last(steps * BATCH)
    {
        chosen = order[place];
    }

    // Start loading the next image, and the index of the one after it.
    __device__ __forceinline__ void fetch()
    {
        const float* from = images + chosen * PIXELS;
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (threadIdx.x + k * THREADS < PIXELS) pixels[k] = __ldg(from + threadIdx.x + k * THREADS);
        label = labels[chosen];
        const long long within = place % BATCH + BLOCKS;
        place += within < BATCH ? BLOCKS : BATCH - place % BATCH + blockIdx.x;
        if (place < last) chosen = order[place];
    }

    __device__ __forceinline__ void store(float* to) const
    {
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (threadIdx.x + k * THREADS < PIXELS) to[threadIdx.x + k * THREADS] = pixels[k];
    }
};
