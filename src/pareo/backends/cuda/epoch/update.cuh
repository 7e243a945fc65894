// How the batch's gradients become new parameters: one block has a slice of them all.

// What every block knows in a step.
struct Step {
    float* parameters;  // in shared memory, as of the last step
    float* velocities;  // in shared memory; only those of a block's own slice are up to date
    float* speeds;      // the velocities in global memory
    Word* letters;      // for the new parameters
    unsigned stamp;
    float rate, momentum, decay;

    // Move a parameter by the sum of its gradients over the batch.
    __device__ __forceinline__ void move(int p, float sum) const
    {
        float change = sum * (1.0f / BATCH) + decay * parameters[p];
        if (MOMENTUM) change = speeds[p] = velocities[p] = momentum * velocities[p] + change;
        const float moved = parameters[p] - rate * change;
        if (BLOCKS == 1)
            parameters[p] = moved;
        else
            send(letters + p, moved, stamp);
    }
};

// A part of every image's message: COUNT words from FIRST on, CHUNK for each block.
template <int FIRST, int COUNT, int CHUNK> struct Part {
    static constexpr int CHUNKS = (COUNT + CHUNK - 1) / CHUNK;

    // Those of one chunk, image by image, from the mail into `to`.
    static __device__ __forceinline__ void read(
        const Word* mail, int chunk, float* to, unsigned stamp)
    {
        receive<BATCH * CHUNK>(
            to,
            [=](int i) {
                const int word = least(chunk * CHUNK + i % CHUNK, COUNT - 1);
                return mail + i / CHUNK * WORDS + FIRST + word;
            },
            stamp);
    }

    // use(word, sum over all images) for each word of a chunk.
    template <class Use>
    static __device__ __forceinline__ void add_up(const float* words, int chunk, Use use)
    {
        sum_each<CHUNK, BATCH>(
            [=](int r, int n) { return words[n * CHUNK + r]; },
            [=](int r, float sum) {
                if (chunk * CHUNK + r < COUNT) use(chunk * CHUNK + r, sum);
            });
    }

    // The same for a dense layer's weights, whose rows these words are: weight (i, j) has the
    // gradient in[i] * errors[j].
    template <int OUT, class Use>
    static __device__ __forceinline__ void multiply(
        const float* in, const float* errors, int chunk, Use use)
    {
        sum_each<CHUNK * OUT, BATCH>(
            [=](int r, int n) { return in[n * CHUNK + r / OUT] * errors[n * OUT + r % OUT]; },
            [=](int r, float sum) {
                if (chunk * CHUNK + r / OUT < COUNT) use(chunk * CHUNK * OUT + r, sum);
            });
    }
};
