// The last layer, the loss and the errors of the layer below, for one image of a batch.

// The constants are offsets in shared memory.
template <class Layer> struct Head {
    static constexpr int INPUT = rounded(Layer::BIASES + Layer::OUT, 4), LOGITS = INPUT + Layer::IN;
    static constexpr int ERRORS = LOGITS + Layer::OUT, ROOM = ERRORS + Layer::OUT;

    // Start copying the parameters, which no block writes in this phase or the one before.
    static __device__ __forceinline__ void prepare(const float* w, const float* b, float* room)
    {
        for (int i = 4 * threadIdx.x; i < Layer::BIASES; i += 4 * THREADS) copy_async(room + i, w + i, true);
        commit_copies();
        for (int j = threadIdx.x; j < Layer::OUT; j += THREADS) room[Layer::BIASES + j] = __ldcg(b + j);
    }

    // `in` is the image's row of the layer below. Writes `errors`, those `below`, and `loss`.
    template <class Below>
    static __device__ __forceinline__ void run(
        const float* in, long long label, float* errors, float* below, float* loss, float* room)
    {
        for (int i = threadIdx.x; i < Layer::IN; i += THREADS) room[INPUT + i] = __ldcg(in + i);
        wait_for_copies<0>();
        __syncthreads();
        Layer::forward(room + INPUT, room, room + LOGITS);
        __syncthreads();
        cross_entropy<Layer::OUT>(
            room + LOGITS, label, room + ERRORS, [=](float value) { *loss = value; });
        __syncthreads();
        copy_all<Layer::OUT>(errors, room + ERRORS);
        Layer::template backward<Below>(room + ERRORS, room, room + INPUT, below);
        __syncthreads();
    }
};
