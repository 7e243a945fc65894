// A dense layer with its activation, for one image. Parameters: weights (IN, OUT), biases (OUT).

template <int IN_, int OUT_, class Outer_> struct Dense {
    using Outer = Outer_;
    static constexpr int IN = IN_, OUT = OUT_, BIASES = IN * OUT;

    static __device__ __forceinline__ void forward(
        const float* in, const float* parameters, float* out)
    {
        sum_each<OUT, IN>(
            [=](int j, int i) { return in[i] * parameters[i * OUT + j]; },
            [=](int j, float sum) { out[j] = Outer::value(sum + parameters[BIASES + j]); });
    }

    // The errors of the layer below, whose values are `in`. Errors are gradients before the
    // activation.
    template <class Below>
    static __device__ __forceinline__ void backward(
        const float* errors, const float* parameters, const float* in, float* below)
    {
        sum_each<IN, OUT>(
            [=](int i, int j) { return parameters[i * OUT + j] * errors[j]; },
            [=](int i, float sum) { below[i] = sum * Below::slope(in[i]); });
    }
};
