// Sums over rows, statistics of channels, dense layers and the loss of one image.
#pragma once

// out[r] = scale * sum of the ROW elements of row r. A warp has a long row, a thread a short one.
template <int ROWS, int ROW> __device__ inline void row_sums(float* out, const float* in, float scale)
{
    constexpr int SHARE = ROW < 64 ? 1 : LANES;
    const int lane = threadIdx.x % SHARE;
    for (int row = threadIdx.x / SHARE; row < ROWS; row += THREADS / SHARE) {
        float sum = 0;
#pragma unroll 8
        for (int j = lane; j < ROW; j += SHARE) sum += in[row * ROW + j];
        if (SHARE > 1) sum = total_of_lanes(sum);
        if (lane == 0) out[row] = scale * sum;
    }
    PHASE_END;
}

// An image's mean of each channel, and behind them its sums of squared deviations from it.
template <int CHANNELS, int PIXELS> __device__ inline void norm_moments(float* out, const float* x)
{
    constexpr int SHARE = PIXELS < 64 ? 1 : LANES;
    const int lane = threadIdx.x % SHARE;
    for (int c = threadIdx.x / SHARE; c < CHANNELS; c += THREADS / SHARE) {
        float sum = 0, squares = 0;
        for (int j = lane; j < PIXELS; j += SHARE) sum += x[c * PIXELS + j];
        const float mean = (SHARE > 1 ? total_of_lanes(sum) : sum) / PIXELS;
        for (int j = lane; j < PIXELS; j += SHARE) {
            const float apart = x[c * PIXELS + j] - mean;
            squares += apart * apart;
        }
        if (SHARE > 1) squares = total_of_lanes(squares);
        if (lane == 0) {
            out[c] = mean;
            out[CHANNELS + c] = squares;
        }
    }
    PHASE_END;
}

// An image's part of the gradients of scale and of shift.
template <int CHANNELS, int PIXELS> __device__ inline void norm_sums(
    float* to_scale, float* to_shift, const float* g, const float* x, const float* mean,
    const float* variance, float epsilon)
{
    constexpr int SHARE = PIXELS < 64 ? 1 : LANES;
    const int lane = threadIdx.x % SHARE;
    for (int c = threadIdx.x / SHARE; c < CHANNELS; c += THREADS / SHARE) {
        float sum = 0, product = 0;
        for (int j = lane; j < PIXELS; j += SHARE) {
            const float d = g[c * PIXELS + j];
            sum += d;
            product += d * (x[c * PIXELS + j] - mean[c]);
        }
        if (SHARE > 1) {
            sum = total_of_lanes(sum);
            product = total_of_lanes(product);
        }
        if (lane == 0) {
            to_shift[c] = sum;
            to_scale[c] = product / sqrtf(variance[c] + epsilon);
        }
    }
    PHASE_END;
}

// out[m] = sum of x[k] * w[k, m].
template <int K, int M, int PARTS> __device__ inline void dense(
    float* out, const float* x, const float* w, float* room)
{
    EACH(i, M * PARTS) {
        const int m = i % M, part = i / M;
        const int start = K * part / PARTS, end = K * (part + 1) / PARTS;
        float sum = 0;
#pragma unroll 16
        for (int k = start; k < end; k++) sum += x[k] * w[k * M + m];
        if (PARTS == 1) out[m] = sum;
        else room[i] = sum;
    }
    PHASE_END;
    add_parts<M, PARTS>(out, room);
}

// out[k] = sum of g[m] * w[k, m]: a warp has ROWS rows of w at a time, to load them together.
template <int K, int M> __device__ inline void dense_back(float* out, const float* g, const float* w)
{
    constexpr int ROWS = 4;
    const int lane = threadIdx.x % LANES;
    for (int k = threadIdx.x / LANES * ROWS; k < K; k += THREADS / LANES * ROWS) {
        float sums[ROWS] = {};
#pragma unroll 4
        for (int m = lane; m < M; m += LANES)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (K % ROWS == 0 || k + r < K) sums[r] += g[m] * w[(k + r) * M + m];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float sum = total_of_lanes(sums[r]);
            if (lane == 0 && k + r < K) out[k + r] = sum;
        }
    }
    PHASE_END;
}

// The share of an image in the mean cross-entropy: `share` * (log of the sum of exp(x) - x[label]). A
// label that names no class makes it NaN.
template <int CLASSES> __device__ inline void cross_entropy(float* loss, const float* x, long long label, float share)
{
    if (threadIdx.x < LANES) {
        float most = -INFINITY, sum = 0;
        for (int i = threadIdx.x; i < CLASSES; i += LANES) most = fmaxf(most, x[i]);
        most = largest_of_lanes(most);
        for (int i = threadIdx.x; i < CLASSES; i += LANES) sum += expf(x[i] - most);
        sum = total_of_lanes(sum);
        const bool known = label >= 0 && label < CLASSES;
        if (threadIdx.x == 0) *loss = known ? share * (logf(sum) - (x[label] - most)) : NAN;
    }
    PHASE_END;
}

// Its gradient, times `scale`.
template <int CLASSES> __device__ inline void cross_entropy_back(
    float* out, const float* x, long long label, float scale)
{
    if (threadIdx.x < LANES) {
        float most = -INFINITY, sum = 0;
        for (int i = threadIdx.x; i < CLASSES; i += LANES) most = fmaxf(most, x[i]);
        most = largest_of_lanes(most);
        for (int i = threadIdx.x; i < CLASSES; i += LANES) sum += expf(x[i] - most);
        sum = total_of_lanes(sum);
        const float factor = label >= 0 && label < CLASSES ? scale : NAN;
        for (int i = threadIdx.x; i < CLASSES; i += LANES)
            out[i] = factor * (expf(x[i] - most) / sum - (i == label));
    }
    PHASE_END;
}
