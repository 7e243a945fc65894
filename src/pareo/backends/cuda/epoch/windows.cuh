// Convolution, activation, subsampling by one filter in windows that do not overlap, activation.
//
// A thread computes one window of one filter's output. Its pixels and intermediate values stay in
// registers between the forward and the backward pass; only the terms of gradients go to shared
// memory.
//
// Parameters are consecutive: filters (FILTERS, CHANNELS, KH, KW), their biases (FILTERS), the
// window's weights (PH, PW), its bias.

template <int CHANNELS, int HEIGHT, int WIDTH, int FILTERS, int KH, int KW, int PH, int PW,
          class Inner, class Outer_>
struct Windows {
    using Outer = Outer_;
    static constexpr int DOWN = (HEIGHT - KH + 1) / PH, ACROSS = (WIDTH - KW + 1) / PW;
    static constexpr int PLACES = DOWN * ACROSS, OUT = FILTERS * PLACES;
    static constexpr int TAPS = CHANNELS * KH * KW;
    static constexpr int BIASES = FILTERS * TAPS, WINDOW = BIASES + FILTERS;
    static constexpr int WORDS = WINDOW + PH * PW + 1;
    // A thread's terms of the gradients: of its filter, its bias, the window and its bias.
    static constexpr int TERMS = TAPS + 1 + PH * PW + 1;
    static constexpr int STRIDE = TERMS | 1;  // odd, so that neighbours use different banks
    static constexpr int ROOM = OUT * STRIDE;
    static_assert(OUT <= THREADS, "a thread has one window");

    float pixels[CHANNELS][PH + KH - 1][PW + KW - 1];
    float values[PH][PW];

    __device__ __forceinline__ void load(const float* image)
    {
        const int place = threadIdx.x % PLACES;
        const float* corner = image + place / ACROSS * PH * WIDTH + place % ACROSS * PW;
        constexpr int LONG = PW + KW - 1;
        constexpr bool FOURS = LONG % 4 == 0 && PW % 4 == 0 && WIDTH % 4 == 0;
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
#pragma unroll
            for (int i = 0; i < PH + KH - 1; i++) {
                const float* row = corner + (c * HEIGHT + i) * WIDTH;
#pragma unroll
                for (int j = 0; j < LONG; j += FOURS ? 4 : 1) {
                    if constexpr (FOURS)
                        *(float4*)&pixels[c][i][j] = *(const float4*)(row + j);
                    else
                        pixels[c][i][j] = row[j];
                }
            }
        }
    }

    __device__ __forceinline__ void forward(const float* image, const float* parameters, float* out)
    {
        if (threadIdx.x >= OUT) return;
        load(image);
        const int filter = threadIdx.x / PLACES;
        const float* weights = parameters + filter * TAPS;
        const float bias = parameters[BIASES + filter];
#pragma unroll
        for (int i = 0; i < PH * PW; i++) values[i / PW][i % PW] = bias;
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            const int c = tap / (KH * KW), u = tap / KW % KH, v = tap % KW;
            const float weight = weights[tap];
#pragma unroll
            for (int i = 0; i < PH * PW; i++)
                values[i / PW][i % PW] += pixels[c][i / PW + u][i % PW + v] * weight;
        }
        float sum = parameters[WINDOW + PH * PW];
#pragma unroll
        for (int i = 0; i < PH * PW; i++) {
            float& value = values[i / PW][i % PW];
            value = Inner::value(value);
            sum += value * parameters[WINDOW + i];
        }
        out[threadIdx.x] = Outer::value(sum);
    }

    // `errors` are gradients before the outer activation; `terms` has ROOM floats.
    __device__ __forceinline__ void backward(
        const float* errors, const float* parameters, float* terms)
    {
        if (threadIdx.x >= OUT) return;
        const float error = errors[threadIdx.x];
        float* mine = terms + threadIdx.x * STRIDE;
        float bias = 0.0f, sums[TAPS] = {};
#pragma unroll
        for (int i = 0; i < PH * PW; i++) {
            const float value = values[i / PW][i % PW];
            mine[TAPS + 1 + i] = error * value;
            const float d = error * parameters[WINDOW + i] * Inner::slope(value);
            bias += d;
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                const int c = tap / (KH * KW), u = tap / KW % KH, v = tap % KW;
                sums[tap] += pixels[c][i / PW + u][i % PW + v] * d;
            }
        }
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) mine[tap] = sums[tap];
        mine[TAPS] = bias;
        mine[TERMS - 1] = error;
    }

    // Calls report(word, sum) for the gradient of every parameter.
    template <class Report> static __device__ __forceinline__ void sums(const float* terms, Report report)
    {
        sum_each<FILTERS * (TAPS + 1), PLACES>(
            [=](int r, int n) {
                return terms[(r / (TAPS + 1) * PLACES + n) * STRIDE + r % (TAPS + 1)];
            },
            [=](int r, float sum) {
                const int filter = r / (TAPS + 1), tap = r % (TAPS + 1);
                report(tap < TAPS ? filter * TAPS + tap : BIASES + filter, sum);
            });
        sum_each<PH * PW + 1, OUT>(
            [=](int r, int n) { return terms[n * STRIDE + TAPS + 1 + r]; },
            [=](int r, float sum) { report(WINDOW + r, sum); });
    }
};
