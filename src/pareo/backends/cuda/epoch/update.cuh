// From the batch's gradients to new parameters: each block updates a slice of them.

// What every block knows in a step.
struct Step {
    float* parameters;  // in shared memory, as after the last step
    float* velocities;  // in shared memory; only those of a block's own slice are up to date
    float* speeds;      // the velocities in global memory
    Word* new_parameters;      // for the new parameters
    unsigned stamp;
    float rate, momentum, decay;

    // Update a parameter by the sum of its gradients over the batch.
    __device__ __forceinline__ void move(int p, float sum) const
    {
        float change = sum * (1.0f / BATCH) + decay * parameters[p];
        if (MOMENTUM) change = speeds[p] = velocities[p] = momentum * velocities[p] + change;
        const float moved = parameters[p] - rate * change;
        if (BLOCKS == 1)
            parameters[p] = moved;
        else
            send(new_parameters + p, moved, stamp);
    }
};

// A part of every image's message: COUNT words from FIRST on, CHUNK of them for each block.
template <int FIRST, int COUNT, int CHUNK> struct Part {
    static constexpr int CHUNKS = (COUNT + CHUNK - 1) / CHUNK;

    // Reads the words of one chunk, image by image, into `to`.
    static __device__ __forceinline__ void read(
        const Word* messages, int chunk, float* to, unsigned stamp)
    {
        receive<BATCH * CHUNK>(
            to,
            [=](int i) {
                const int word = least(chunk * CHUNK + i % CHUNK, COUNT - 1);
                return messages + i / CHUNK * WORDS + FIRST + word;
            },
            stamp);
    }

    // Calls use(word, sum over all images) for each word of a chunk.
    template <class Use>
    static __device__ __forceinline__ void add_up(const float* words, int chunk, Use use)
    {
        sum_each<CHUNK, BATCH>(
            [=](int r, int n) { return words[n * CHUNK + r]; },
            [=](int r, float sum) {
                if (chunk * CHUNK + r < COUNT) use(chunk * CHUNK + r, sum);
            });
    }

    // The same for the weights of a dense layer whose inputs these words are: the gradient of
    // weight (i, j) is in[i] * errors[j].
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
