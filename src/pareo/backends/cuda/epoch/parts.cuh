// What the products of layers read and write besides their operands: a piece of a row at a time.

// A load that bypasses the first-level cache, in which writes of other multiprocessors are not
// visible.
template <class Piece> __device__ __forceinline__ Piece fresh(const float* from)
{
    constexpr int COUNT = sizeof(Piece) / 4;
    Piece piece;
    if constexpr (COUNT == 4)
        *(float4*)&piece = __ldcg((const float4*)from);
    else if constexpr (COUNT == 2)
        *(float2*)&piece = __ldcg((const float2*)from);
    else
        piece.at[0] = __ldcg(from);
    return piece;
}

template <class Piece, class Each> __device__ __forceinline__ Piece mapped(Each each)
{
    Piece made;
#pragma unroll
    for (int i = 0; i < sizeof(Piece) / 4; i++) made.at[i] = each(i);
    return made;
}

// Forward: a bias, then the activation.
template <class Of> struct Bias {
    const float* biases;

    __device__ __forceinline__ auto operator()(int, int n) const
    {
        return fresh<typename Of::Piece>(biases + n);
    }
};

template <class Of, class Outer> struct Activate {
    using Piece = typename Of::Piece;
    float* values;

    __device__ __forceinline__ void operator()(int m, int n, Piece sums, Piece bias) const
    {
        *(Piece*)(values + m * Of::LINE + n) =
            mapped<Piece>([=](int i) { return Outer::value(sums.at[i] + bias.at[i]); });
    }
};

// Backward: the activation's slope at the value of the forward pass.
template <class Of> struct Value {
    const float* values;

    __device__ __forceinline__ auto operator()(int m, int n) const
    {
        return fresh<typename Of::Piece>(values + m * Of::LINE + n);
    }
};

template <class Of, class Outer> struct Slope {
    using Piece = typename Of::Piece;
    float* errors;

    __device__ __forceinline__ void operator()(int m, int n, Piece sums, Piece value) const
    {
        *(Piece*)(errors + m * Of::LINE + n) =
            mapped<Piece>([=](int i) { return sums.at[i] * Outer::slope(value.at[i]); });
    }
};

// Weights, and the biases as one more row: updated by the sum of their gradients over the batch.
template <class Of> struct Place {
    float *weights, *biases;

    __device__ __forceinline__ float* at(int m, int n) const
    {
        return m < Of::HIGH - 1 ? weights + m * Of::LINE + n : biases + n;
    }
};

template <class Piece> struct Before {
    Piece parameters, velocities;
};

template <class Of> struct Old {
    using Piece = typename Of::Piece;
    Place<Of> parameters, velocities;

    __device__ __forceinline__ Before<Piece> operator()(int m, int n) const
    {
        Before<Piece> before;
        before.parameters = fresh<Piece>(parameters.at(m, n));
        if (MOMENTUM) before.velocities = fresh<Piece>(velocities.at(m, n));
        return before;
    }
};

template <class Of> struct Move {
    using Piece = typename Of::Piece;
    Place<Of> parameters, velocities;
    float rate, momentum, decay;

    __device__ __forceinline__ void operator()(
        int m, int n, Piece sums, Before<Piece> before) const
    {
        const Piece changes = mapped<Piece>([&](int i) {
            const float speed = MOMENTUM ? momentum * before.velocities.at[i] : 0.0f;
            return speed + sums.at[i] * (1.0f / BATCH) + decay * before.parameters.at[i];
        });
        if (MOMENTUM) *(Piece*)velocities.at(m, n) = changes;
        *(Piece*)parameters.at(m, n) = mapped<Piece>(
            [&](int i) { return before.parameters.at[i] - rate * changes.at[i]; });
    }
};
